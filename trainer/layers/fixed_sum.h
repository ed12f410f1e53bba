// A sum whose order is written down: bits must not depend on what the optimiser of the compiler or
// of a matrix library makes of a loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradwire {

// Sixteen interleaved partial sums (element i goes to lane i % 16), then the lanes from first to
// last. Lanes, and so the result, are the same with any vector width.
template <typename T>
T fixed_sum(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<T, kLanes> lane{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) lane[static_cast<std::size_t>(k)] += values[i + k];
  }
  for (std::int64_t k = 0; i + k < count; ++k) lane[static_cast<std::size_t>(k)] += values[i + k];
  T sum = lane[0];
  for (std::size_t k = 1; k < lane.size(); ++k) sum += lane[k];
  return sum;
}

}  // namespace gradwire
