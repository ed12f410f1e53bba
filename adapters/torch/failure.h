// gradwire's outcomes as PyTorch's exceptions.
#pragma once

#include <exception>
#include <string>

#include "gradwire/c.h"

namespace gradwire::torch_backend {

// torch.distributed.DistBackendError with this text.
std::exception_ptr failure_of(const std::string& text);
[[noreturn]] void raise(const std::string& text);
// Nothing for GW_OK. Else raises: bad arguments as ValueError, the rest as DistBackendError, with
// `what` and the calling thread's gw_last_error().
void check(gw_status status, const char* what);

}  // namespace gradwire::torch_backend
