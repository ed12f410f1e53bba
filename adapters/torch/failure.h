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
// The same for the start of an operation, with what way_out() says.
void check_start(gw_status status, const char* what, bool blocking);
// What to add to the error of an operation; empty but for ranks that disagree where operations are
// not blocking. An operation that a callback issues on the caller's thread, because what it is
// chained to had ended, looks like any other; where ranks differ in that, they differ in their next
// operation.
std::string way_out(gw_status status, bool blocking);

}  // namespace gradwire::torch_backend
