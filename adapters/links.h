// Where the numbers come from that a job's `auto` chooses by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/communicator.h"
#include "gradwire/config.h"
#include "gradwire/status.h"

namespace gradwire {

enum class LinksFrom : std::uint8_t { kDefaults, kCache, kMeasurement };
std::string_view to_string(LinksFrom from);  // as GRADWIRE_LINKS spells it

// GRADWIRE_LINKS: "default", "cached" (measured where the cache has nothing) or "measured".
Result<LinksFrom> links_from_environment(const EnvLookup& env, LinksFrom otherwise);

// XDG_CACHE_HOME/gradwire/links, else HOME/.cache/gradwire/links; "" when neither is set.
std::string links_file(const EnvLookup& env);

// `file` is rank 0's. Collective, with equal `from`.
Status take_links(Communicator& communicator, LinksFrom from, const std::string& file);

}  // namespace gradwire
