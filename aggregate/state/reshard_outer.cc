#include "aggregate/state/reshard_outer.h"

#include <algorithm>
#include <string>

#include "base/elements.h"
#include "base/text.h"
#include "compress/error_feedback/stored_residual.h"
#include "device/ops.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

constexpr std::string_view kOuter = ".outer.";

// What "<parameter>.outer.range" says of a rank.
struct Holding {
  Range range;
  int nodes = 0;
  int node = 0;
  friend bool operator==(const Holding&, const Holding&) = default;
  // The part of the range that the rank sums for all nodes.
  Range summed() const {
    const Range part = piece(range.size(), nodes, node);
    return {range.begin + part.begin, range.begin + part.end};
  }
};

const NamedTensor* find(std::span<const NamedTensor> entries, std::string_view name) {
  for (const NamedTensor& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

// Hostile like the rest of a state: nodes 0 stands for a place that is none.
Holding holding_in(std::span<const NamedTensor> entries, const std::string& name) {
  const NamedTensor* entry = find(entries, name);
  if (entry == nullptr || entry->tensor.dtype() != DType::kI64 || entry->tensor.elems() != 4) {
    return {};
  }
  const auto v = elements<std::int64_t>(entry->tensor);
  const bool whole = v[0] >= 0 && v[0] <= v[1] && v[3] >= 0 && v[3] < v[2] && v[2] <= 1 << 20;
  if (!whole) return {};
  return {{v[0], v[1]}, static_cast<int>(v[2]), static_cast<int>(v[3])};
}

enum class Carry { kAverage, kSum, kCut, kCopy, kSkip };
Carry carry_of(std::string_view what) {
  if (what == "range" || what == "error.scale" || what == "error2.scale") return Carry::kSkip;
  if (what == "error2") return Carry::kSum;
  if (what == "ef21.average") return Carry::kCut;
  const bool average =
      what == "error" || what.starts_with("ef21.") || what.starts_with("coder.residual");
  return average ? Carry::kAverage : Carry::kCopy;
}

Status wrong(const NamedTensor& own, const std::string& why) {
  return {Code::kInvalidArgument, "state '" + own.name + "' " + why};
}

// Joins what old ranks kept, element by element.
class Join {
 public:
  Join(const NamedTensor& own, const NamedTensor* scales, Range mine)
      : own_(own),
        scales_(scales),
        mine_(mine),
        values_(static_cast<std::size_t>(mine.size())),
        seen_(values_.size()) {}

  // `factor` times what `entries` keep of elements `theirs`.
  Status add(std::span<const NamedTensor> entries, const Range& theirs, double factor, int rank) {
    const NamedTensor* entry = find(entries, own_.name);
    const NamedTensor* scale = scales_ == nullptr ? entry : find(entries, scales_->name);
    const std::int64_t blocks = (theirs.size() + static_cast<std::int64_t>(kResidualBlock) - 1) /
                                static_cast<std::int64_t>(kResidualBlock);
    const bool fits = entry != nullptr && scale != nullptr &&
                      entry->tensor.elems() == theirs.size() &&
                      (theirs.size() == 0 || entry->tensor.dtype() == own_.tensor.dtype()) &&
                      (scales_ == nullptr || scale->tensor.elems() == blocks);
    if (!fits) {
      return wrong(own_, format("of old rank %d: missing, or not of the %lld elements that its "
                                "range says",
                                rank, static_cast<long long>(theirs.size())));
    }
    for (std::int64_t e = std::max(mine_.begin, theirs.begin); e < std::min(mine_.end, theirs.end);
         ++e) {
      const auto at = static_cast<std::size_t>(e - mine_.begin);
      values_[at] += factor * stored_value(entry->tensor, scale->tensor,
                                           static_cast<std::size_t>(e - theirs.begin));
      seen_[at] = true;
    }
    return {};
  }

  Status finish(bool write) const {
    const auto missing = std::find(seen_.begin(), seen_.end(), false);
    if (missing != seen_.end()) {
      return wrong(own_, format("has element %lld on no old rank",
                                static_cast<long long>(mine_.begin + (missing - seen_.begin()))));
    }
    if (!write) return {};
    put_stored_values(values_, own_.tensor, (scales_ == nullptr ? own_ : *scales_).tensor);
    return {};
  }

 private:
  const NamedTensor& own_;
  const NamedTensor* scales_;
  Range mine_;
  std::vector<double> values_;
  std::vector<bool> seen_;
};

// The name of the range that an entry is about.
std::string range_of(std::string_view name) {
  return std::string(name.substr(0, name.rfind(kOuter) + kOuter.size())) + "range";
}

Status copy_entry(const NamedTensor& own, const NamedTensor* entry, bool write) {
  if (entry == nullptr) return wrong(own, "is missing on the old rank that owned its elements");
  if (entry->tensor.elems() != own.tensor.elems() || entry->tensor.dtype() != own.tensor.dtype()) {
    return wrong(own, format("has %lld elements (expected %lld of the same type)",
                             static_cast<long long>(entry->tensor.elems()),
                             static_cast<long long>(own.tensor.elems())));
  }
  return write ? copy_bytes(entry->tensor.bytes(), {}, own.tensor.bytes(), {}, {}) : Status();
}

// The first old rank that owned elements `mine`, in whatever node; nullptr: none did.
const std::vector<NamedTensor>* owner_of(const Holding& mine, const std::string& range,
                                         std::span<const std::vector<NamedTensor>> old) {
  for (const std::vector<NamedTensor>& entries : old) {
    const Holding theirs = holding_in(entries, range);
    if (theirs.nodes > 0 && theirs.range == mine.range) return &entries;
  }
  return nullptr;
}

}  // namespace

bool is_outer_state(std::string_view name) { return name.find(kOuter) != std::string_view::npos; }

std::string_view outer_parameter(std::string_view name) {
  return name.substr(0, name.rfind(kOuter));
}

bool has_outer_owner(std::string_view name, std::span<const NamedTensor> all,
                     std::span<const std::vector<NamedTensor>> old) {
  const std::string range = range_of(name);
  return owner_of(holding_in(all, range), range, old) != nullptr;
}

Status carry_outer_state(const NamedTensor& own, std::span<const NamedTensor> all,
                         std::span<const std::vector<NamedTensor>> old, int rank, int size,
                         bool write) {
  const std::string range = range_of(own.name);
  const std::size_t cut = own.name.rfind(kOuter) + kOuter.size();
  const Carry carry = carry_of(std::string_view(own.name).substr(cut));
  const Holding mine = holding_in(all, range);
  const bool same = static_cast<int>(old.size()) == size &&
                    holding_in(old[static_cast<std::size_t>(rank)], range) == mine;
  if (same) return copy_entry(own, find(old[static_cast<std::size_t>(rank)], own.name), write);
  if (carry == Carry::kSkip) return {};
  if (carry == Carry::kCopy) {
    const bool known = std::ranges::any_of(
        old, [&](const auto& entries) { return find(entries, own.name) != nullptr; });
    if (!known) return wrong(own, "is missing on every old rank");
    const std::vector<NamedTensor>* const owner = owner_of(mine, range, old);
    return owner == nullptr ? Status() : copy_entry(own, find(*owner, own.name), write);
  }
  const bool summed = carry != Carry::kAverage;
  Join join(own, find(all, own.name + ".scale"), summed ? mine.summed() : mine.range);
  for (std::size_t r = 0; r < old.size(); ++r) {
    const Holding theirs = holding_in(old[r], range);
    if (theirs.nodes == 0) continue;
    const double factor = carry == Carry::kAverage ? 1.0 / theirs.nodes
                          : carry == Carry::kSum   ? static_cast<double>(mine.nodes) / theirs.nodes
                                                   : 1.0;
    GW_TRY(join.add(old[r], summed ? theirs.summed() : theirs.range, factor, static_cast<int>(r)));
  }
  return join.finish(write);
}

}  // namespace gradwire
