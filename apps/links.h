// Where the numbers come from that a job's `auto` chooses by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

enum class LinksFrom : std::uint8_t { kDefaults, kCache, kMeasurement };
std::string_view to_string(LinksFrom from);  // as GRADWIRE_LINKS spells it

// GRADWIRE_LINKS: "default", "cached" (measured where the cache has nothing) or "measured".
Result<LinksFrom> links_from_environment(LinksFrom otherwise);

// XDG_CACHE_HOME/gradwire/links, else HOME/.cache/gradwire/links; "" when neither is set.
std::string links_file();

// Collective, with equal arguments.
Status take_links(Communicator& communicator, LinksFrom from);

}  // namespace gradwire
