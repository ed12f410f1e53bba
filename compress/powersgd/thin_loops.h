// The inner loops of powersgd. simd::, for fp32, takes the best instruction set of the machine and
// gives the bits that plain:: gives.
//
// A dot product runs in kDotLanes sums, element j into sum j % kDotLanes, for kDotBlock elements at
// a time; the sums are then folded in halves and added to what the blocks before gave. P^T M is
// added up along kRowBlock rows at a time, one sum per result; the blocks' sums are then added in
// order, so that many threads may make them. Everything else is one sum per result, in order. fp32
// multiplies and adds with one rounding, fp64 with two.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "compress/corrected.h"
#include "compress/powersgd/powersgd_kernels.h"

namespace gradwire::cpu {

inline constexpr std::size_t kDotLanes = 16;
inline constexpr std::size_t kDotBlock = 4096;
inline constexpr std::size_t kRowBlock = 256;

inline float multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
inline double multiply_add(double a, double b, double c) { return a * b + c; }

// The lanes' sum; changes them.
template <typename T>
T fold_lanes(T* lanes) {
  for (std::size_t half = kDotLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// Element (i, j) of M.
template <typename T>
T thin_element(const Corrected<T>& m, const ThinSum<T>* sum, const ThinShape& shape, std::size_t i,
               std::size_t j) {
  const std::size_t place = i * shape.c + j;
  if (sum == nullptr || sum->owed_pt == nullptr) return m[place];
  T own = 0;
  for (std::size_t k = 0; k < shape.r; ++k) {
    own = multiply_add(sum->owed_pt[k * shape.a + i], sum->owed_qt[k * shape.c + j], own);
  }
  return m.grad[place] + (m.residual[place] - own * sum->owed_scale);
}

// Rows `first` to `last` of the contracts in powersgd_kernels.h, M's elements being those of a
// Corrected. transposed_times() adds its rows to qt.
namespace plain {

template <typename T>
void times(const Corrected<T>& m, std::span<const T> qt, const ThinShape& shape, std::size_t first,
           std::size_t last, T* pt, ThinSum<T>* sum);
template <typename T>
void transposed_times(std::span<const T> m, std::span<const T> pt, const ThinShape& shape,
                      std::size_t first, std::size_t last, T* qt);
// out[0, count) = columns j, j + 1, ... of row i of P Q^T.
template <typename T>
void product(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape, std::size_t i,
             std::size_t j, std::size_t count, T* out);

// next[0, count) -= own_scale * what product() gives. False when one of them is not finite then.
template <typename T>
bool take_product_away(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape,
                       std::size_t i, std::size_t j, std::size_t count, T own_scale, T* next);

}  // namespace plain

namespace simd {

void times(const Corrected<float>& m, std::span<const float> qt, const ThinShape& shape,
           std::size_t first, std::size_t last, float* pt, ThinSum<float>* sum);
void transposed_times(std::span<const float> m, std::span<const float> pt, const ThinShape& shape,
                      std::size_t first, std::size_t last, float* qt);
void product(std::span<const float> pt, std::span<const float> qt, const ThinShape& shape,
             std::size_t i, std::size_t j, std::size_t count, float* out);

bool take_product_away(std::span<const float> pt, std::span<const float> qt, const ThinShape& shape,
                       std::size_t i, std::size_t j, std::size_t count, float own_scale,
                       float* next);

}  // namespace simd
}  // namespace gradwire::cpu
