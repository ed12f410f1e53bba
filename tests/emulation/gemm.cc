// gemm() of the device that the host plays: the host's own, once the stream has come to it.
#include <cuda_runtime_api.h>

#include "device/cpu/cpu_ops.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/memory.h"
#include "tests/emulation/emulated_launch.h"
#include "tests/emulation/queues.h"

namespace gradwire::cuda {

Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream) {
  GW_CUDA(emulation::begin_launch(native(stream)));
  emulation::drain(native(stream));
  cpu::gemm(a, b, c, options);
  return {};
}

}  // namespace gradwire::cuda
