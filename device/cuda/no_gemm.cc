// gemm() of a build that found no cuBLAS.
#include "device/cuda/cuda_ops.h"

namespace gradwire::cuda {

Status gemm(ConstTensorView, ConstTensorView, TensorView, const GemmOptions&, const Stream&) {
  return {Code::kUnsupported,
          "gemm: this build found no cuBLAS header (expected cublas_v2.h in the CUDA prefix, on "
          "the system, or from the Python wheel nvidia-cublas)"};
}

}  // namespace gradwire::cuda
