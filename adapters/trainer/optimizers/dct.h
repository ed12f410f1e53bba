// The discrete cosine transform of small matrices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradwire {

// Orthonormal DCT-II of length n as an n x n matrix, row-major: row k is basis k. Computed in
// double and rounded to float. Sums below run in a fixed order.
class Dct {
 public:
  explicit Dct(std::int64_t n);

  std::int64_t size() const { return n_; }
  float at(std::int64_t k, std::int64_t i) const {
    return matrix_[static_cast<std::size_t>(k * n_ + i)];
  }

 private:
  std::int64_t n_;
  std::vector<float> matrix_;
};

// coefficients (rows, columns) = R values C^T, with R and C the transforms of that many rows and
// columns; `scratch` has as many elements. The three do not overlap.
void dct_forward(const Dct& rows, const Dct& columns, std::span<const float> values,
                 std::span<float> coefficients, std::span<float> scratch);
// The inverse: values = R^T coefficients C.
void dct_inverse(const Dct& rows, const Dct& columns, std::span<const float> coefficients,
                 std::span<float> values, std::span<float> scratch);

// The largest divisor of n that is at most `most`.
std::int64_t largest_divisor(std::int64_t n, std::int64_t most);

}  // namespace gradwire
