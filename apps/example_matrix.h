// The shape in which benchmarks and examples hand N elements to a compressor.
#pragma once

#include <cstdint>

#include "gradwire/tensor.h"

namespace gradwire {

// (r, elems / r), r the largest divisor of elems that is not above its square root. elems > 0.
constexpr Shape example_matrix(std::int64_t elems) {
  std::int64_t rows = 1;
  for (std::int64_t r = 1; r * r <= elems; ++r) {
    if (elems % r == 0) rows = r;
  }
  return Shape::matrix(rows, elems / rows);
}

}  // namespace gradwire
