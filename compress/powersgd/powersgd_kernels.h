// Host kernels of powersgd. T is float or double. Matrices are row-major spans; thin factors are
// stored with one direction per row: pt is P^T (r, a), qt is Q^T (r, c). Every sum runs in a fixed
// order whatever the memory's alignment, so equal inputs give equal bits on every rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/philox.h"
#include "compress/corrected.h"

namespace gradwire::cpu {

struct ThinShape {
  std::size_t a = 0;  // rows of M
  std::size_t c = 0;  // columns of M
  std::size_t r = 0;  // directions
};

// Where M = grad + residual goes while it is multiplied. If owed_pt is not null, what m calls the
// residual is so only after owed_scale * (owed P)(owed Q)^T, of M's shape and with at most
// kOwedDirections directions, is taken away from it.
template <typename T>
struct ThinSum {
  T* to;  // of M's size
  const T* owed_pt = nullptr;
  const T* owed_qt = nullptr;
  T owed_scale = 1;
  T largest = 0;  // set: the largest |M|, NaN being larger than any number
};
inline constexpr std::size_t kOwedDirections = 4;

// pt = (M Q)^T. `sum` may be null.
template <typename T>
void times(const Corrected<T>& m, std::span<const T> qt, const ThinShape& shape, std::span<T> pt,
           ThinSum<T>* sum);

// qt = P^T M.
template <typename T>
void transposed_times(std::span<const T> m, std::span<const T> pt, const ThinShape& shape,
                      std::span<T> qt);

// m = P Q^T.
template <typename T>
void product(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape, std::span<T> m);

// next -= own_scale * P Q^T. False when an element of next is not finite then.
template <typename T>
bool take_product_away(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape,
                       T own_scale, std::span<T> next);

// Makes the `count` <= length rows of (count, length) orthonormal, in order, in double. Rows that
// depend on earlier ones become random directions of `fresh`. Requires finite values. `scratch` is
// kept between calls for its memory.
template <typename T>
void orthonormalise(std::span<T> rows, std::size_t count, const RandomStream& fresh,
                    std::vector<double>& scratch);

}  // namespace gradwire::cpu
