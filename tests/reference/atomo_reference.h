// Slow oracles for acpsgd and atomo: a step's factors by elimination, chances by raising the water
// bit by bit, singular values by one-sided rotations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "tests/reference/powersgd_reference.h"

namespace gradwire::reference {

// What one rank of acpsgd contributes: m projected on the row space that q's columns span (even
// steps), or on p's columns (odd ones).
inline Matrix acpsgd_own(const Matrix& m, const Matrix& factor, bool even) {
  return even ? transpose(project(factor, transpose(m))) : project(factor, m);
}

// p_k = min(1, l_k t) with the level t found by bisection, so that they sum to the budget.
inline std::vector<double> water_levels(const std::vector<double>& weight, double budget) {
  const auto at = [&weight](double level) {
    std::vector<double> p;
    for (const double l : weight) p.push_back(std::min(1.0, l * level));
    return p;
  };
  double low = 0;
  double high = 1e12;
  for (int i = 0; i < 300; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const double p : at(middle)) sum += p;
    (sum < budget ? low : high) = middle;
  }
  return at(low);
}

// Descending; by Jacobi's one-sided rotations of the rows.
inline std::vector<double> singular_values(Matrix m) {
  if (m.rows > m.cols) m = transpose(m);
  const auto dot = [&m](std::size_t x, std::size_t y) {
    Wide sum = 0;
    for (std::size_t j = 0; j < m.cols; ++j) sum += m.at(x, j) * m.at(y, j);
    return sum;
  };
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (std::size_t x = 0; x < m.rows; ++x) {
      for (std::size_t y = x + 1; y < m.rows; ++y) {
        const Wide cross = dot(x, y);
        if (cross == 0) continue;
        const Wide angle = std::atan2(2 * cross, dot(x, x) - dot(y, y)) / 2;
        const Wide c = std::cos(angle);
        const Wide s = std::sin(angle);
        for (std::size_t j = 0; j < m.cols; ++j) {
          const Wide a = m.at(x, j);
          const Wide b = m.at(y, j);
          m.at(x, j) = c * a + s * b;
          m.at(y, j) = c * b - s * a;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::size_t x = 0; x < m.rows; ++x) {
    values.push_back(static_cast<double>(std::sqrt(dot(x, x))));
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  return values;
}

}  // namespace gradwire::reference
