// A matrix as a sum of atoms l u v^T of orthogonal directions, and how many of them to draw.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace gradwire {

struct Spectrum {
  std::vector<double> weight;  // (r), descending, >= 0; r = min(a, c)
  std::vector<double> left;    // (r, a): unit vectors, 0 where the weight is 0
  std::vector<double> right;   // (r, c): likewise
};

// Of a row-major (a, c) matrix of finite elements. The shorter side's vectors are eigenvectors of
// the small Gram matrix, orthonormal to the last digits, and the others are what the matrix makes
// of them: the atoms add up to the matrix to rounding, however close singular values are. Runs in
// double on a copy scaled by its largest magnitude. A weight below
// 2^-50 of the largest is what rounding left, and 0. T is float or double.
template <typename T>
Spectrum spectrum_of(std::span<const T> matrix, std::size_t a, std::size_t c);

// p_k of atomo.h for descending weights >= 0; 0 for weights that are 0.
std::vector<double> fill_with_water(std::span<const double> weight, double budget);

}  // namespace gradwire
