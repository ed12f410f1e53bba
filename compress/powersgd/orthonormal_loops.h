// The two products of Cholesky-QR, in double, for the best instruction set of the machine: the same
// bits on all of them.
#pragma once

#include <cstddef>

namespace gradwire::cpu {

// gram[k * count + l] = row k . row l of (count, length), for l <= k: in 8 sums, element j into sum
// j % 8, for 512 elements at a time, folded in halves; products are added with one rounding.
void lower_gram(const double* rows, std::size_t count, std::size_t length, double* gram);

// rows = t rows, t (count, count) lower triangular, with one rounding each, in order of columns.
void multiply_lower(const double* t, std::size_t count, std::size_t length, double* rows);

}  // namespace gradwire::cpu
