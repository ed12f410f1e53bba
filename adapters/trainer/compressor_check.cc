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

std::string with_present_names(const std::string& compressor) {
  return with_present_keys(compressor);
}

}  // namespace gradwire
