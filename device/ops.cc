#include "device/ops.h"

#include <cstring>

#include "base/text.h"
#include "device/cpu/cpu_ops.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/have_cuda.h"
#include "device/cuda/memory_calls.h"

namespace gradwire {
namespace {

bool on_cuda(Device device) { return device.space == MemorySpace::kCuda; }

Status no_cuda() { return {Code::kUnsupported, "this build computes on host memory only"}; }

// Whether this build computes on the device; call() there, or else on the host.
template <typename OnCuda, typename OnHost>
Status dispatch(Device device, const OnCuda& on_device, const OnHost& on_host) {
  if (!on_cuda(device)) {
    on_host();
    return {};
  }
  if constexpr (kHaveCuda) {
    const cuda::OnDevice here(device);
    GW_TRY(here.status());
    return on_device();
  }
  return no_cuda();
}

Status check_place(const char* what, Device a, Device b) {
  if (on_cuda(a) == on_cuda(b) && (!on_cuda(a) || a.ordinal == b.ordinal)) return {};
  return {Code::kInvalidArgument, std::string(what) + ": tensors lie on different devices"};
}

Status check_pair(const char* what, ConstTensorView a, ConstTensorView b) {
  GW_TRY(check_place(what, a.device(), b.device()));
  if (a.elems() != b.elems()) {
    return {Code::kInvalidArgument,
            format("%s: %lld elements against %lld", what, static_cast<long long>(a.elems()),
                   static_cast<long long>(b.elems()))};
  }
  return {};
}

}  // namespace

Status copy_bytes(ConstByteSpan src, Device src_device, ByteSpan dst, Device dst_device,
                  const Stream& stream) {
  if (src.size() != dst.size()) {
    return {Code::kInvalidArgument, format("copy: %zu bytes into %zu", src.size(), dst.size())};
  }
  if (src.empty()) return {};
  const auto on_device = [&] {
    return cuda::copy(src.data(), src_device, dst.data(), dst_device, src.size(), stream);
  };
  const auto on_host = [&] { std::memcpy(dst.data(), src.data(), src.size()); };
  return dispatch(on_cuda(dst_device) ? dst_device : src_device, on_device, on_host);
}

Status reduce(ReduceOp op, ConstTensorView src, TensorView acc, const Stream& stream) {
  GW_TRY(check_pair("reduce", src, acc));
  if (src.dtype() != acc.dtype()) return {Code::kInvalidArgument, "reduce: dtypes differ"};
  if (op == ReduceOp::kMean || op == ReduceOp::kPreMulSum) {
    return {Code::kInvalidArgument, "reduce: " + std::string(to_string(op)) +
                                        " (expected a sum, then scale() or scaled_copy())"};
  }
  return dispatch(
      acc.device(), [&] { return cuda::reduce(op, src, acc, stream); },
      [&] { cpu::reduce(op, src, acc); });
}

Status scale(TensorView tensor, double factor, const Stream& stream) {
  if (!is_floating(tensor.dtype())) return {Code::kInvalidArgument, "scale: floating types only"};
  return scaled_copy(tensor, factor, tensor, stream);
}

Status scaled_copy(ConstTensorView src, double factor, TensorView dst, const Stream& stream) {
  GW_TRY(check_pair("scaled_copy", src, dst));
  if (src.dtype() != dst.dtype()) return {Code::kInvalidArgument, "scaled_copy: dtypes differ"};
  if (!is_floating(src.dtype())) {
    return {Code::kInvalidArgument, "scaled_copy: floating types only"};
  }
  return dispatch(
      dst.device(), [&] { return cuda::scaled_copy(src, factor, dst, stream); },
      [&] { cpu::scaled_copy(src, factor, dst); });
}

Status fill_neutral(ReduceOp op, TensorView tensor, const Stream& stream) {
  return dispatch(
      tensor.device(), [&] { return cuda::fill_neutral(op, tensor, stream); },
      [&] { cpu::fill_neutral(op, tensor); });
}

Status cast(ConstTensorView src, TensorView dst, const Stream& stream) {
  GW_TRY(check_pair("cast", src, dst));
  if (!is_floating(src.dtype()) || !is_floating(dst.dtype())) {
    return {Code::kInvalidArgument, "cast: floating types only"};
  }
  return dispatch(
      dst.device(), [&] { return cuda::cast(src, dst, stream); }, [&] { cpu::cast(src, dst); });
}

Status saturating_cast(ConstTensorView src, double factor, TensorView dst, const Stream& stream) {
  GW_TRY(check_pair("saturating_cast", src, dst));
  const bool narrow = dst.dtype() == DType::kF16 || dst.dtype() == DType::kBF16;
  if (src.dtype() != DType::kF32 || !narrow) {
    return {Code::kInvalidArgument, "saturating_cast: from f32 to f16 or bf16 only"};
  }
  return dispatch(
      dst.device(), [&] { return cuda::saturating_cast(src, factor, dst, stream); },
      [&] { cpu::saturating_cast(src, factor, dst); });
}

Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream& stream) {
  GW_TRY(check_place("gemm", a.device(), b.device()));
  GW_TRY(check_place("gemm", b.device(), c.device()));
  const auto rows = [](const Shape& s, bool t) { return t ? s.dim[1] : s.dim[0]; };
  const auto cols = [](const Shape& s, bool t) { return t ? s.dim[0] : s.dim[1]; };
  const bool types = a.dtype() == b.dtype() && b.dtype() == c.dtype() &&
                     (a.dtype() == DType::kF32 || a.dtype() == DType::kF64);
  const bool shapes =
      a.shape().rank == 2 && b.shape().rank == 2 && c.shape().rank == 2 &&
      cols(a.shape(), options.transpose_a) == rows(b.shape(), options.transpose_b) &&
      rows(a.shape(), options.transpose_a) == c.shape().dim[0] &&
      cols(b.shape(), options.transpose_b) == c.shape().dim[1];
  if (!types || !shapes) {
    return {Code::kInvalidArgument,
            "gemm: " + to_string(a.shape()) + (options.transpose_a ? "^T" : "") + " x " +
                to_string(b.shape()) + (options.transpose_b ? "^T" : "") + " -> " +
                to_string(c.shape()) + " does not fit, or types differ"};
  }
  return dispatch(
      c.device(), [&] { return cuda::gemm(a, b, c, options, stream); },
      [&] { cpu::gemm(a, b, c, options); });
}

}  // namespace gradwire
