// What shares a scale: so many consecutive elements, or a row of the tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gradwire/tensor.h"

namespace gradwire {

inline constexpr std::int64_t kLeastRow = 32;

// A row is what lies under one index of the first dimension. Vectors have no rows, and rows of
// fewer than kLeastRow elements would pay more for scales than for codes: both take `otherwise`.
inline std::int64_t row_or(const Shape& shape, std::int64_t otherwise) {
  if (shape.rank < 2 || shape.dim[0] < 1) return otherwise;
  const std::int64_t row = shape.elems() / shape.dim[0];
  return row < kLeastRow ? otherwise : row;
}

constexpr std::size_t group_count(std::size_t elems, std::size_t group) {
  return (elems + group - 1) / group;
}

}  // namespace gradwire
