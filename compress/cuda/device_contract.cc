#include "compress/cuda/device_contract.h"

#include <string>

#include "base/text.h"
#include "compress/contract.h"

namespace gradwire {

Status check_device_placement(std::string_view method, const Compressor::Placement& where) {
  if (where.device.space != MemorySpace::kCuda || where.dtype != DType::kF32) {
    return {Code::kUnsupported, std::string(method) + ": elements of " +
                                    std::string(to_string(where.dtype)) +
                                    " on a CUDA device (expected f32 there)"};
  }
  Compressor::Placement ranks = where;
  ranks.device = {};
  return check_placement(method, ranks);
}

Status check_tensor_on(Device device, std::string_view what, ConstTensorView tensor,
                       std::int64_t elems, DType dtype) {
  if (device.space != MemorySpace::kCuda) return check_tensor(what, tensor, elems, dtype);
  if (!tensor.empty() && tensor.device() != device) {
    return {Code::kInvalidArgument,
            std::string(what) + format(": expected memory of CUDA device %d", device.ordinal)};
  }
  return check_tensor(what, {tensor.data(), tensor.shape(), tensor.dtype()}, elems, dtype);
}

}  // namespace gradwire
