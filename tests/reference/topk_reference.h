// Top-k by sorting everything: slow, obvious, the oracle for the fast kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace gradwire::testing {

// The indices of the k largest |x|, ascending. NaN counts above infinity; equal magnitudes: lowest
// index first; NaNs among each other by the bits of their payload.
template <typename T>
std::vector<std::size_t> topk_reference(std::span<const T> x, std::size_t k) {
  const auto larger = [x](std::size_t a, std::size_t b) {
    const bool nan_a = std::isnan(x[a]);
    const bool nan_b = std::isnan(x[b]);
    if (nan_a != nan_b) return nan_a;
    if (!nan_a) return std::abs(x[a]) > std::abs(x[b]);
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    return (std::bit_cast<Bits>(x[a]) << 1) > (std::bit_cast<Bits>(x[b]) << 1);
  };
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), larger);
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace gradwire::testing
