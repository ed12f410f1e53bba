#include "adapters/trainer/own_momentum.h"

#include "aggregate/plan/keys.h"
#include "gradwire/registry.h"

namespace gradwire {

std::string keeps_momentum(const std::string& compressor) {
  const Registry registry = Registry::builtin();
  const auto rules = parse_spec_rules(compressor);
  if (!rules.has_value()) return "";
  for (const SpecRule& rule : rules.value()) {
    const auto split = split_spec(rule.spec);
    if (!split.has_value()) continue;
    const auto made = registry.make(split.value().method);
    if (made.has_value() && made.value()->traits().own_feedback) return rule.spec.front().name;
  }
  return "";
}

bool is_momentum(std::string_view tensor) {
  if (tensor.find("/mode/") != tensor.npos && tensor.ends_with("/direction")) return true;
  const bool of_optimizer =
      tensor.starts_with("optimizer/") || tensor.find("/mode/optimizer/") != tensor.npos;
  return of_optimizer && tensor.ends_with(".momentum");
}

}  // namespace gradwire
