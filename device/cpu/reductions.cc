// Reductions are written so that compilers turn the loops into vector instructions: every case is
// computed and one is chosen.
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "base/elements.h"
#include "base/small_floats.h"
#include "device/cpu/cpu_ops.h"

namespace gradwire::cpu {
namespace {

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Of two equal numbers only 0 and -0 have different bits: `and` of them is 0, `or` is -0.
template <typename T>
T both_bits(T a, T b) {
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(a) & std::bit_cast<Bits<T>>(b));
}
template <typename T>
T any_bits(T a, T b) {
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(a) | std::bit_cast<Bits<T>>(b));
}

// One function object per operation; T is the type in which it computes.
struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using Wrapping = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
    } else {
      return a + b;
    }
  }
};
struct Multiply {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      // Narrow types would be promoted to int, whose products overflow.
      using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
      return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
    } else {
      return a * b;
    }
  }
};
struct Larger {
  template <typename T>
  T operator()(T a, T b) const {
    const T larger = a > b ? a : b;
    if constexpr (std::is_integral_v<T>) {
      return larger;
    } else {
      const T number = a == b ? both_bits(a, b) : larger;
      return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : number;
    }
  }
};
struct Smaller {
  template <typename T>
  T operator()(T a, T b) const {
    const T smaller = a < b ? a : b;
    if constexpr (std::is_integral_v<T>) {
      return smaller;
    } else {
      const T number = a == b ? any_bits(a, b) : smaller;
      return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : number;
    }
  }
};

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
T neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kProduct: return 1;
    case ReduceOp::kMin: return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    default: return 0;
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
    case ReduceOp::kPreMulSum: return reduce_by(Add{}, src, acc);
    case ReduceOp::kMax: return reduce_by(Larger{}, src, acc);
    case ReduceOp::kMin: return reduce_by(Smaller{}, src, acc);
    case ReduceOp::kProduct: return reduce_by(Multiply{}, src, acc);
  }
}

void fill_neutral(ReduceOp op, TensorView tensor) {
  switch (tensor.dtype()) {
    case DType::kF64: return fill(tensor, neutral<double>(op));
    case DType::kF32: return fill(tensor, neutral<float>(op));
    case DType::kI64: return fill(tensor, neutral<std::int64_t>(op));
    case DType::kI32: return fill(tensor, neutral<std::int32_t>(op));
    case DType::kI8: return fill(tensor, neutral<std::int8_t>(op));
    case DType::kU8: return fill(tensor, neutral<std::uint8_t>(op));
    default: break;
  }
  const float value = neutral<float>(op);
  const std::uint16_t small =
      tensor.dtype() == DType::kF16 ? fp16_from_float(value) : bf16_from_float(value);
  auto* data = reinterpret_cast<std::uint16_t*>(tensor.data());
  for (std::int64_t i = 0; i < tensor.elems(); ++i) data[i] = small;
}

}  // namespace gradwire::cpu
