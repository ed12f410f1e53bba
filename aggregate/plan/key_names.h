// Earlier names of the aggregator's spec keys, which are still read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

struct OldKey {
  std::string_view old_name;
  std::string_view name;
};

// Gives the first stage's keys their present names and returns those that had an old one.
// kInvalidArgument if a key is given under both names.
Result<std::vector<OldKey>> rename_old_keys(SpecChain& chain);

// A spec, or rules, with present key names. A text without old names, or that does not parse, comes
// back as it is.
std::string with_present_keys(const std::string& text);

// "key 'inner' is now 'intra_node'; ...": the notice for a user who wrote an old name.
std::string notice_of(const OldKey& key);

}  // namespace gradwire
