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

std::string way_out(gw_status status, bool blocking) {
  if (blocking || status != GW_RANK_MISMATCH) return "";
  return "; operations chained to others need gradwire.torch.Options(blocking=True) or "
         "GRADWIRE_BLOCKING=1";
}

void check(gw_status status, const char* what) { check_start(status, what, true); }

void check_start(gw_status status, const char* what, bool blocking) {
  if (status == GW_OK) return;
  const std::string text =
      std::string("gradwire: ") + what + ": " + gw_last_error() + way_out(status, blocking);
  if (status == GW_INVALID_ARGUMENT) C10_THROW_ERROR(ValueError, text);
  raise(text);
}

}  // namespace gradwire::torch_backend
