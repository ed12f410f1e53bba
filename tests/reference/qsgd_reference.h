// QSGD one element at a time and one bit at a time: slow, obvious, the oracle for the fast kernels.
// Written from the format's definition in compress/qsgd/qsgd.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/philox.h"

namespace gradwire::testing {

struct QsgdReference {
  int levels;
  std::size_t bucket = 512;
  bool l2 = false;

  int bits() const {
    int width = 1;
    while ((1 << (width - 1)) < levels + 1) ++width;
    return width;
  }

  template <typename T>
  float norm(std::span<const T> x) const {
    double lanes[16] = {};
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!std::isfinite(x[i])) return std::numeric_limits<float>::quiet_NaN();
      largest = std::max(largest, std::abs(static_cast<double>(x[i])));
      lanes[i % 16] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    if (l2) {
      for (int half = 8; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
      }
      largest = std::max(largest, std::sqrt(lanes[0]));
    }
    if (largest > static_cast<double>(std::numeric_limits<float>::max())) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    float up = static_cast<float>(largest);
    if (static_cast<double>(up) < largest) up = std::nextafter(up, 3e38f);
    return up;
  }

  template <typename T>
  std::vector<std::uint8_t> encode(std::span<const T> x, const RandomStream& draws,
                                   std::uint64_t first) const {
    std::vector<std::uint8_t> bytes;
    std::vector<bool> stream;
    for (std::size_t begin = 0; begin < x.size(); begin += bucket) {
      const auto part = x.subspan(begin, std::min(bucket, x.size() - begin));
      const float n = norm(part);
      const auto norm_bits = std::bit_cast<std::uint32_t>(n);
      for (int k = 0; k < 4; ++k) bytes.push_back(static_cast<std::uint8_t>(norm_bits >> (8 * k)));
      for (std::size_t i = 0; i < part.size(); ++i) {
        const int level = n > 0 ? level_of(part[i], n, draws, first + begin + i) : 0;
        for (int k = 0; k < bits() - 1; ++k) stream.push_back(((std::abs(level) >> k) & 1) != 0);
        stream.push_back(level < 0);
      }
    }
    const std::size_t start = bytes.size();
    bytes.resize(start + (stream.size() + 7) / 8);
    for (std::size_t j = 0; j < stream.size(); ++j) {
      if (stream[j]) bytes[start + j / 8] |= static_cast<std::uint8_t>(1u << (j % 8));
    }
    return bytes;
  }

  static int draw_of(const RandomStream& draws, std::uint64_t element) {
    const std::array<std::uint32_t, 4> block = draws.block<7>(element / 16);
    return static_cast<int>(block[element % 16 / 4] >> (8 * (element % 4)) & 0xffu);
  }

  // Of the upper 24 bits of a word.
  static double second_draw_of(const RandomStream& draws, std::uint64_t element) {
    const std::array<std::uint32_t, 4> block = draws.block<7>(0x8000000000000000u + element / 4);
    return static_cast<double>(block[element % 4] / 256) / 16777216;
  }

  // With its sign.
  template <typename T>
  int level_of(T x, float norm, const RandomStream& draws, std::uint64_t element) const {
    T before = 1;
    if (sizeof(T) == 4 && norm < 0x1p-90f) before = static_cast<T>(0x1p64);
    if (sizeof(T) == 4 && norm > 0x1p90f) before = static_cast<T>(0x1p-64);
    const T exact = x * before * (static_cast<T>(256 * levels) / (static_cast<T>(norm) * before));
    const auto a = static_cast<double>(exact);
    const double near = sizeof(T) == 4 ? 0x1p-22 : 0x1p-51;
    double place = std::floor(a);
    if (std::abs(a - std::round(a)) <= near * std::abs(a)) {
      place = std::round(a);
    } else {
      const double u = second_draw_of(draws, element);
      const bool up = a < 0 ? u >= place + 1 - a : u < a - place;
      if (up) place += 1;
    }
    return static_cast<int>(std::floor((place + draw_of(draws, element)) / 256));
  }
};

}  // namespace gradwire::testing
