// Where C's callers say that tensors are.
#pragma once

#include <string>

#include "gradwire/c.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire::c {

// kInvalidArgument names the field, what it is and what was expected: an unknown space, a device
// that does not exist, a stream of the host. kUnsupported in a build without CUDA.
Result<Device> device_of(const char* function, gw_space space, int ordinal);
Result<Stream> stream_of(const char* function, const gw_stream& given);

// The memory at `data` is that of `device`, if that is no host: kInvalidArgument names `what` and
// both places. (Memory of the host is not asked for: that would cost every call a driver's.)
Status check_memory(const char* function, const char* what, const void* data, Device device);

// "host memory", "memory of CUDA device 1".
std::string text_of_memory(Device device);

}  // namespace gradwire::c
