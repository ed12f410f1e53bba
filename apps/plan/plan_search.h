// `gradwire plan search`: the literature's searchers, on one graph, one cluster and one cost.
#pragma once

#include <string>
#include <vector>

#include "gradwire/status.h"

namespace gradwire {

// args: what stands after `plan search`.
Result<int> plan_search_command(const std::vector<std::string>& args);

}  // namespace gradwire
