#include "adapters/trainer/restarted_state.h"

#include <set>
#include <string_view>

#include "aggregate/state/reshard_outer.h"
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

std::string anew_notice(const char* what, int parameters, const char* follows) {
  return format(
      "%s of %d tensor(s) start anew, since the tensors were divided otherwise among the ranks "
      "when the checkpoint was written: %s",
      what, parameters, follows);
}

}  // namespace

RestartedState restarted_among(std::span<const std::string> names) {
  std::set<std::string_view> factors;
  std::set<std::string_view> shifts;
  for (const std::string_view name : names) {
    if (name.starts_with(kGatherNames)) continue;
    factors.insert(parameter_of(name, kFactorTails));
    shifts.insert(parameter_of(name, kShiftTails));
  }
  factors.erase(std::string_view());
  shifts.erase(std::string_view());
  return {static_cast<int>(factors.size()), static_cast<int>(shifts.size())};
}

std::vector<std::string> factors_of_new_ranges(
    std::span<const NamedTensor> own, std::span<const std::vector<NamedTensor>> by_old_rank) {
  std::vector<std::string> names;
  for (const NamedTensor& entry : own) {
    if (!is_outer_state(entry.name) || parameter_of(entry.name, kFactorTails).empty()) continue;
    if (!has_outer_owner(entry.name, own, by_old_rank)) names.push_back(entry.name);
  }
  return names;
}

std::vector<std::string> restart_notices(const RestartedState& restarted) {
  std::vector<std::string> notices;
  if (restarted.factors > 0) {
    notices.push_back(
        anew_notice("low-rank factors", restarted.factors,
                    "the first steps approximate gradients less well; residuals are kept"));
  }
  if (restarted.shifts > 0) {
    notices.push_back(anew_notice("shifts of EF21", restarted.shifts,
                                  "the first averages lack what the compressor leaves out"));
  }
  return notices;
}

}  // namespace gradwire
