// Host kernels of powersgd. T is float or double. Matrices are row-major spans; thin factors are
// stored with one direction per row: pt is P^T (r, a), qt is Q^T (r, c). Every sum runs in a fixed
// order whatever the memory's alignment, so equal inputs give equal bits on every rank.
#pragma once

#include <cstddef>
#include <span>

#include "base/philox.h"

namespace gradwire::cpu {

struct ThinShape {
  std::size_t a = 0;  // rows of M
  std::size_t c = 0;  // columns of M
  std::size_t r = 0;  // directions
};

// pt = (M Q)^T.
template <typename T>
void times(std::span<const T> m, std::span<const T> qt, const ThinShape& shape, std::span<T> pt);

// qt = P^T M.
template <typename T>
void transposed_times(std::span<const T> m, std::span<const T> pt, const ThinShape& shape,
                      std::span<T> qt);

// m = P Q^T.
template <typename T>
void product(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape, std::span<T> m);

// Makes the `count` <= length rows of (count, length) orthonormal, in order, in double. Rows that
// depend on earlier ones become random directions of `fresh`. Requires finite values.
template <typename T>
void orthonormalise(std::span<T> rows, std::size_t count, const RandomStream& fresh);

}  // namespace gradwire::cpu
