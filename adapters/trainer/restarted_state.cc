#include "adapters/trainer/restarted_state.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>

#include "base/text.h"

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

// Old factors become those of a run that begins. Where this replica has none of them, as between
// nodes, whose owners are others now, nobody looks at the old ones here.
Status begin_factors(std::span<const NamedTensor> own, const NamedTensor& entry) {
  const auto fresh = std::ranges::find(own, entry.name, &NamedTensor::name);
  if (fresh == own.end()) return {};
  const bool alike = fresh->tensor.elems() == entry.tensor.elems() &&
                     fresh->tensor.dtype() == entry.tensor.dtype();
  if (!alike) {
    return {Code::kInvalidArgument,
            format("state '%s': %lld elements of %s (expected %lld of %s)", entry.name.c_str(),
                   static_cast<long long>(entry.tensor.elems()),
                   std::string(to_string(entry.tensor.dtype())).c_str(),
                   static_cast<long long>(fresh->tensor.elems()),
                   std::string(to_string(fresh->tensor.dtype())).c_str())};
  }
  std::ranges::copy(fresh->tensor.bytes(), entry.tensor.bytes().begin());
  return {};
}

std::string anew_notice(const char* what, int parameters, int old_replicas, int replicas,
                        const char* follows) {
  return format(
      "%s of %d tensor(s) start anew, since %d replica(s) wrote the checkpoint and %d continue: "
      "%s",
      what, parameters, old_replicas, replicas, follows);
}

}  // namespace

Result<RestartedState> restart_state(std::span<const NamedTensor> own,
                                     std::span<const NamedTensor> old) {
  std::set<std::string_view> factors;
  std::set<std::string_view> shifts;
  for (const NamedTensor& entry : old) {
    if (entry.name.starts_with(kGatherNames)) continue;
    if (const std::string_view factored = parameter_of(entry.name, kFactorTails);
        !factored.empty()) {
      GW_TRY(begin_factors(own, entry));
      factors.insert(factored);
    } else if (const std::string_view shifted = parameter_of(entry.name, kShiftTails);
               !shifted.empty()) {
      std::ranges::fill(entry.tensor.bytes(), std::byte{0});
      shifts.insert(shifted);
    }
  }
  return RestartedState{static_cast<int>(factors.size()), static_cast<int>(shifts.size())};
}

std::vector<std::string> restart_notices(const RestartedState& restarted, int old_replicas,
                                         int replicas) {
  std::vector<std::string> notices;
  if (restarted.factors > 0) {
    notices.push_back(
        anew_notice("low-rank factors", restarted.factors, old_replicas, replicas,
                    "the first steps approximate gradients less well; residuals are kept"));
  }
  if (restarted.shifts > 0) {
    notices.push_back(anew_notice("shifts of EF21", restarted.shifts, old_replicas, replicas,
                                  "the first averages lack what the compressor leaves out"));
  }
  return notices;
}

}  // namespace gradwire
