// Measured links, kept for the next job on this machine: XDG_CACHE_HOME/gradwire/links.json, else
// HOME/.cache/gradwire/links.json. A cache: whatever is wrong with it, it is as if it were not
// there.
#pragma once

#include <optional>
#include <string>

#include "gradwire/link_model.h"

namespace gradwire {

// transport: "ucx", "tcp", ... as of this host.
std::optional<LinkModel> cached_links(const std::string& transport);
void cache_links(const std::string& transport, const LinkModel& links);

}  // namespace gradwire
