// What an element of a selection is to host and device alike.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace gradwire {

// A magnitude as an unsigned integer.
template <typename T>
using TopkKey = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// Magnitudes as integers: the order of |x|, infinity above all numbers, NaN above infinity.
template <typename T>
constexpr TopkKey<T> topk_key(T value) {
  return std::bit_cast<TopkKey<T>>(value) & (~TopkKey<T>{0} >> 1);
}

// What error feedback keeps of a chosen element. (Sums of payloads start from 0.)
template <typename T>
constexpr T topk_rest(T value, T own_scale) {
  return value - (T{0} + value) * own_scale;
}

}  // namespace gradwire
