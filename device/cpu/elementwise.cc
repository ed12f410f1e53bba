#include <algorithm>
#include <cstdint>
#include <span>

#include "base/elements.h"
#include "base/small_floats.h"
#include "device/cpu/cpu_ops.h"

namespace gradwire::cpu {
namespace {

template <typename T>
void reduce_plain(ReduceOp op, std::span<const T> src, std::span<T> acc) {
  const T* from = src.data();
  T* to = acc.data();
  const std::size_t count = acc.size();
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<T>(to[i] + from[i]);
      return;
    case ReduceOp::kMax:
      for (std::size_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
      return;
    case ReduceOp::kMin:
      for (std::size_t i = 0; i < count; ++i) to[i] = std::min(to[i], from[i]);
      return;
  }
}

float combine(ReduceOp op, float a, float b) {
  if (op == ReduceOp::kMax) return std::max(a, b);
  if (op == ReduceOp::kMin) return std::min(a, b);
  return a + b;
}

template <float (*Widen)(std::uint16_t), std::uint16_t (*Round)(float)>
void reduce_small(ReduceOp op, ConstTensorView src, TensorView acc) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(src.data());
  auto* to = reinterpret_cast<std::uint16_t*>(acc.data());
  for (std::int64_t i = 0; i < acc.elems(); ++i)
    to[i] = Round(combine(op, Widen(to[i]), Widen(from[i])));
}

template <typename Visit>
void visit_as_float(ConstTensorView src, const Visit& visit) {
  const std::int64_t count = src.elems();
  if (src.dtype() == DType::kF64) {
    const auto* from = reinterpret_cast<const double*>(src.data());
    for (std::int64_t i = 0; i < count; ++i) visit(i, static_cast<float>(from[i]));
  } else if (src.dtype() == DType::kF32) {
    const auto* from = reinterpret_cast<const float*>(src.data());
    for (std::int64_t i = 0; i < count; ++i) visit(i, from[i]);
  } else {
    const auto* from = reinterpret_cast<const std::uint16_t*>(src.data());
    if (src.dtype() == DType::kF16) {
      for (std::int64_t i = 0; i < count; ++i) visit(i, float_from_fp16(from[i]));
    } else {
      for (std::int64_t i = 0; i < count; ++i) visit(i, float_from_bf16(from[i]));
    }
  }
}

}  // namespace

void reduce(ReduceOp op, ConstTensorView src, TensorView acc) {
  switch (acc.dtype()) {
    case DType::kF64: return reduce_plain(op, elements<double>(src), elements<double>(acc));
    case DType::kF32: return reduce_plain(op, elements<float>(src), elements<float>(acc));
    case DType::kI64:
      return reduce_plain(op, elements<std::int64_t>(src), elements<std::int64_t>(acc));
    case DType::kI32:
      return reduce_plain(op, elements<std::int32_t>(src), elements<std::int32_t>(acc));
    case DType::kI8:
      return reduce_plain(op, elements<std::int8_t>(src), elements<std::int8_t>(acc));
    case DType::kU8:
      return reduce_plain(op, elements<std::uint8_t>(src), elements<std::uint8_t>(acc));
    case DType::kF16: return reduce_small<float_from_fp16, fp16_from_float>(op, src, acc);
    case DType::kBF16: return reduce_small<float_from_bf16, bf16_from_float>(op, src, acc);
  }
}

void scale(TensorView tensor, double factor) {
  const auto narrow = static_cast<float>(factor);
  switch (tensor.dtype()) {
    case DType::kF64:
      for (double& x : elements<double>(tensor)) x *= factor;
      return;
    case DType::kF32:
      for (float& x : elements<float>(tensor)) x *= narrow;
      return;
    default: break;
  }
  auto* data = reinterpret_cast<std::uint16_t*>(tensor.data());
  const bool half = tensor.dtype() == DType::kF16;
  for (std::int64_t i = 0; i < tensor.elems(); ++i) {
    data[i] = half ? fp16_from_float(float_from_fp16(data[i]) * narrow)
                   : bf16_from_float(float_from_bf16(data[i]) * narrow);
  }
}

// f64 -> f16/bf16 rounds twice (through f32); payloads of doubles accept that.
void cast(ConstTensorView src, TensorView dst) {
  if (dst.dtype() == DType::kF64) {
    auto* to = reinterpret_cast<double*>(dst.data());
    if (src.dtype() == DType::kF64) {
      const auto* from = reinterpret_cast<const double*>(src.data());
      std::copy(from, from + src.elems(), to);
    } else {
      visit_as_float(src, [to](std::int64_t i, float x) { to[i] = static_cast<double>(x); });
    }
  } else if (dst.dtype() == DType::kF32) {
    auto* to = reinterpret_cast<float*>(dst.data());
    visit_as_float(src, [to](std::int64_t i, float x) { to[i] = x; });
  } else if (dst.dtype() == DType::kF16) {
    auto* to = reinterpret_cast<std::uint16_t*>(dst.data());
    visit_as_float(src, [to](std::int64_t i, float x) { to[i] = fp16_from_float(x); });
  } else {
    auto* to = reinterpret_cast<std::uint16_t*>(dst.data());
    visit_as_float(src, [to](std::int64_t i, float x) { to[i] = bf16_from_float(x); });
  }
}

}  // namespace gradwire::cpu
