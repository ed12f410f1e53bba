// A slow oracle for one step of powersgd, by another way: no Gram-Schmidt, the projection on the
// columns of P as P (P^T P)^-1 P^T, by elimination in long double.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace gradwire::reference {

using Wide = long double;

struct Matrix {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::vector<Wide> data;  // row-major
  Matrix(std::size_t n, std::size_t m) : rows(n), cols(m), data(n * m) {}
  Wide& at(std::size_t i, std::size_t j) { return data[i * cols + j]; }
  Wide at(std::size_t i, std::size_t j) const { return data[i * cols + j]; }
};

inline Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.cols);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < b.cols; ++j) {
      for (std::size_t k = 0; k < a.cols; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

inline Matrix transpose(const Matrix& a) {
  Matrix t(a.cols, a.rows);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.cols; ++j) t.at(j, i) = a.at(i, j);
  }
  return t;
}

// x with a x = b; a square and regular, by elimination with row exchange.
inline Matrix solve(Matrix a, Matrix b) {
  for (std::size_t k = 0; k < a.rows; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k + 1; i < a.rows; ++i) {
      if (std::fabs(a.at(i, k)) > std::fabs(a.at(pivot, k))) pivot = i;
    }
    for (std::size_t j = 0; j < a.cols; ++j) std::swap(a.at(k, j), a.at(pivot, j));
    for (std::size_t j = 0; j < b.cols; ++j) std::swap(b.at(k, j), b.at(pivot, j));
    for (std::size_t i = 0; i < a.rows; ++i) {
      if (i == k) continue;
      const Wide factor = a.at(i, k) / a.at(k, k);
      for (std::size_t j = k; j < a.cols; ++j) a.at(i, j) -= factor * a.at(k, j);
      for (std::size_t j = 0; j < b.cols; ++j) b.at(i, j) -= factor * b.at(k, j);
    }
  }
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < b.cols; ++j) b.at(i, j) /= a.at(i, i);
  }
  return b;
}

// Projects m on the columns of p, which are independent.
inline Matrix project(const Matrix& p, const Matrix& m) {
  const Matrix pt = transpose(p);
  return multiply(p, solve(multiply(pt, p), multiply(pt, m)));
}

}  // namespace gradwire::reference
