#include "adapters/trainer/compressor_check.h"

#include <vector>

#include "aggregate/key_names.h"
#include "aggregate/keys.h"
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

std::string with_present_names(const std::string& compressor) {
  return with_present_keys(compressor);
}

}  // namespace gradwire
