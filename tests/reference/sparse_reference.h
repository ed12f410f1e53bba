// Sparse methods the slow, obvious way: oracles for the fast kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "base/philox.h"

namespace gradwire::testing {

// The places of elements that are not below `tau` in magnitude (NaN is not).
template <typename T>
std::vector<std::uint32_t> threshold_reference(std::span<const T> x, T tau) {
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(std::abs(x[i]) < tau)) places.push_back(static_cast<std::uint32_t>(i));
  }
  return places;
}

// k of n places by Floyd's algorithm, on 64-bit fractions made of two words of the stream each.
inline std::vector<std::uint32_t> places_reference(const RandomStream& stream, std::uint64_t n,
                                                   std::uint64_t k) {
  std::set<std::uint32_t> chosen;
  for (std::uint64_t i = 0; i < k; ++i) {
    const std::uint64_t last = n - k + i;
    const long double fraction = static_cast<long double>(stream.word(2 * i)) * 0x1p-32L +
                                 static_cast<long double>(stream.word(2 * i + 1)) * 0x1p-64L;
    const auto place =
        static_cast<std::uint32_t>(std::floor(fraction * static_cast<long double>(last + 1)));
    if (!chosen.insert(place).second) chosen.insert(static_cast<std::uint32_t>(last));
  }
  return {chosen.begin(), chosen.end()};
}

// The numbers of those blocks of which an element is not +0.
template <typename T>
std::vector<std::uint32_t> block_sparse_reference(std::span<const T> x, std::size_t block) {
  std::vector<std::uint32_t> numbers;
  for (std::size_t begin = 0; begin < x.size(); begin += block) {
    bool any = false;
    for (std::size_t i = begin; i < x.size() && i < begin + block; ++i) {
      any = any || x[i] != T{0} || std::signbit(x[i]);
    }
    if (any) numbers.push_back(static_cast<std::uint32_t>(begin / block));
  }
  return numbers;
}

}  // namespace gradwire::testing
