// State of compression that fits the elements that a rank held when it was made: of others it
// starts anew.
//
//   NAME.coder.q, NAME.coder.p     low-rank factors (PowerSGD, ACP-SGD), of a matrix's rows and
//                                  columns
//   NAME.ef21.h, .mean, .average   shifts of EF21: what the others believe a replica's gradient to
//                                  be, and their average
// Where boxes of the parameter are others than the old ones, both start anew; on other replicas
// with the same boxes both are carried over (aggregate/state/reshard.h). Between nodes, where an
// owner has a range of the parameter, factors fit the range, and shifts follow their elements.
// Everything else goes on: residuals, moving averages (NAME.ef21.v), counters.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire {

// How many parameters' state was set back.
struct RestartedState {
  int factors = 0;
  int shifts = 0;
};

// Of entries that are as in a run that begins. What gathers parameters ("gather/NAME...") does not
// count: the others' copies of the model are made of it.
RestartedState restarted_among(std::span<const std::string> names);

// Factors between nodes, of `own`, this rank's state, that start anew: none of the old ranks owned
// the range that this one owns.
std::vector<std::string> factors_of_new_ranges(
    std::span<const NamedTensor> own, std::span<const std::vector<NamedTensor>> by_old_rank);

// A sentence for each kind that was set back: what, why, and what follows.
std::vector<std::string> restart_notices(const RestartedState& restarted);

}  // namespace gradwire
