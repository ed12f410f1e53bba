// For methods whose codes have no room for NaN or infinity.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/text.h"
#include "gradwire/status.h"

namespace gradwire {

// The largest magnitude of some elements as bits: that of infinity or more where one is not finite.
// Maxima of integers, so that loops become vectors.
template <typename T>
class LargestBits {
 public:
  void see(const LargestBits& others) { most_ = std::max(most_, others.most_); }
  void see(T x) { most_ = std::max(most_, std::bit_cast<Bits>(x) & (~Bits{0} >> 1)); }
  T value() const { return std::bit_cast<T>(most_); }
  bool finite() const { return most_ < std::bit_cast<Bits>(std::numeric_limits<T>::infinity()); }

 private:
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  Bits most_ = 0;
};

template <typename T>
bool all_finite(std::span<const T> values) {
  LargestBits<T> largest;
  for (const T x : values) largest.see(x);
  return largest.finite();
}

// kInvalidArgument that names the first element that is not finite; ok if all are.
template <typename T>
Status name_not_finite(std::string_view method, std::span<const T> x) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x[i])) continue;
    return {
        Code::kInvalidArgument,
        std::string(method) + format(": element %zu of the slice is %g (expected a finite number)",
                                     i, static_cast<double>(x[i]))};
  }
  return {};
}

}  // namespace gradwire
