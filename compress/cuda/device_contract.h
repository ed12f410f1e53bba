// compress/contract.h for what may lie on a CUDA device.
#pragma once

#include <cstdint>
#include <string_view>

#include "gradwire/compressor.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// kUnsupported unless a CUDA device's memory and kF32; kInvalidArgument unless 0 <= rank < size.
Status check_device_placement(std::string_view method, const Compressor::Placement& where);

// check_tensor() of elements in `device`'s memory, the host's or a CUDA device's: kInvalidArgument,
// too, for elements on another CUDA device, or on the host where a device is named.
Status check_tensor_on(Device device, std::string_view what, ConstTensorView tensor,
                       std::int64_t elems, DType dtype);

}  // namespace gradwire
