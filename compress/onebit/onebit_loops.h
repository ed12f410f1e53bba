// The inner loops of onebit. simd::, for fp32, takes the best instruction set of the machine and
// gives the bits that plain:: gives.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::cpu {

// A group's sums on either side of zero, element i of the group in lane i % 16.
struct SideSums {
  static constexpr std::size_t kLanes = 16;
  std::array<double, kLanes> plus{};   // of elements at or above zero, and of NaN
  std::array<double, kLanes> minus{};  // of magnitudes of those below
  std::size_t below = 0;
};

namespace plain {

// Adds x and writes signs[0, x.size()) = x < 0, unused bits 0. Calls for one group but the last
// take multiples of 16 elements.
template <typename T>
void sum_sides(std::span<const T> x, SideSums& sums, std::byte* signs) {
  for (std::size_t begin = 0; begin < x.size(); begin += 8) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < 8 && begin + j < x.size(); ++j) {
      const T value = x[begin + j];
      const std::size_t lane = (begin + j) % SideSums::kLanes;
      const bool negative = value < T{0};
      sums.plus[lane] += negative ? 0.0 : static_cast<double>(value);
      sums.minus[lane] += negative ? -static_cast<double>(value) : 0.0;
      byte |= (negative ? 1u : 0u) << j;
    }
    sums.below += static_cast<std::size_t>(std::popcount(byte));
    signs[begin / 8] = static_cast<std::byte>(byte);
  }
}

// dst = bit i of signs ? -minus : plus, added to `onto` unless that is null; onto may be dst.
template <typename T>
void put_sides(const std::byte* signs, T plus, T minus, const T* onto, std::span<T> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const bool negative = (std::to_integer<unsigned>(signs[i / 8]) >> (i % 8) & 1u) != 0;
    const T value = negative ? -minus : plus;
    dst[i] = onto != nullptr ? onto[i] + value : value;
  }
}

}  // namespace plain

namespace simd {

void sum_sides(std::span<const float> x, SideSums& sums, std::byte* signs);
void put_sides(const std::byte* signs, float plus, float minus, const float* onto,
               std::span<float> dst);

}  // namespace simd

// The loops for an element type.
template <typename T>
struct OnebitLoops {
  static constexpr auto kSum = plain::sum_sides<T>;
  static constexpr auto kPut = plain::put_sides<T>;
};
template <>
struct OnebitLoops<float> {
  static constexpr auto kSum = simd::sum_sides;
  static constexpr auto kPut = simd::put_sides;
};

}  // namespace gradwire::cpu
