// How two elements combine, once for every processor. Every case is computed and one is chosen, so
// that compilers turn loops over these into vector instructions.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gradwire/tensor.h"

namespace gradwire::combine {

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// Of two equal numbers only 0 and -0 have different bits: `and` of them is 0, `or` is -0.
template <typename T>
constexpr T both_bits(T a, T b) {
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(a) & std::bit_cast<Bits<T>>(b));
}
template <typename T>
constexpr T any_bits(T a, T b) {
  return std::bit_cast<T>(std::bit_cast<Bits<T>>(a) | std::bit_cast<Bits<T>>(b));
}

// One function object per operation; T is the type in which it computes.
struct Add {
  template <typename T>
  constexpr T operator()(T a, T b) const {
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
  constexpr T operator()(T a, T b) const {
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
  constexpr T operator()(T a, T b) const {
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
  constexpr T operator()(T a, T b) const {
    const T smaller = a < b ? a : b;
    if constexpr (std::is_integral_v<T>) {
      return smaller;
    } else {
      const T number = a == b ? any_bits(a, b) : smaller;
      return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : number;
    }
  }
};

// What leaves other values as they are under `op`, as fill_neutral() of device/ops.h says.
template <typename T>
constexpr T neutral(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kProduct: return 1;
    case ReduceOp::kMin: return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax: return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    default: return 0;
  }
}

}  // namespace gradwire::combine
