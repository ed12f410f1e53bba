// cuBLAS computes in columns, and a row-major matrix is its transpose in columns: c = a b becomes
// c^T = b^T a^T, the operands change places and nothing is copied.
#include <cublas_v2.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"
#include "device/cuda/cublas_places.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/memory.h"
#include "device/shared_library.h"

namespace gradwire::cuda {
namespace {

// The calls that are made, under the names that the header gives them.
struct Calls {
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSgemm_v2_64) sgemm;
  decltype(&cublasDgemm_v2_64) dgemm;
  decltype(&cublasGetStatusName) name_of;
};

Result<Calls> open_calls() {
  GW_ASSIGN(const SharedLibrary library, SharedLibrary::open("cuBLAS", cublas_places()));
  Calls calls{};
  GW_ASSIGN(calls.create, library.function<decltype(Calls::create)>("cublasCreate_v2"));
  GW_ASSIGN(calls.destroy, library.function<decltype(Calls::destroy)>("cublasDestroy_v2"));
  GW_ASSIGN(calls.set_stream, library.function<decltype(Calls::set_stream)>("cublasSetStream_v2"));
  GW_ASSIGN(calls.sgemm, library.function<decltype(Calls::sgemm)>("cublasSgemm_v2_64"));
  GW_ASSIGN(calls.dgemm, library.function<decltype(Calls::dgemm)>("cublasDgemm_v2_64"));
  GW_ASSIGN(calls.name_of, library.function<decltype(Calls::name_of)>("cublasGetStatusName"));
  return calls;
}

const Result<Calls>& opened_calls() {
  static const Result<Calls> calls = open_calls();
  return calls;
}

Status status_of(const Calls& calls, cublasStatus_t error, const char* call) {
  if (error == CUBLAS_STATUS_SUCCESS) return {};
  const Code code = error == CUBLAS_STATUS_ALLOC_FAILED ? Code::kOutOfMemory : Code::kInternal;
  return {code, format("%s from %s", calls.name_of(error), call)};
}

// A handle takes long to make, belongs to one device and is used by one thread at a time: every
// thread keeps its own, one for each device.
class Handles {
 public:
  Handles() = default;
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    if (!opened_calls().has_value()) return;
    for (const auto& [ordinal, handle] : handles_) {
      static_cast<void>(opened_calls().value().destroy(handle));
    }
  }
  Result<cublasHandle_t> of(const Calls& calls, int ordinal) {
    for (const auto& [known, handle] : handles_) {
      if (known == ordinal) return handle;
    }
    cublasHandle_t handle = nullptr;
    GW_TRY(status_of(calls, calls.create(&handle), "cublasCreate"));
    handles_.emplace_back(ordinal, handle);
    return handle;
  }

 private:
  std::vector<std::pair<int, cublasHandle_t>> handles_;
};

Result<cublasHandle_t> handle_for(const Calls& calls, const ConstTensorView& tensor,
                                  const Stream& stream) {
  thread_local Handles handles;
  GW_ASSIGN(const cublasHandle_t handle, handles.of(calls, tensor.device().ordinal));
  GW_TRY(status_of(calls, calls.set_stream(handle, native(stream)), "cublasSetStream"));
  return handle;
}

template <typename T, typename Multiply>
cublasStatus_t multiply(const Multiply& call, cublasHandle_t handle, ConstTensorView a,
                        ConstTensorView b, TensorView c, const GemmOptions& options) {
  const auto transposed = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const std::int64_t rows = c.shape().dim[0];
  const std::int64_t cols = c.shape().dim[1];
  const std::int64_t inner = options.transpose_a ? a.shape().dim[0] : a.shape().dim[1];
  const T one = 1;
  const T zero = 0;
  return call(handle, transposed(options.transpose_b), transposed(options.transpose_a), cols, rows,
              inner, &one, reinterpret_cast<const T*>(b.data()), b.shape().dim[1],
              reinterpret_cast<const T*>(a.data()), a.shape().dim[1], &zero,
              reinterpret_cast<T*>(c.data()), cols);
}

}  // namespace

Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream) {
  if (c.empty()) return {};
  if (a.empty()) return cuda::fill_neutral(ReduceOp::kSum, c, stream);  // sums of nothing
  if (!opened_calls().has_value()) return opened_calls().error();
  const Calls& calls = opened_calls().value();
  GW_ASSIGN(const cublasHandle_t handle, handle_for(calls, c, stream));
  const cublasStatus_t done = c.dtype() == DType::kF64
                                  ? multiply<double>(calls.dgemm, handle, a, b, c, options)
                                  : multiply<float>(calls.sgemm, handle, a, b, c, options);
  return status_of(calls, done, "cublasGemm");
}

}  // namespace gradwire::cuda
