#include "aggregate/state/reshard.h"

#include <algorithm>
#include <string>

#include "aggregate/state/reshard_outer.h"
#include "base/elements.h"
#include "base/text.h"
#include "compress/error_feedback/ef21.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/ops.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

constexpr std::string_view kError = ".error";
constexpr std::string_view kError2 = ".error2";
constexpr std::string_view kScales[] = {".error.scale", ".error2.scale",
                                        ".shard_error.scale"};  // of int8 elements
constexpr auto kBlock = static_cast<std::int64_t>(kResidualBlock);
// Of the shard that a rank owns: cut anew for other ranks.
constexpr std::string_view kOwned[] = {kError2, ".shard_error", ".ef21.average"};
constexpr std::string_view kAverage = ".ef21.average";
constexpr std::string_view kMean = ".ef21.mean";
constexpr std::string_view kOfSums[] = {kError2, ".error2.scale", kAverage};
constexpr std::string_view kResidual = ".coder.residual";
constexpr std::string_view kAveraged[] = {".ef21.h", ".ef21.v", kError};

bool ends_with(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

// Which of `tails` the name ends with; "" for none.
std::string_view tail_of(std::string_view name, std::span<const std::string_view> tails) {
  for (const std::string_view tail : tails) {
    if (ends_with(name, tail)) return tail;
  }
  return {};
}

class Reshard {
 public:
  Reshard(std::span<const NamedTensor> own, std::span<const std::vector<NamedTensor>> old, int rank,
          int size, const ParameterSizes& sizes)
      : own_(own), old_(old), rank_(rank), size_(size), sizes_(sizes) {}

  // Checks, and copies only when `write`.
  Status carry(const NamedTensor& own, bool write) const {
    if (was_gathered(own)) return begin_sums(own, write);
    if (is_outer_state(own.name)) return carry_outer_state(own, own_, old_, rank_, size_, write);
    if (same_size()) return copy(own, rank_, write);
    if (!tail_of(own.name, kScales).empty()) return {};  // carried with what it scales
    if (!tail_of(own.name, kOwned).empty()) return recut(own, write);
    if (is_average(own.name)) return average(own, write);
    return copy(own, 0, write);
  }

 private:
  int old_size() const { return static_cast<int>(old_.size()); }
  bool same_size() const { return old_size() == size_; }

  const NamedTensor* look_up(int old_rank, std::string_view name) const {
    for (const NamedTensor& entry : old_[static_cast<std::size_t>(old_rank)]) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  // Whether `own` is about sums that owners send on, and the old ranks gathered the parameter
  // without: so went, before they had slices, methods one of whose keys follows the step.
  bool was_gathered(const NamedTensor& own) const {
    const std::string_view tail = tail_of(own.name, kOfSums);
    if (tail.empty()) return false;
    const std::string first = own.name.substr(0, own.name.size() - tail.size()) +
                              std::string(tail == kAverage ? kMean : kError);
    int have = 0;
    for (int r = 0; r < old_size(); ++r) {
      if (look_up(r, own.name) != nullptr) return false;
      have += look_up(r, first) != nullptr ? 1 : 0;
    }
    // Between nodes a parameter's owners alone have something, and averages are of their pieces.
    if (is_outer_state(own.name)) return have > 0 && tail != kAverage;
    return have == old_size();
  }

  // Nothing is owed of sums, and what all took for the average is what the owner does.
  Status begin_sums(const NamedTensor& own, bool write) const {
    if (!ends_with(own.name, kAverage)) {
      if (write) std::ranges::fill(own.tensor.bytes(), std::byte{0});
      return {};
    }
    NamedTensor mean = own;
    mean.name.replace(mean.name.size() - kAverage.size(), kAverage.size(), kMean);
    const std::int64_t elems =
        sizes_.elems_of(mean.name.substr(0, mean.name.size() - kMean.size()));
    GW_ASSIGN(const ConstTensorView whole, find(0, mean, elems));
    const Range mine = piece(elems, size_, rank_);
    if (!write || mine.size() == 0) return {};
    return copy_bytes(whole.slice(mine.begin, mine.size()).bytes(), {}, own.tensor.bytes(), {}, {});
  }

  Result<ConstTensorView> find(int old_rank, const NamedTensor& own, std::int64_t elems) const {
    for (const NamedTensor& entry : old_[static_cast<std::size_t>(old_rank)]) {
      if (entry.name != own.name) continue;
      if (entry.tensor.elems() == elems &&
          (elems == 0 || entry.tensor.dtype() == own.tensor.dtype())) {
        return ConstTensorView(entry.tensor);
      }
      return Status(Code::kInvalidArgument,
                    format("state '%s' of old rank %d: %lld elements of %s (expected %lld of %s)",
                           own.name.c_str(), old_rank, static_cast<long long>(entry.tensor.elems()),
                           std::string(to_string(entry.tensor.dtype())).c_str(),
                           static_cast<long long>(elems),
                           std::string(to_string(own.tensor.dtype())).c_str()));
    }
    return Status(Code::kInvalidArgument,
                  format("state '%s' of old rank %d is missing", own.name.c_str(), old_rank));
  }

  Status copy(const NamedTensor& own, int from, bool write) const {
    GW_ASSIGN(const ConstTensorView source, find(from, own, own.tensor.elems()));
    return write ? copy_bytes(source.bytes(), {}, own.tensor.bytes(), {}, {}) : Status();
  }

  static bool is_average(std::string_view name) {
    if (name.find(kResidual) != std::string_view::npos) return true;
    return !tail_of(name, kAveraged).empty();
  }

  // What holds the scales of int8 elements; anything for other types.
  const NamedTensor* scales_of(const NamedTensor& own) const {
    for (const NamedTensor& entry : own_) {
      if (entry.name == own.name + ".scale") return &entry;
    }
    return &own;
  }

  Status average(const NamedTensor& own, bool write) const {
    const NamedTensor* scales = scales_of(own);
    std::vector<double> sum(static_cast<std::size_t>(own.tensor.elems()));
    for (int r = 0; r < old_size(); ++r) {
      GW_ASSIGN(const ConstTensorView source, find(r, own, own.tensor.elems()));
      GW_ASSIGN(const ConstTensorView factors, find(r, *scales, scales->tensor.elems()));
      if (!write) continue;
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += stored_value(source, factors, i);
    }
    if (!write) return {};
    for (double& x : sum) x /= old_size();
    put_stored_values(sum, own.tensor, scales->tensor);
    return {};
  }

  // What the old owners of this rank's elements kept, one after another.
  Status recut(const NamedTensor& own, bool write) const {
    const std::string_view name = own.name;
    const std::string_view tail = tail_of(name, kOwned);
    const std::int64_t elems = sizes_.elems_of(name.substr(0, name.size() - tail.size()));
    const Range mine = piece(elems, size_, rank_);
    // Residuals of a sum grow with its addends.
    const double factor = tail == kError2 ? static_cast<double>(size_) / old_size() : 1;
    const NamedTensor* scales = scales_of(own);
    std::vector<double> values(static_cast<std::size_t>(mine.size()));
    for (int r = 0; r < old_size(); ++r) {
      const Range theirs = piece(elems, old_size(), r);
      const std::int64_t blocks = (theirs.size() + kBlock - 1) / kBlock;
      GW_ASSIGN(const ConstTensorView source, find(r, own, theirs.size()));
      GW_ASSIGN(const ConstTensorView factors,
                find(r, *scales, scales == &own ? theirs.size() : blocks));
      for (std::int64_t i = std::max(mine.begin, theirs.begin); i < std::min(mine.end, theirs.end);
           ++i) {
        values[static_cast<std::size_t>(i - mine.begin)] =
            stored_value(source, factors, static_cast<std::size_t>(i - theirs.begin)) * factor;
      }
    }
    if (write) put_stored_values(values, own.tensor, scales->tensor);
    return {};
  }

  std::span<const NamedTensor> own_;
  std::span<const std::vector<NamedTensor>> old_;
  int rank_;
  int size_;
  const ParameterSizes& sizes_;
};

}  // namespace

Status reshard_state(std::span<const NamedTensor> own,
                     std::span<const std::vector<NamedTensor>> by_old_rank, int rank, int size,
                     const ParameterSizes& sizes) {
  if (by_old_rank.empty()) return {Code::kInvalidArgument, "no rank's state was given"};
  for (const std::vector<NamedTensor>& entries : by_old_rank) {
    for (const NamedTensor& entry : entries) {
      bool known = false;
      for (const NamedTensor& mine : own) known = known || mine.name == entry.name;
      // Of what other ranks own this one may have nothing.
      known =
          known || (is_outer_state(entry.name) && sizes.elems_of(outer_parameter(entry.name)) > 0);
      if (!known) {
        return {Code::kInvalidArgument, "state '" + entry.name +
                                            "' belongs to no parameter and method of this "
                                            "aggregator"};
      }
    }
  }
  const Reshard reshard(own, by_old_rank, rank, size, sizes);
  for (const bool write : {false, true}) {
    for (const NamedTensor& mine : own) GW_TRY(reshard.carry(mine, write));
  }
  return {};
}

}  // namespace gradwire
