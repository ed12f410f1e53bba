// What encoders ask of a bucket before they code it, read once. The same bits on any instruction
// set.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "compress/corrected.h"

namespace gradwire::cpu {

// The largest |p|; NaN if there is one: its bits are largest. 0 of nothing.
float largest_magnitude(const Corrected<float>& p);
// The same as bits, by a plain loop, for the few elements that vectors leave.
inline std::uint32_t plain_largest_bits(std::span<const float> x) {
  std::uint32_t most = 0;
  for (const float value : x) most = std::max(most, std::bit_cast<std::uint32_t>(value) << 1);
  return most >> 1;
}

}  // namespace gradwire::cpu

namespace gradwire {

namespace cpu {
inline constexpr std::size_t kSquareSums = 16;
// sums[i % 16] += x[i]^2, in double.
void add_squares(std::span<const float> x, std::array<double, kSquareSums>& sums);
}  // namespace cpu

// Squares added in double, element i to partial sum i % 16; the sixteen are folded in halves.
class SquareSums {
 public:
  // Calls but the last take multiples of 16 elements. T is float or double.
  template <typename T>
  void add(std::span<const T> x) {
    if constexpr (std::is_same_v<T, float>) {
      cpu::add_squares(x, sums_);
    } else {
      for (std::size_t i = 0; i < x.size(); ++i) sums_[i % cpu::kSquareSums] += x[i] * x[i];
    }
  }
  double total() const {
    auto sums = sums_;
    for (std::size_t half = cpu::kSquareSums / 2; half > 0; half /= 2) {
      for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    }
    return sums[0];
  }

 private:
  std::array<double, cpu::kSquareSums> sums_{};
};

}  // namespace gradwire
