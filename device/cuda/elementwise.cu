#include <cmath>

#include "base/half_limits.h"
#include "base/small_floats.h"
#include "device/cuda/cuda_ops.h"
#include "device/cuda/map_kernel.h"

namespace gradwire::cuda {
namespace {

// How an element is stored, and read and written as the type it is computed in.
template <typename T>
struct AsItIs {
  using Stored = T;
  using Value = T;
  static constexpr T read(T x) { return x; }
  template <typename U>
  static constexpr T write(U x) {
    return static_cast<T>(x);
  }
};
struct AsFp16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr float read(std::uint16_t x) { return float_from_fp16(x); }
  template <typename U>
  static constexpr std::uint16_t write(U x) {
    return fp16_from_float(static_cast<float>(x));
  }
};
struct AsBf16 {
  using Stored = std::uint16_t;
  using Value = float;
  static constexpr float read(std::uint16_t x) { return float_from_bf16(x); }
  template <typename U>
  static constexpr std::uint16_t write(U x) {
    return bf16_from_float(static_cast<float>(x));
  }
};

// call.operator()<As...>() for a floating dtype.
template <typename Call>
Status with_floating(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::kF64: return call.template operator()<AsItIs<double>>();
    case DType::kF16: return call.template operator()<AsFp16>();
    case DType::kBF16: return call.template operator()<AsBf16>();
    default: return call.template operator()<AsItIs<float>>();
  }
}

template <class As>
struct Scaled {
  typename As::Value factor;
  constexpr typename As::Stored operator()(typename As::Stored, typename As::Stored x) const {
    return As::write(As::read(x) * factor);
  }
};

template <class To>
struct Saturated {
  float factor;
  float most;
  GW_DEVICE std::uint16_t operator()(std::uint16_t, float x) const {
    if (!std::isfinite(x)) return To::write(x);
    float value = x * factor;
    value = value < -most ? -most : value;
    return To::write(value > most ? most : value);
  }
};

// As on the host, f64 becomes f16 or bf16 by way of f32.
template <class To, class From>
struct Converted {
  constexpr typename To::Stored operator()(typename To::Stored, typename From::Stored x) const {
    return To::write(From::read(x));
  }
};

}  // namespace

Status scaled_copy(ConstTensorView src, double factor, TensorView dst, const Stream& stream) {
  return with_floating(dst.dtype(), [&]<class As>() {
    using Stored = typename As::Stored;
    return map<Stored, Stored>("scaled_copy", src.data(), dst.data(), dst.elems(),
                               Scaled<As>{static_cast<typename As::Value>(factor)}, stream);
  });
}

Status cast(ConstTensorView src, TensorView dst, const Stream& stream) {
  return with_floating(dst.dtype(), [&]<class To>() {
    return with_floating(src.dtype(), [&]<class From>() {
      return map<typename To::Stored, typename From::Stored>(
          "cast", src.data(), dst.data(), dst.elems(), Converted<To, From>{}, stream);
    });
  });
}

Status saturating_cast(ConstTensorView src, double factor, TensorView dst, const Stream& stream) {
  const auto by = static_cast<float>(factor);
  if (dst.dtype() == DType::kF16) {
    return map<std::uint16_t, float>("saturating_cast", src.data(), dst.data(), dst.elems(),
                                     Saturated<AsFp16>{by, kLargestFp16}, stream);
  }
  return map<std::uint16_t, float>("saturating_cast", src.data(), dst.data(), dst.elems(),
                                   Saturated<AsBf16>{by, kLargestBf16}, stream);
}

}  // namespace gradwire::cuda
