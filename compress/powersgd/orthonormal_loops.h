// The two products of Cholesky-QR, in double, for the best instruction set of the machine: the same
// bits on all of them.
#pragma once

#include <cstddef>

namespace gradwire::cpu {

inline constexpr std::size_t kGramSums = 8;
inline constexpr std::size_t kGramBlock = 512;

// Pivots: of rows of length 1, what is left of one's square beside the rows before it. A round errs
// by about 1e-16 / pivot.
inline constexpr double kLeastPivot = 1e-9;  // that a second round corrects to the last digits
inline constexpr double kOneRound = 1e-6;    // that fp32 does not show

// gram[k * count + l] = row k . row l of (count, length), for l <= k: in kGramSums sums, element j
// into sum j % kGramSums, for kGramBlock elements at a time, folded in halves; products are added
// with one rounding.
void lower_gram(const double* rows, std::size_t count, std::size_t length, double* gram);

// rows = t rows, t (count, count) lower triangular, with one rounding each, in order of columns.
void multiply_lower(const double* t, std::size_t count, std::size_t length, double* rows);

}  // namespace gradwire::cpu
