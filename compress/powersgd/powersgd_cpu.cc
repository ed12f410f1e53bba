#include <algorithm>
#include <cmath>
#include <vector>

#include "compress/powersgd/powersgd_kernels.h"

namespace gradwire::cpu {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = 1024;  // columns of M that stay in the cache for all directions

template <typename T>
T dot(const T* x, const T* y, std::size_t count) {
  T lane[kLanes] = {};
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) lane[j] += x[i + j] * y[i + j];
  }
  for (std::size_t i = whole; i < count; ++i) lane[i - whole] += x[i] * y[i];
  T sum = 0;
  for (const T part : lane) sum += part;
  return sum;
}

// y += factor * x
template <typename T>
void add_scaled(T factor, const T* x, T* y, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) y[i] += factor * x[i];
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
      add_scaled(-dot(unit, row.data(), row.size()), unit, row.data(), row.size());
    }
    rest = std::sqrt(dot(row.data(), row.data(), row.size()));
    if (!(rest > kRest * length)) return false;
  }
  for (double& x : row) x /= rest;
  return true;
}

}  // namespace

template <typename T>
void times(std::span<const T> m, std::span<const T> qt, const ThinShape& shape, std::span<T> pt) {
  std::fill(pt.begin(), pt.end(), T{0});
  for (std::size_t i = 0; i < shape.a; ++i) {
    for (std::size_t j = 0; j < shape.c; j += kBlock) {
      const std::size_t count = std::min(kBlock, shape.c - j);
      for (std::size_t k = 0; k < shape.r; ++k) {
        pt[k * shape.a + i] += dot(&m[i * shape.c + j], &qt[k * shape.c + j], count);
      }
    }
  }
}

template <typename T>
void transposed_times(std::span<const T> m, std::span<const T> pt, const ThinShape& shape,
                      std::span<T> qt) {
  std::fill(qt.begin(), qt.end(), T{0});
  for (std::size_t j = 0; j < shape.c; j += kBlock) {
    const std::size_t count = std::min(kBlock, shape.c - j);
    for (std::size_t i = 0; i < shape.a; ++i) {
      for (std::size_t k = 0; k < shape.r; ++k) {
        add_scaled(pt[k * shape.a + i], &m[i * shape.c + j], &qt[k * shape.c + j], count);
      }
    }
  }
}

template <typename T>
void product(std::span<const T> pt, std::span<const T> qt, const ThinShape& shape, std::span<T> m) {
  for (std::size_t i = 0; i < shape.a; ++i) {
    for (std::size_t j = 0; j < shape.c; j += kBlock) {
      const std::size_t count = std::min(kBlock, shape.c - j);
      T* row = &m[i * shape.c + j];
      std::fill(row, row + count, T{0});
      for (std::size_t k = 0; k < shape.r; ++k) {
        add_scaled(pt[k * shape.a + i], &qt[k * shape.c + j], row, count);
      }
    }
  }
}

template <typename T>
void orthonormalise(std::span<T> rows, std::size_t count, const RandomStream& fresh) {
  const std::size_t length = rows.size() / count;
  std::vector<double> wide(rows.begin(), rows.end());
  for (std::size_t k = 0; k < count; ++k) {
    const std::span<double> row(wide.data() + k * length, length);
    bool found = orthogonalise(row, wide.data(), k);
    for (std::uint64_t draw = 0; draw < kDraws && !found; ++draw) {
      const std::uint64_t first = (draw * count + k) * length;
      for (std::size_t i = 0; i < length; ++i) row[i] = fresh.normal(first + i);
      found = orthogonalise(row, wide.data(), k);
    }
    // Practically never; a projection on one direction fewer is a projection still.
    if (!found) std::fill(row.begin(), row.end(), 0.0);
  }
  std::transform(wide.begin(), wide.end(), rows.begin(),
                 [](double x) { return static_cast<T>(x); });
}

#define GW_POWERSGD_KERNELS(T)                                                                    \
  template void times<T>(std::span<const T>, std::span<const T>, const ThinShape&, std::span<T>); \
  template void transposed_times<T>(std::span<const T>, std::span<const T>, const ThinShape&,     \
                                    std::span<T>);                                                \
  template void product<T>(std::span<const T>, std::span<const T>, const ThinShape&,              \
                           std::span<T>);                                                         \
  template void orthonormalise<T>(std::span<T>, std::size_t, const RandomStream&)
GW_POWERSGD_KERNELS(float);
GW_POWERSGD_KERNELS(double);
#undef GW_POWERSGD_KERNELS

}  // namespace gradwire::cpu
