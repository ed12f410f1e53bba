#include "aggregate/plan/key_names.h"

#include <algorithm>

namespace gradwire {
namespace {

constexpr OldKey kOldKeys[] = {{"inner", "intra_node"}, {"between", "inter_node"}};

}  // namespace

Result<std::vector<OldKey>> rename_old_keys(SpecChain& chain) {
  std::vector<OldKey> met;
  auto& params = chain.front().params;
  for (const OldKey& old : kOldKeys) {
    const auto find = [&params](std::string_view name) {
      return std::ranges::find(params, name, [](const auto& param) { return param.first; });
    };
    const auto given = find(old.old_name);
    if (given == params.end()) continue;
    if (find(old.name) != params.end()) {
      return Status(Code::kInvalidArgument, "compressor '" + chain.front().name + "': key '" +
                                                std::string(old.name) +
                                                "' is given twice, once under its old name '" +
                                                std::string(old.old_name) + "'; leave one out");
    }
    given->first = old.name;
    met.push_back(old);
  }
  return met;
}

std::string with_present_keys(const std::string& text) {
  auto rules = parse_spec_rules(text);
  if (!rules.has_value()) return text;
  bool changed = false;
  std::string renamed;
  for (SpecRule& rule : rules.value()) {
    const auto met = rename_old_keys(rule.spec);
    if (!met.has_value()) return text;
    changed = changed || !met.value().empty();
    const bool alone = rule.glob == "*" && rule.sizes == SizeRange() && rules.value().size() == 1;
    renamed += (renamed.empty() ? "" : ";") + (alone ? to_string(rule.spec) : to_string(rule));
  }
  return changed ? renamed : text;
}

std::string notice_of(const OldKey& key) {
  return "compressor key '" + std::string(key.old_name) + "' is now called '" +
         std::string(key.name) + "'; the old name still works";
}

}  // namespace gradwire
