#include "adapters/trainer/compressor_check.h"

#include <algorithm>
#include <vector>

#include "aggregate/plan/key_names.h"
#include "aggregate/plan/keys.h"
#include "gradwire/registry.h"

namespace gradwire {

Status check_compressor(const std::string& compressor) {
  const Registry registry = Registry::builtin();
  GW_ASSIGN(const std::vector<SpecRule> rules, parse_spec_rules(compressor));
  for (const SpecRule& rule : rules) {
    GW_ASSIGN(const SplitSpec split, split_spec(rule.spec));
    GW_TRY(registry.make(split.method).error());
  }
  return {};
}

Status check_no_feedback(const std::string& compressor) {
  const Registry registry = Registry::builtin();
  GW_ASSIGN(const std::vector<SpecRule> rules, parse_spec_rules(compressor));
  for (const SpecRule& rule : rules) {
    GW_ASSIGN(const SplitSpec split, split_spec(rule.spec));
    GW_ASSIGN(const auto method, registry.make(split.method));
    if (split.keys.error_feedback || method->traits().own_feedback) {
      return {Code::kInvalidArgument,
              "micro-batches exchanged one by one (reduce-each) as '" + to_string(rule.spec) +
                  "' (expected a compressor without error feedback, or sum-then-reduce)"};
    }
    if (!split.keys.inner.empty()) GW_TRY(check_no_feedback(split.keys.inner));
  }
  return {};
}

namespace {

// What is no longer finite arrives as that.
bool holds_infinity(const Spec& stage) { return stage.name == "none" || stage.name == "cast"; }

}  // namespace

bool carries_scale(const std::string& compressor) {
  const auto rules = parse_spec_rules(compressor);
  if (!rules.has_value()) return true;
  return std::ranges::all_of(rules.value(), [](const SpecRule& rule) {
    const auto split = split_spec(rule.spec);
    if (!split.has_value()) return true;
    const SplitSpec& own = split.value();
    const bool plain = std::ranges::all_of(own.method, holds_infinity);
    return plain && !own.keys.error_feedback &&
           (own.keys.inner.empty() || carries_scale(own.keys.inner));
  });
}

std::string with_present_names(const std::string& compressor) {
  return with_present_keys(compressor);
}

}  // namespace gradwire
