// minmax and absmax one element and one bit at a time, from the format's definition in
// compress/uniform/uniform_grid.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "compress/uniform/uniform_grid.h"
#include "tests/reference/bits_reference.h"
#include "tests/reference/hadamard_reference.h"

namespace gradwire::testing {

template <typename T>
struct UniformReference {
  UniformGrid grid;

  // fp32, not below (above) value.
  static float up(double value) {
    const auto near = static_cast<float>(value);
    return static_cast<double>(near) < value
               ? std::nextafter(near, std::numeric_limits<float>::infinity())
               : near;
  }
  static float down(double value) { return -up(-value); }

  T levels_per_scale() const {
    if (!grid.symmetric) return static_cast<T>((1 << grid.bits) - 1);
    if (grid.bits == 1) return grid.stochastic ? T{0.5} : T{1};
    return static_cast<T>((1 << (grid.bits - 1)) - 1);
  }
  T zero() const {
    if (!grid.symmetric) return 0;
    return grid.bits == 1 ? T{0.5} : levels_per_scale();
  }
  int most() const {
    if (!grid.symmetric || grid.bits == 1) return (1 << grid.bits) - 1;
    return (1 << grid.bits) - 2;
  }
  T value(float base, float scale, int code) const {
    const T step = T{1} / levels_per_scale();
    return static_cast<T>(base) + static_cast<T>(scale) * ((static_cast<T>(code) - zero()) * step);
  }

  int code_of(float base, float scale, T x, double draw) const {
    T before = 1;
    if (sizeof(T) == 4 && scale < 0x1p-90f) before = static_cast<T>(0x1p64);
    if (sizeof(T) == 4 && scale > 0x1p90f) before = static_cast<T>(0x1p-64);
    const T by = levels_per_scale() / (static_cast<T>(scale) * before);
    const T a = (x - static_cast<T>(base)) * before * by + zero();
    if (!grid.stochastic) return std::min(static_cast<int>(std::nearbyint(a)), most());
    const int whole = static_cast<int>(a);
    return std::min(whole + (static_cast<T>(draw) < a - static_cast<T>(whole) ? 1 : 0), most());
  }

  std::vector<std::uint8_t> encode(const SliceKey& key, std::span<const T> x) const {
    BitsReference out;
    for (std::size_t begin = 0; begin < x.size(); begin += grid.bucket) {
      const std::size_t count = std::min(grid.bucket, x.size() - begin);
      std::vector<T> bucket(x.begin() + static_cast<std::ptrdiff_t>(begin),
                            x.begin() + static_cast<std::ptrdiff_t>(begin + count));
      if (grid.hadamard) hadamard_reference(key, begin, bucket);
      encode_bucket(key, begin, bucket, out);
    }
    return out.bytes();
  }

  void encode_bucket(const SliceKey& key, std::size_t begin, const std::vector<T>& x,
                     BitsReference& out) const {
    const bool finite = std::all_of(x.begin(), x.end(), [](T v) { return std::isfinite(v); });
    std::size_t low_at = 0;
    std::size_t high_at = x.size() > 1 ? 1 : 0;
    if (finite && grid.spikes) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (before(x[i], x[low_at])) low_at = i;
      }
      high_at = x.size() > 1 && low_at == 0 ? 1 : 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (i != low_at && before(x[high_at], x[i])) high_at = i;
      }
    }
    std::vector<std::size_t> rest;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!grid.spikes || (i != low_at && i != high_at)) rest.push_back(i);
    }
    auto [base, scale] = grid_over(x, rest, finite);
    std::vector<int> codes(x.size());
    if (scale > 0) {
      for (const std::size_t i : rest) {
        const double draw = grid.stochastic ? dither_reference(key, begin + i) : 0;
        codes[i] = code_of(base, scale, x[i], draw);
      }
    }
    if (grid.guard && scale > 0 && worse_than_zeros(x, rest, codes, base, scale)) {
      base = scale = 0;
      codes.assign(x.size(), 0);
    }
    out.align();
    if (!grid.symmetric) out.put_value(base);
    out.put_value(scale);
    if (grid.spikes) {
      out.put_value(static_cast<std::uint16_t>(low_at));
      out.put_value(static_cast<std::uint16_t>(high_at));
      out.put_value(finite ? x[low_at] : T{0});
      out.put_value(finite ? x[high_at] : T{0});
    }
    for (const int code : codes) out.put(static_cast<std::uint64_t>(code), grid.bits);
  }

  // -0 stands before +0.
  static bool before(T a, T b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }

  std::pair<float, float> grid_over(const std::vector<T>& x, const std::vector<std::size_t>& rest,
                                    bool finite) const {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    if (!finite) return {nan, nan};
    if (rest.empty()) return {0.0f, 0.0f};
    T low = x[rest[0]];
    T high = low;
    for (const std::size_t i : rest) {
      if (before(x[i], low)) low = x[i];
      if (before(high, x[i])) high = x[i];
    }
    float base = 0;
    float scale = 0;
    if (grid.symmetric) {
      scale = up(std::max(std::abs(static_cast<double>(low)), std::abs(static_cast<double>(high))));
    } else {
      base = down(static_cast<double>(low));
      scale = up(static_cast<double>(high) - static_cast<double>(base));
    }
    if (!std::isfinite(base) || !std::isfinite(scale) ||
        !std::isfinite(value(base, scale, most()))) {
      return {nan, nan};
    }
    return {base, scale};
  }

  bool worse_than_zeros(const std::vector<T>& x, const std::vector<std::size_t>& rest,
                        const std::vector<int>& codes, float base, float scale) const {
    double error = 0;
    double square = 0;
    for (const std::size_t i : rest) {
      const double v = static_cast<double>(x[i]);
      const double e = static_cast<double>(value(base, scale, codes[i])) - v;
      error += e * e;
      square += v * v;
    }
    return error > square;
  }
};

}  // namespace gradwire::testing
