#include "adapters/trainer/optimizers/dct.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradwire {
namespace {

// out (n, m) = a b, with a(i, k) = from_a(i, k) and b row-major (n, m); zeroed first. The inner
// loop runs along rows, so that it vectorises without changing an element's order of addition.
template <typename Element>
void multiply_left(std::int64_t n, std::int64_t m, const Element& a, const float* b, float* out) {
  std::fill_n(out, n * m, 0.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < n; ++k) {
      const float factor = a(i, k);
      for (std::int64_t j = 0; j < m; ++j) out[i * m + j] += factor * b[k * m + j];
    }
  }
}

// out (n, m) = b a, with a (m, m) given row by row.
template <typename Element>
void multiply_right(std::int64_t n, std::int64_t m, const float* b, const Element& a, float* out) {
  std::fill_n(out, n * m, 0.0F);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < m; ++k) {
      const float factor = b[i * m + k];
      for (std::int64_t j = 0; j < m; ++j) out[i * m + j] += factor * a(k, j);
    }
  }
}

}  // namespace

Dct::Dct(std::int64_t n) : n_(n), matrix_(static_cast<std::size_t>(n * n)) {
  const auto length = static_cast<double>(n);
  for (std::int64_t k = 0; k < n; ++k) {
    const double scale = std::sqrt((k == 0 ? 1.0 : 2.0) / length);
    for (std::int64_t i = 0; i < n; ++i) {
      const double angle =
          std::numbers::pi * (static_cast<double>(i) + 0.5) * static_cast<double>(k) / length;
      matrix_[static_cast<std::size_t>(k * n + i)] = static_cast<float>(scale * std::cos(angle));
    }
  }
}

void dct_forward(const Dct& rows, const Dct& columns, std::span<const float> values,
                 std::span<float> coefficients, std::span<float> scratch) {
  const std::int64_t n = rows.size();
  const std::int64_t m = columns.size();
  multiply_left(
      n, m, [&](std::int64_t i, std::int64_t k) { return rows.at(i, k); }, values.data(),
      scratch.data());
  multiply_right(
      n, m, scratch.data(), [&](std::int64_t k, std::int64_t j) { return columns.at(j, k); },
      coefficients.data());
}

void dct_inverse(const Dct& rows, const Dct& columns, std::span<const float> coefficients,
                 std::span<float> values, std::span<float> scratch) {
  const std::int64_t n = rows.size();
  const std::int64_t m = columns.size();
  multiply_left(
      n, m, [&](std::int64_t i, std::int64_t k) { return rows.at(k, i); }, coefficients.data(),
      scratch.data());
  multiply_right(
      n, m, scratch.data(), [&](std::int64_t k, std::int64_t j) { return columns.at(k, j); },
      values.data());
}

std::int64_t largest_divisor(std::int64_t n, std::int64_t most) {
  for (std::int64_t d = std::min(n, most); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

}  // namespace gradwire
