// Methods with shared scales, one element and one rank at a time and with a matrix where the
// library has butterflies: slow, obvious, the oracle for the coders. Written from the definitions
// in compress/terngrad/terngrad.h, compress/global_qsgd/global_qsgd.h and compress/thc/thc.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/philox.h"

namespace gradwire::testing {

using Vector = std::vector<double>;
using Codes = std::vector<std::uint64_t>;

inline double draw_at(const RandomStream& draws, std::uint64_t element) {
  const std::uint32_t word = draws.word(element / 2);
  return ((element % 2 == 0 ? word & 0xffffu : word >> 16) + 0.5) / 65536;
}

inline float up_to_float(double value) {
  auto up = static_cast<float>(value);
  if (static_cast<double>(up) < value) up = std::nextafter(up, 3e38f);
  return up;
}

inline double length_of(const Vector& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}
inline double largest_in(const Vector& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

// Elements that share a scale, prepared; `first` is the first one's place in the tensor.
struct ReferenceBucket {
  std::vector<Vector> by_rank;
  std::size_t first = 0;
  double scale = 0;

  void share(const std::function<float(const Vector&)>& scale_of) {
    for (const Vector& x : by_rank) scale = std::max(scale, static_cast<double>(scale_of(x)));
  }
};

// s + sign(x) (floor(a) + [u < a - floor(a)]), a = |x| s / scale.
inline std::uint64_t level_code(double x, double scale, int s, double u) {
  if (scale == 0) return 0;
  const double a = std::min(std::abs(x) * (s / scale), static_cast<double>(s));
  const double level = std::floor(a) + (u < a - std::floor(a) ? 1 : 0);
  return static_cast<std::uint64_t>(s + (x < 0 ? -level : level));
}

// Words whose lanes hold the sums of up to `limit`.
inline std::vector<std::uint32_t> lane_words(const Codes& codes, std::uint64_t limit) {
  std::size_t width = 0;
  while ((limit >> width) != 0) ++width;
  const std::size_t lanes = 32 / width;
  std::vector<std::uint32_t> words((codes.size() + lanes - 1) / lanes);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (std::size_t bit = 0; bit < width; ++bit) {
      if (((codes[i] >> bit) & 1) != 0) words[i / lanes] |= 1u << (width * (i % lanes) + bit);
    }
  }
  return words;
}

inline Vector clipped(Vector x, double clip) {
  const double rms = length_of(x) / std::sqrt(static_cast<double>(x.size()));
  const double s = static_cast<double>(up_to_float(std::min(largest_in(x), clip * rms)));
  for (double& value : x) value = std::clamp(value, -s, s);
  return x;
}

// y_j = sum over i of (-1)^(bits of i and j) sign_i x_i / sqrt(n), n a power of two.
inline Vector hadamard(const Vector& x, std::size_t first, const RandomStream& signs) {
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t e = first + i;
    const bool minus = ((signs.word(e / 32) >> (e % 32)) & 1) != 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const bool odd = std::popcount(i & j) % 2 == 1;
      y[j] += (odd == minus ? x[i] : -x[i]) / std::sqrt(static_cast<double>(x.size()));
    }
  }
  return y;
}

}  // namespace gradwire::testing
