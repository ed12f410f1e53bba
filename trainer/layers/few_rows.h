// Products of a wide linear layer with a batch of few rows. The weights are read once, as they lie:
// a general product first copies them into panels, which costs about as much as 32 rows' sums.
#pragma once

#include <cstdint>

namespace gradwire {

struct LinearSize {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// Whether the functions below are meant for it: at most 64 rows and at least 2^20 weights. Smaller
// layers stay in the cache, whoever multiplies.
constexpr bool has_few_rows(const LinearSize& size) {
  constexpr std::int64_t kMostRows = 64;
  constexpr std::int64_t kLeastWeights = 1 << 20;
  return size.rows <= kMostRows && size.in * size.out >= kLeastWeights;
}

// All matrices are row-major and without gaps: x, dx (rows, in); weight, dweight (out, in);
// y, dy (rows, out). Results are written over and overlap nothing. Correct for any size, and each
// row of y and dx has the same bits whatever other rows there are. T: float or double.

// y = x W^T
template <typename T>
void rows_forward(const LinearSize& size, const T* x, const T* weight, T* y);

// dx = dy W
template <typename T>
void rows_backward_input(const LinearSize& size, const T* dy, const T* weight, T* dx);

// dW = dy^T x
template <typename T>
void rows_backward_weight(const LinearSize& size, const T* dy, const T* x, T* dweight);

}  // namespace gradwire
