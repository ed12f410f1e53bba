// What dgc computes of one element, and how it looks for a magnitude to send from: the same on
// every processor.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "compress/topk/topk_arithmetic.h"

namespace gradwire {

inline constexpr std::size_t kDgcLeastSample = 1024;
inline constexpr double kDgcFewest = 0.8;  // of k, below which the magnitude is lowered
inline constexpr double kDgcLower = 0.8;   // to this share of itself
inline constexpr int kDgcMostRounds = 10;  // so often
inline constexpr int kDgcSampleStage = 1;  // of the draws

template <typename T>
struct Momenta {
  T u;
  T v;
};

// The next u and v of an element; grad is clipped.
template <typename T>
constexpr Momenta<T> next_momenta(T grad, T u, T v, T momentum, bool nesterov) {
  if (nesterov) {
    const T next = momentum * (u + grad);
    return {next, (v + next) + grad};
  }
  const T next = momentum * u + grad;
  return {next, v + next};
}

// The key from which on elements are sent where `low` > 1 left too few.
template <typename T>
constexpr TopkKey<T> lower_key(TopkKey<T> low) {
  const TopkKey<T> less = topk_key(std::bit_cast<T>(low) * static_cast<T>(kDgcLower));
  return less < 1 ? 1 : less > low - 1 ? low - 1 : less;
}

// How many elements of so many a sample has.
inline std::size_t dgc_samples(double share, std::size_t elems) {
  const auto part = static_cast<std::size_t>(std::ceil(share * static_cast<double>(elems)));
  return std::max(part, kDgcLeastSample);
}
// The place, from the largest, of the key among the samples' that is the largest `ratio`'s least.
inline std::size_t dgc_rank(double ratio, std::size_t samples) {
  const auto wanted = static_cast<std::size_t>(std::ceil(ratio * static_cast<double>(samples)));
  return std::clamp<std::size_t>(wanted, 1, samples);
}

}  // namespace gradwire
