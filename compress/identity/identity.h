// none: the gradient as it is. The reference against which every method is measured, on the same
// path.
//
//   payload := element{m}       element: fp32 or fp64 (the gradient's own type), little-endian
//
// Every value travels bit for bit, NaN and infinity too. Payloads may be summed in the network.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method identity_method();

}  // namespace gradwire
