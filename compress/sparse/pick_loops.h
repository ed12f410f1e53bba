// The inner loop of pick(). simd::, for fp32, takes the best instruction set of the machine and
// gives what plain:: gives.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "compress/corrected.h"

namespace gradwire::cpu {
namespace plain {

// Whether all elements are finite. With `next`: next[i] = p[i].
template <typename T>
bool copy_finite(const Corrected<T>& p, T* next) {
  bool finite = true;
  for (std::size_t i = 0; i < p.size; ++i) {
    const T value = p[i];
    finite &= std::abs(value) <= std::numeric_limits<T>::max();
    if (next != nullptr) next[i] = value;
  }
  return finite;
}

}  // namespace plain

namespace simd {

bool copy_finite(const Corrected<float>& p, float* next);

}  // namespace simd

template <typename T>
struct PickLoops {
  static constexpr auto kCopyFinite = plain::copy_finite<T>;
};
template <>
struct PickLoops<float> {
  static constexpr auto kCopyFinite = simd::copy_finite;
};

}  // namespace gradwire::cpu
