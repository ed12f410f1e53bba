// From what C says about an operation to what a Communicator takes.
#pragma once

#include <cstdint>

#include "gradwire/c.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::c {

// kInvalidArgument names the function and the number.
Result<DType> dtype_of(const char* function, gw_dtype dtype);
Result<ReduceOp> reduction_of(const char* function, gw_reduction reduction);
// kInvalidArgument for a count out of range, for NULL where there are elements, and for memory that
// is not the device's. `what`: the argument.
Result<TensorView> view_of_row(const char* function, const char* what, void* data,
                               std::int64_t count, DType dtype, Device device);

// Memory that the operation needs on this rank is there, on `device`, and of the size that it says.
// Whether values fit together is the communicator's to check. The call borrows op's arrays.
Result<OpCall> call_of(const char* function, const gw_op& op, int rank, int size, Device device);

}  // namespace gradwire::c
