// State of compression that fits the replicas that made it: on others it starts anew.
//
//   NAME.coder.q, NAME.coder.p     low-rank factors (PowerSGD, ACP-SGD): the subspace that the old
//                                  replicas' gradients spanned
//   NAME.ef21.h, .mean, .average   shifts of EF21: what the others believe a replica's gradient to
//                                  be, and their average
// Everything else goes on: residuals, moving averages (NAME.ef21.v), counters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/strategy_state.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// How many parameters' state was set back.
struct RestartedState {
  int factors = 0;
  int shifts = 0;
};

// In `old`, one old replica's state under the names of `own`: shifts become 0, and factors those of
// `own`, the state of a run that begins, whatever shape they had. What gathers parameters
// ("gather/NAME...") is left alone: the others' copies of the model are made of it. Errors: of
// memory.
Result<RestartedState> restart_state(std::span<const NamedTensor> own, LoadedState& old);

// The same of entries that are already as in a run that begins.
RestartedState restarted_among(std::span<const std::string> names);

// A sentence for each kind that was set back: what, why ("4 replica(s) wrote the checkpoint and 3
// continue"), and what follows.
std::vector<std::string> restart_notices(const RestartedState& restarted, const std::string& why);

}  // namespace gradwire
