#include "device/ops.h"

#include <cstring>

#include "base/text.h"
#include "device/cpu/cpu_ops.h"

namespace gradwire {
namespace {

bool on_host(Device device) { return device.space == MemorySpace::kHost; }
Status no_device() { return {Code::kUnsupported, "this build computes on host memory only"}; }

Status check_pair(const char* what, ConstTensorView a, ConstTensorView b) {
  if (!on_host(a.device()) || !on_host(b.device())) return no_device();
  if (a.elems() != b.elems()) {
    return {Code::kInvalidArgument,
            format("%s: %lld elements against %lld", what, static_cast<long long>(a.elems()),
                   static_cast<long long>(b.elems()))};
  }
  return {};
}

}  // namespace

Status copy_bytes(ConstByteSpan src, Device src_device, ByteSpan dst, Device dst_device,
                  const Stream&) {
  if (!on_host(src_device) || !on_host(dst_device)) return no_device();
  if (src.size() != dst.size()) {
    return {Code::kInvalidArgument, format("copy: %zu bytes into %zu", src.size(), dst.size())};
  }
  if (!src.empty()) std::memcpy(dst.data(), src.data(), src.size());
  return {};
}

Status reduce(ReduceOp op, ConstTensorView src, TensorView acc, const Stream&) {
  GW_TRY(check_pair("reduce", src, acc));
  if (src.dtype() != acc.dtype()) return {Code::kInvalidArgument, "reduce: dtypes differ"};
  if (op == ReduceOp::kMean || op == ReduceOp::kPreMulSum) {
    return {Code::kInvalidArgument, "reduce: " + std::string(to_string(op)) +
                                        " (a sum and scale() or scaled_copy() wanted)"};
  }
  cpu::reduce(op, src, acc);
  return {};
}

Status scale(TensorView tensor, double factor, const Stream&) {
  if (!on_host(tensor.device())) return no_device();
  if (!is_floating(tensor.dtype())) return {Code::kInvalidArgument, "scale: floating types only"};
  cpu::scaled_copy(tensor, factor, tensor);
  return {};
}

Status scaled_copy(ConstTensorView src, double factor, TensorView dst, const Stream&) {
  GW_TRY(check_pair("scaled_copy", src, dst));
  if (src.dtype() != dst.dtype()) return {Code::kInvalidArgument, "scaled_copy: dtypes differ"};
  if (!is_floating(src.dtype())) {
    return {Code::kInvalidArgument, "scaled_copy: floating types only"};
  }
  cpu::scaled_copy(src, factor, dst);
  return {};
}

Status fill_neutral(ReduceOp op, TensorView tensor, const Stream&) {
  if (!on_host(tensor.device())) return no_device();
  cpu::fill_neutral(op, tensor);
  return {};
}

Status cast(ConstTensorView src, TensorView dst, const Stream&) {
  GW_TRY(check_pair("cast", src, dst));
  if (!is_floating(src.dtype()) || !is_floating(dst.dtype())) {
    return {Code::kInvalidArgument, "cast: floating types only"};
  }
  cpu::cast(src, dst);
  return {};
}

Status gemm(ConstTensorView a, ConstTensorView b, TensorView c, const GemmOptions& options,
            const Stream&) {
  if (!on_host(a.device()) || !on_host(b.device()) || !on_host(c.device())) return no_device();
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
  cpu::gemm(a, b, c, options);
  return {};
}

}  // namespace gradwire
