// Compilers turn these loops into vector instructions.
#include <cstdint>
#include <span>

#include "base/elements.h"
#include "base/small_floats.h"
#include "device/combine.h"
#include "device/cpu/cpu_ops.h"

namespace gradwire::cpu {
namespace {

template <typename T, typename Combine>
void reduce_plain(const Combine& combine, ConstTensorView src, TensorView acc) {
  const T* from = elements<T>(src).data();
  T* to = elements<T>(acc).data();
  const std::int64_t count = acc.elems();
  for (std::int64_t i = 0; i < count; ++i) to[i] = combine(to[i], from[i]);
}

template <float (*Widen)(std::uint16_t), std::uint16_t (*Round)(float), typename Combine>
void reduce_small(const Combine& combine, ConstTensorView src, TensorView acc) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(src.data());
  auto* to = reinterpret_cast<std::uint16_t*>(acc.data());
  const std::int64_t count = acc.elems();
  for (std::int64_t i = 0; i < count; ++i) to[i] = Round(combine(Widen(to[i]), Widen(from[i])));
}

template <typename Combine>
void reduce_by(const Combine& combine, ConstTensorView src, TensorView acc) {
  switch (acc.dtype()) {
    case DType::kF64: return reduce_plain<double>(combine, src, acc);
    case DType::kF32: return reduce_plain<float>(combine, src, acc);
    case DType::kI64: return reduce_plain<std::int64_t>(combine, src, acc);
    case DType::kI32: return reduce_plain<std::int32_t>(combine, src, acc);
    case DType::kI8: return reduce_plain<std::int8_t>(combine, src, acc);
    case DType::kU8: return reduce_plain<std::uint8_t>(combine, src, acc);
    case DType::kF16: return reduce_small<float_from_fp16, fp16_from_float>(combine, src, acc);
    case DType::kBF16: return reduce_small<float_from_bf16, bf16_from_float>(combine, src, acc);
  }
}

template <typename T>
void fill(TensorView tensor, T value) {
  for (T& element : elements<T>(tensor)) element = value;
}

}  // namespace

void reduce(ReduceOp op, ConstTensorView src, TensorView acc) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
    case ReduceOp::kPreMulSum: return reduce_by(combine::Add{}, src, acc);
    case ReduceOp::kMax: return reduce_by(combine::Larger{}, src, acc);
    case ReduceOp::kMin: return reduce_by(combine::Smaller{}, src, acc);
    case ReduceOp::kProduct: return reduce_by(combine::Multiply{}, src, acc);
  }
}

void fill_neutral(ReduceOp op, TensorView tensor) {
  switch (tensor.dtype()) {
    case DType::kF64: return fill(tensor, combine::neutral<double>(op));
    case DType::kF32: return fill(tensor, combine::neutral<float>(op));
    case DType::kI64: return fill(tensor, combine::neutral<std::int64_t>(op));
    case DType::kI32: return fill(tensor, combine::neutral<std::int32_t>(op));
    case DType::kI8: return fill(tensor, combine::neutral<std::int8_t>(op));
    case DType::kU8: return fill(tensor, combine::neutral<std::uint8_t>(op));
    default: break;
  }
  const float value = combine::neutral<float>(op);
  const std::uint16_t small =
      tensor.dtype() == DType::kF16 ? fp16_from_float(value) : bf16_from_float(value);
  auto* data = reinterpret_cast<std::uint16_t*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.elems(); ++i) data[i] = small;
}

}  // namespace gradwire::cpu
