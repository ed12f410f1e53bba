#include "adapters/trainer/restarted_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

constexpr std::string_view kGatherNames = "gather/";
constexpr std::string_view kFactorTails[] = {".coder.q", ".coder.p"};
constexpr std::string_view kShiftTails[] = {".ef21.h", ".ef21.mean", ".ef21.average"};

// The parameter of an entry that ends with one of `tails`; "" for others.
std::string_view parameter_of(std::string_view name, std::span<const std::string_view> tails) {
  for (const std::string_view tail : tails) {
    if (name.ends_with(tail)) return name.substr(0, name.size() - tail.size());
  }
  return {};
}

// Old factors become those of a run that begins. Where this rank has none of them, as between
// nodes, whose owners are others now, nobody looks at the old ones here.
Status begin_factors(std::span<const NamedTensor> own, NamedTensor& entry, LoadedState& old) {
  const auto fresh = std::ranges::find(own, entry.name, &NamedTensor::name);
  if (fresh == own.end()) return {};
  const std::span<const std::byte> bytes = fresh->tensor.bytes();
  if (bytes.size() != entry.tensor.bytes().size()) {  // an owner's range is another, too
    GW_ASSIGN(Buffer memory, Buffer::allocate(bytes.size()));
    entry.tensor = memory.tensor(fresh->tensor.shape(), fresh->tensor.dtype());
    old.memory.push_back(std::move(memory));
  }
  std::ranges::copy(bytes, entry.tensor.bytes().begin());
  return {};
}

std::string anew_notice(const char* what, int parameters, const std::string& why,
                        const char* follows) {
  return format("%s of %d tensor(s) start anew, since %s: %s", what, parameters, why.c_str(),
                follows);
}

// The parameters whose factors, or shifts, entries are about.
struct Restarted {
  std::set<std::string_view> factors;
  std::set<std::string_view> shifts;
  RestartedState counted() const {
    return {static_cast<int>(factors.size()), static_cast<int>(shifts.size())};
  }
};

enum class EntryKind : std::uint8_t { kFactor, kShift, kOther };

EntryKind add_entry(std::string_view name, Restarted& restarted) {
  if (name.starts_with(kGatherNames)) return EntryKind::kOther;
  if (const std::string_view factored = parameter_of(name, kFactorTails); !factored.empty()) {
    restarted.factors.insert(factored);
    return EntryKind::kFactor;
  }
  const std::string_view shifted = parameter_of(name, kShiftTails);
  if (shifted.empty()) return EntryKind::kOther;
  restarted.shifts.insert(shifted);
  return EntryKind::kShift;
}

}  // namespace

Result<RestartedState> restart_state(std::span<const NamedTensor> own, LoadedState& old) {
  Restarted restarted;
  for (NamedTensor& entry : old.tensors) {
    switch (add_entry(entry.name, restarted)) {
      case EntryKind::kFactor: GW_TRY(begin_factors(own, entry, old)); break;
      case EntryKind::kShift: std::ranges::fill(entry.tensor.bytes(), std::byte{0}); break;
      case EntryKind::kOther: break;
    }
  }
  return restarted.counted();
}

RestartedState restarted_among(std::span<const std::string> names) {
  Restarted restarted;
  for (const std::string& name : names) add_entry(name, restarted);
  return restarted.counted();
}

std::vector<std::string> restart_notices(const RestartedState& restarted, const std::string& why) {
  std::vector<std::string> notices;
  if (restarted.factors > 0) {
    notices.push_back(
        anew_notice("low-rank factors", restarted.factors, why,
                    "the first steps approximate gradients less well; residuals are kept"));
  }
  if (restarted.shifts > 0) {
    notices.push_back(anew_notice("shifts of EF21", restarted.shifts, why,
                                  "the first averages lack what the compressor leaves out"));
  }
  return notices;
}

}  // namespace gradwire
