// What may be done to a class of traffic on its way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aggregate/plan/keys.h"
#include "gradwire/aggregator.h"
#include "gradwire/compressor.h"
#include "gradwire/status.h"

namespace gradwire {

// A rule for tensors of a class: the method and the aggregator's keys.
struct TrafficCase {
  std::string text;  // of the rule, for messages
  const AggregatorKeys& keys;
  const Compressor& compressor;
};

// kInvalidArgument says why the class cannot take it and what to write instead; with allow_unsafe a
// warning says it, but for statistics.
//
//   class                  refuses
//   gradients              nothing
//   parameters             what decodes to something else than the parameters: votes, values left
//                          out, biased or very noisy methods, unless ef21 sends differences alone;
//                          methods with a residual or momentum of their own; ef_rescale_lr
//   activations            error feedback and whatever else is kept from step to step, since the
//   activation_gradients   next step has other samples; votes and signs without scale
//   optimizer              votes and methods with a momentum or residual of their own;
//   ef_rescale_lr statistics             whatever is not exact
Status check_traffic(TrafficClass traffic, const TrafficCase& one, bool allow_unsafe,
                     std::vector<std::string>& warnings);

// Whether a TrafficPolicy's text, which parses, has an entry of that class.
bool names_class(std::string_view text, TrafficClass traffic);

}  // namespace gradwire
