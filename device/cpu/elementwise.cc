#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/elements.h"
#include "base/half_limits.h"
#include "base/small_floats.h"
#include "device/cpu/cpu_ops.h"

namespace gradwire::cpu {
namespace {

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

template <typename T>
void scale_plain(ConstTensorView src, T factor, TensorView dst) {
  const T* from = elements<T>(src).data();
  T* to = elements<T>(dst).data();
  for (std::int64_t i = 0; i < dst.elems(); ++i) to[i] = from[i] * factor;
}

template <float (*Widen)(std::uint16_t), std::uint16_t (*Round)(float)>
void scale_small(ConstTensorView src, float factor, TensorView dst) {
  const auto* from = reinterpret_cast<const std::uint16_t*>(src.data());
  auto* to = reinterpret_cast<std::uint16_t*>(dst.data());
  for (std::int64_t i = 0; i < dst.elems(); ++i) to[i] = Round(Widen(from[i]) * factor);
}

template <std::uint16_t (*Round)(float)>
void saturate(ConstTensorView src, float factor, float most, TensorView dst) {
  const auto* from = elements<float>(src).data();
  auto* to = reinterpret_cast<std::uint16_t*>(dst.data());
  for (std::int64_t i = 0; i < dst.elems(); ++i) {
    to[i] = Round(std::isfinite(from[i]) ? std::clamp(from[i] * factor, -most, most) : from[i]);
  }
}

}  // namespace

void saturating_cast(ConstTensorView src, double factor, TensorView dst) {
  const auto by = static_cast<float>(factor);
  if (dst.dtype() == DType::kF16) {
    saturate<fp16_from_float>(src, by, kLargestFp16, dst);
  } else {
    saturate<bf16_from_float>(src, by, kLargestBf16, dst);
  }
}

void scaled_copy(ConstTensorView src, double factor, TensorView dst) {
  const auto narrow = static_cast<float>(factor);
  switch (dst.dtype()) {
    case DType::kF64: return scale_plain<double>(src, factor, dst);
    case DType::kF32: return scale_plain<float>(src, narrow, dst);
    case DType::kF16: return scale_small<float_from_fp16, fp16_from_float>(src, narrow, dst);
    case DType::kBF16: return scale_small<float_from_bf16, bf16_from_float>(src, narrow, dst);
    default: return;
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
