#include "comm/ucx/ucx_transport.h"

namespace gradwire::ucx {

Status load() { return {}; }

}  // namespace gradwire::ucx
