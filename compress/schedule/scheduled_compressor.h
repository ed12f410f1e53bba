// A method one of whose keys follows the step.
#pragma once

#include <functional>
#include <memory>

#include "gradwire/compressor.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

// Some value in it is a schedule (compress/schedule/schedule.h).
bool is_scheduled(const SpecChain& chain);

// The method that `chain` names, keys resolved, as `make` makes it for each of the schedule's
// values. Step t is coded as with the value that the schedule has at step t; what a coder keeps
// between steps goes on from value to value, so that the step alone decides and nothing is added to
// state(). Claims are those that hold at every step; the largest payload is that of the largest
// value, and lengths are no longer fixed. Elementwise methods keep their slices, whose lengths
// follow the step (WireFormat::turn_to), and so sra.
// kInvalidArgument: more than one schedule, a malformed one, or values between which the method
// would travel in another way.
// open() answers kInvalidArgument when what is kept between steps has another shape for another
// value.
Result<std::unique_ptr<Compressor>> make_scheduled(
    const SpecChain& chain,
    const std::function<Result<std::unique_ptr<Compressor>>(const SpecChain&)>& make);

}  // namespace gradwire
