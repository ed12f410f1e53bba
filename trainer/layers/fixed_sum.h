// A sum whose order is written down: bits must not depend on what the optimiser of the compiler or
// of a matrix library makes of a loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gradwire {

// The sum of term(0) ... term(count - 1), each a Sum: sixteen interleaved partial sums (term i goes
// to lane i % 16), then the lanes from first to last. Lanes, and so the result, are the same with
// any vector width.
template <typename Sum, typename Term>
constexpr Sum fixed_sum_of(std::int64_t count, Term term) {
  constexpr std::int64_t kLanes = 16;
  std::array<Sum, kLanes> lane{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) lane[static_cast<std::size_t>(k)] += term(i + k);
  }
  for (std::int64_t k = 0; i + k < count; ++k) lane[static_cast<std::size_t>(k)] += term(i + k);
  Sum sum = lane[0];
  for (std::size_t k = 1; k < lane.size(); ++k) sum += lane[k];
  return sum;
}

template <typename T>
constexpr T fixed_sum(const T* values, std::int64_t count) {
  return fixed_sum_of<T>(count, [values](std::int64_t i) { return values[i]; });
}

}  // namespace gradwire
