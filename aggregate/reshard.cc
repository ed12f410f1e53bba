#include "aggregate/reshard.h"

#include <algorithm>
#include <string>

#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

constexpr std::string_view kError = ".error";
constexpr std::string_view kError2 = ".error2";
constexpr std::string_view kResidual = ".coder.residual";

bool ends_with(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

double at(ConstTensorView tensor, std::int64_t i) {
  const auto index = static_cast<std::size_t>(i);
  return tensor.dtype() == DType::kF64 ? elements<double>(tensor)[index]
                                       : static_cast<double>(elements<float>(tensor)[index]);
}
void put(TensorView tensor, std::int64_t i, double value) {
  const auto index = static_cast<std::size_t>(i);
  if (tensor.dtype() == DType::kF64) {
    elements<double>(tensor)[index] = value;
  } else {
    elements<float>(tensor)[index] = static_cast<float>(value);
  }
}

class Reshard {
 public:
  Reshard(std::span<const std::vector<NamedTensor>> old, int rank, int size,
          const ParameterSizes& sizes)
      : old_(old), rank_(rank), size_(size), sizes_(sizes) {}

  // Checks, and copies only when `write`.
  Status carry(const NamedTensor& own, bool write) const {
    if (same_size()) return copy(own, rank_, write);
    if (ends_with(own.name, kError2)) return recut(own, write);
    const bool residual = own.name.find(kResidual) != std::string::npos;
    if (residual || ends_with(own.name, kError)) return average(own, write);
    return copy(own, 0, write);
  }

 private:
  int old_size() const { return static_cast<int>(old_.size()); }
  bool same_size() const { return old_size() == size_; }

  Result<ConstTensorView> find(int old_rank, const NamedTensor& own, std::int64_t elems) const {
    for (const NamedTensor& entry : old_[static_cast<std::size_t>(old_rank)]) {
      if (entry.name != own.name) continue;
      if (entry.tensor.elems() == elems &&
          (elems == 0 || entry.tensor.dtype() == own.tensor.dtype())) {
        return ConstTensorView(entry.tensor);
      }
      return Status(Code::kInvalidArgument,
                    format("state '%s' of old rank %d: %lld elements of %s (%lld of %s wanted)",
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

  Status average(const NamedTensor& own, bool write) const {
    std::vector<ConstTensorView> sources;
    for (int r = 0; r < old_size(); ++r) {
      GW_ASSIGN(const ConstTensorView source, find(r, own, own.tensor.elems()));
      sources.push_back(source);
    }
    if (!write) return {};
    for (std::int64_t i = 0; i < own.tensor.elems(); ++i) {
      double sum = 0;
      for (const ConstTensorView& source : sources) sum += at(source, i);
      put(own.tensor, i, sum / old_size());
    }
    return {};
  }

  Status recut(const NamedTensor& own, bool write) const {
    const std::string_view name = own.name;
    const std::int64_t elems = sizes_.elems_of(name.substr(0, name.size() - kError2.size()));
    const Range mine = piece(elems, size_, rank_);
    const double factor = static_cast<double>(size_) / old_size();
    for (int r = 0; r < old_size(); ++r) {
      const Range theirs = piece(elems, old_size(), r);
      GW_ASSIGN(const ConstTensorView source, find(r, own, theirs.size()));
      if (!write) continue;
      for (std::int64_t i = std::max(mine.begin, theirs.begin); i < std::min(mine.end, theirs.end);
           ++i) {
        put(own.tensor, i - mine.begin, at(source, i - theirs.begin) * factor);
      }
    }
    return {};
  }

  std::span<const std::vector<NamedTensor>> old_;
  int rank_;
  int size_;
  const ParameterSizes& sizes_;
};

}  // namespace

Status reshard_state(std::span<const NamedTensor> own,
                     std::span<const std::vector<NamedTensor>> by_old_rank, int rank, int size,
                     const ParameterSizes& sizes) {
  if (by_old_rank.empty()) return {Code::kInvalidArgument, "state of no rank at all"};
  for (const std::vector<NamedTensor>& entries : by_old_rank) {
    for (const NamedTensor& entry : entries) {
      bool known = false;
      for (const NamedTensor& mine : own) known = known || mine.name == entry.name;
      if (!known) {
        return {Code::kInvalidArgument, "state '" + entry.name +
                                            "' belongs to no parameter and method of this "
                                            "aggregator"};
      }
    }
  }
  const Reshard reshard(by_old_rank, rank, size, sizes);
  for (const bool write : {false, true}) {
    for (const NamedTensor& mine : own) GW_TRY(reshard.carry(mine, write));
  }
  return {};
}

}  // namespace gradwire
