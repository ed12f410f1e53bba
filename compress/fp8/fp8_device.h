// fp8 on a CUDA device: payload and values are the host's bits.
#pragma once

#include <memory>

#include "compress/fp8/fp8_kernels.h"
#include "gradwire/compressor.h"

namespace gradwire::cuda {

// As make_qsgd_format() (compress/qsgd/qsgd_device.h).
Result<std::unique_ptr<WireFormat>> make_fp8_format(const Fp8Kernel& kernel,
                                                    const Compressor::Placement& where);

}  // namespace gradwire::cuda
