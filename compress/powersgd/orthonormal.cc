// Cholesky-QR: a Gram matrix and a triangular product read the rows once each, where Gram-Schmidt
// reads them for every pair. Its error grows with the square of the rows' condition; a second round
// makes up for that. fp32 results from well-conditioned rows need no second round, since all of it
// is computed in double. Rows too close to dependent go through Gram-Schmidt, run twice.
// Source: Yamamoto, Nakatsukasa, Yanagisawa, Fukaya, "Roundoff error analysis of the CholeskyQR2
// algorithm", ETNA 2015.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compress/powersgd/orthonormal_loops.h"
#include "compress/powersgd/powersgd_kernels.h"

namespace gradwire::cpu {
namespace {

// Scales rows by powers of two so that squares neither vanish nor overflow; only fp64 needs it.
void scale_rows(std::vector<double>& rows, std::size_t count) {
  const std::size_t length = rows.size() / count;
  for (std::size_t k = 0; k < count; ++k) {
    double* row = rows.data() + k * length;
    double most = 0;
    for (std::size_t j = 0; j < length; ++j) most = std::max(most, std::abs(row[j]));
    if (most == 0) continue;
    const int power = -std::ilogb(most);  // in halves, each of which is a normal number
    const double factor = std::ldexp(1.0, power / 2);
    const double rest = std::ldexp(1.0, power - power / 2);
    for (std::size_t j = 0; j < length; ++j) row[j] = row[j] * factor * rest;
  }
}

// t = L^-1 D, where D G D = L L^T has ones on its diagonal and G is given by its lower half. The
// least pivot; 0 if one is too small (or a row is zero), t is then unspecified. Loops run along
// rows, so that they become vectors.
double invert_factor(std::vector<double>& gram, std::size_t count, std::vector<double>& t) {
  std::vector<double> scale(count);
  std::vector<double> column(count);
  for (std::size_t k = 0; k < count; ++k) scale[k] = 1 / std::sqrt(gram[k * count + k]);
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t l = 0; l <= k; ++l) gram[k * count + l] *= scale[k] * scale[l];
  }
  double least = 1;
  for (std::size_t m = 0; m < count; ++m) {  // the factor, in place of the lower half
    const double pivot = gram[m * count + m];
    if (!(pivot > kLeastPivot)) return 0;
    least = std::min(least, pivot);
    const double by = 1 / std::sqrt(pivot);
    for (std::size_t k = m; k < count; ++k) column[k] = gram[k * count + m] *= by;
    for (std::size_t k = m + 1; k < count; ++k) {
      double* row = &gram[k * count];
      const double factor = column[k];
      for (std::size_t l = m + 1; l <= k; ++l) row[l] -= factor * column[l];
    }
  }
  std::fill(t.begin(), t.end(), 0.0);
  for (std::size_t k = 0; k < count; ++k) {  // row k of the inverse, by substitution
    double* row = &t[k * count];
    for (std::size_t m = 0; m < k; ++m) {
      const double factor = gram[k * count + m];
      const double* above = &t[m * count];
      for (std::size_t l = 0; l <= m; ++l) row[l] -= factor * above[l];
    }
    const double by = 1 / gram[k * count + k];
    for (std::size_t l = 0; l < k; ++l) row[l] *= by;
    row[k] = by;
  }
  for (std::size_t k = 0; k < count; ++k) {
    for (std::size_t l = 0; l <= k; ++l) t[k * count + l] *= scale[l];
  }
  return least;
}

// False if the rows are too close to dependent. enough: the pivot from which on one round does.
bool cholesky_qr(std::vector<double>& rows, std::size_t count, double enough) {
  const std::size_t length = rows.size() / count;
  std::vector<double> gram(count * count);
  std::vector<double> t(count * count);
  for (int round = 0; round < 2; ++round) {
    lower_gram(rows.data(), count, length, gram.data());
    const double least = invert_factor(gram, count, t);
    if (least == 0) return false;
    multiply_lower(t.data(), count, length, rows.data());
    if (least >= enough) break;
  }
  return true;
}

double dot(const double* x, const double* y, std::size_t count) {
  constexpr std::size_t kLanes = 16;
  double lane[kLanes] = {};
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) lane[j] += x[i + j] * y[i + j];
  }
  for (std::size_t i = whole; i < count; ++i) lane[i - whole] += x[i] * y[i];
  double sum = 0;
  for (const double part : lane) sum += part;
  return sum;
}

// Below this share of its length, what is left of a column is rounding and no direction. The second
// pass makes even such a rest orthogonal to the last digits.
constexpr double kRest = 1e-13;
constexpr std::uint64_t kDraws = 8;

// Scales `row` by its largest magnitude, so that squares neither vanish nor overflow, then takes
// off what lies along the `done` unit rows before it. False if nothing of its own is left.
bool orthogonalise(std::span<double> row, const double* before, std::size_t done) {
  double most = 0;
  for (const double x : row) most = std::max(most, std::abs(x));
  if (most == 0) return false;
  for (double& x : row) x /= most;
  const double length = std::sqrt(dot(row.data(), row.data(), row.size()));
  double rest = length;
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t k = 0; k < done; ++k) {
      const double* unit = before + k * row.size();
      const double along = dot(unit, row.data(), row.size());
      for (std::size_t i = 0; i < row.size(); ++i) row[i] -= along * unit[i];
    }
    rest = std::sqrt(dot(row.data(), row.data(), row.size()));
    if (!(rest > kRest * length)) return false;
  }
  for (double& x : row) x /= rest;
  return true;
}

void gram_schmidt_twice(std::vector<double>& rows, std::size_t count, const RandomStream& fresh) {
  const std::size_t length = rows.size() / count;
  for (std::size_t k = 0; k < count; ++k) {
    const std::span<double> row(rows.data() + k * length, length);
    bool found = orthogonalise(row, rows.data(), k);
    for (std::uint64_t draw = 0; draw < kDraws && !found; ++draw) {
      const std::uint64_t first = (draw * count + k) * length;
      for (std::size_t i = 0; i < length; ++i) row[i] = fresh.normal(first + i);
      found = orthogonalise(row, rows.data(), k);
    }
    // Practically never; a projection on one direction fewer is a projection still.
    if (!found) std::fill(row.begin(), row.end(), 0.0);
  }
}

}  // namespace

template <typename T>
void orthonormalise(std::span<T> rows, std::size_t count, const RandomStream& fresh,
                    std::vector<double>& scratch) {
  constexpr bool kSingle = sizeof(T) == sizeof(float);
  scratch.assign(rows.begin(), rows.end());
  if (!kSingle) scale_rows(scratch, count);
  if (!cholesky_qr(scratch, count, kSingle ? kOneRound : 2)) {
    scratch.assign(rows.begin(), rows.end());
    gram_schmidt_twice(scratch, count, fresh);
  }
  std::transform(scratch.begin(), scratch.end(), rows.begin(),
                 [](double x) { return static_cast<T>(x); });
}
template void orthonormalise(std::span<float>, std::size_t, const RandomStream&,
                             std::vector<double>&);
template void orthonormalise(std::span<double>, std::size_t, const RandomStream&,
                             std::vector<double>&);

}  // namespace gradwire::cpu
