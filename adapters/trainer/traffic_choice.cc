#include "adapters/trainer/traffic_choice.h"

#include <array>
#include <string>

#include "aggregate/traffic.h"
#include "gradwire/registry.h"

namespace gradwire {
namespace {

constexpr std::array kWithoutCoder{TrafficClass::kActivations, TrafficClass::kActivationGradients,
                                   TrafficClass::kStatistics};

Status not_served(TrafficClass traffic, const std::string& seen, const std::string& wanted) {
  return {Code::kInvalidArgument, "traffic policy: " + std::string(to_string(traffic)) +
                                      ": not supported yet (got " + seen + ", expected " + wanted +
                                      ")"};
}

}  // namespace

Result<TrafficChoice> parse_traffic(std::string_view text, bool allow_unsafe) {
  GW_ASSIGN(const TrafficPolicy policy,
            TrafficPolicy::parse(Registry::builtin(), text, allow_unsafe));
  for (const TrafficClass traffic : kWithoutCoder) {
    const TrafficRule& rule = policy.of(traffic);
    if (rule.compressor != "none") return not_served(traffic, rule.compressor, "none");
  }
  for (std::size_t i = 0; i < kTrafficClasses; ++i) {
    const auto traffic = static_cast<TrafficClass>(i);
    const std::string& algorithm = policy.of(traffic).algorithm;
    if (traffic == TrafficClass::kGradients || algorithm == "auto") continue;
    return not_served(traffic, "algorithm " + algorithm, "none, or gradients/" + algorithm);
  }
  TrafficChoice choice;
  const auto take = [&](TrafficClass traffic, std::optional<TrafficRule>& place) {
    if (names_class(text, traffic)) place = policy.of(traffic);
  };
  take(TrafficClass::kGradients, choice.gradients);
  take(TrafficClass::kParameters, choice.parameters);
  take(TrafficClass::kOptimizer, choice.optimizer);
  return choice;
}

}  // namespace gradwire
