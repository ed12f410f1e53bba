// The read-only pass that codecs are compared with.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace gradwire::bench {

// Sums in 64 lanes, asking for lines two pages ahead, where hardware prefetchers stop.
inline float read_pass(std::span<const float> data) {
  constexpr std::size_t kLanes = 64;
  constexpr std::size_t kLine = 16;
  constexpr std::size_t kAhead = 2048;
  std::array<float, kLanes> sums{};
  for (std::size_t i = 0; i + kLanes <= data.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; j += kLine) {
      __builtin_prefetch(data.data() + i + j + kAhead);
    }
    for (std::size_t j = 0; j < kLanes; ++j) sums[j] += data[i + j];
  }
  float sum = 0;
  for (const float lane : sums) sum += lane;
  return sum;
}

}  // namespace gradwire::bench
