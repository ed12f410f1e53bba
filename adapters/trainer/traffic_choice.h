// What a TrafficPolicy's text chooses for a training run: of the classes of traffic that it has a
// coder for. The others travel exactly.
#pragma once

#include <optional>
#include <string_view>

#include "gradwire/aggregator.h"
#include "gradwire/status.h"

namespace gradwire {

// Rules of classes that the text names; nullopt for the others.
struct TrafficChoice {
  std::optional<TrafficRule> gradients;
  std::optional<TrafficRule> parameters;  // that sharded training gathers
  std::optional<TrafficRule> optimizer;   // momenta or updates that an optimizer sends
};

// Errors: those of TrafficPolicy::parse(); kInvalidArgument names an entry that is not `none` for a
// class without a coder (activations, their gradients, statistics), or that names an algorithm for
// another class than gradients, whose algorithm holds for all.
Result<TrafficChoice> parse_traffic(std::string_view text, bool allow_unsafe);

}  // namespace gradwire
