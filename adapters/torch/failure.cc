#include "adapters/torch/failure.h"

#include <c10/util/Exception.h>

namespace gradwire::torch_backend {

void raise(const std::string& text) { C10_THROW_ERROR(DistBackendError, text); }

std::exception_ptr failure_of(const std::string& text) {
  try {
    raise(text);
  } catch (...) {
    return std::current_exception();
  }
}

void check(gw_status status, const char* what) {
  if (status == GW_OK) return;
  const std::string text = std::string("gradwire: ") + what + ": " + gw_last_error();
  if (status == GW_INVALID_ARGUMENT) C10_THROW_ERROR(ValueError, text);
  raise(text);
}

}  // namespace gradwire::torch_backend
