// GW_BIT_AND, GW_BIT_OR and GW_BIT_XOR, which no schedule folds: every rank gets the rows that it
// needs of all others, and folds them itself. Size times the bytes of a sum; they are for flags.
#pragma once

#include <functional>
#include <utility>

#include "gradwire/c.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire::c {

bool is_bitwise(gw_reduction reduction);

struct BitwiseOperation {
  Work exchange;
  std::function<void()> fold;  // after its end, if that was well; owns the rows
};
// kInvalidArgument for floating types and for kinds that reduce nothing; kUnsupported for tensors
// on a device.
Result<BitwiseOperation> start_bitwise(const char* function, Communicator& communicator,
                                       const gw_op& op, const OpOptions& options);

}  // namespace gradwire::c
