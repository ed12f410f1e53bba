// A block of lossless at every width, bit by bit; the shortest one is what the encoder must write.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "tests/reference/bits_reference.h"

namespace gradwire::testing {

template <typename T>
struct LosslessReference {
  static constexpr bool kWide = sizeof(T) == 8;
  static constexpr int kMantissa = kWide ? 52 : 23;
  static constexpr int kTopMantissa = kWide ? 4 : 7;
  static constexpr int kPlanes = kWide ? 6 : 2;

  static std::uint64_t bits_of(T x) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof(T));
    return bits;
  }
  static unsigned exponent_of(T x) {
    return static_cast<unsigned>(bits_of(x) >> kMantissa) & (kWide ? 2047u : 255u);
  }
  static std::uint64_t mantissa_of(T x) {
    return bits_of(x) & ((std::uint64_t{1} << kMantissa) - 1);
  }

  static void put_exponent(BitsReference& out, unsigned exponent) {
    out.put(exponent, kWide ? 16 : 8);
  }

  // Zero bytes of all mantissas from the lowest on; kPlanes + 1 if signs and mantissas are all 0.
  static int omitted_of(std::span<const T> x) {
    std::uint64_t mantissas = 0;
    bool minus = false;
    for (const T v : x) {
      mantissas |= mantissa_of(v);
      minus = minus || std::signbit(v);
    }
    if (mantissas == 0 && !minus) return kPlanes + 1;
    int omitted = 0;
    while (omitted < kPlanes && (mantissas >> (8 * omitted) & 0xff) == 0) ++omitted;
    return omitted;
  }

  static std::vector<std::uint8_t> block(std::span<const T> x, int width) {
    unsigned base = 0;
    for (const T v : x) base = std::max(base, exponent_of(v));
    const int omitted = omitted_of(x);
    const unsigned escape = (1u << width) - 1;
    std::vector<unsigned> exceptions;
    for (const T v : x) {
      if (width > 0 && base - exponent_of(v) >= escape) exceptions.push_back(exponent_of(v));
    }
    BitsReference out;
    out.put(static_cast<std::uint64_t>(width + 16 * omitted), 8);
    put_exponent(out, base);
    out.put(exceptions.size(), 16);
    for (const T v : x) out.put(std::min(base - exponent_of(v), escape), width);
    out.align();
    for (const unsigned exponent : exceptions) put_exponent(out, exponent);
    if (omitted <= kPlanes) {
      for (const T v : x) {
        out.put(mantissa_of(v) >> (kMantissa - kTopMantissa), kTopMantissa);
        out.put(std::signbit(v) ? 1 : 0, 1);
      }
      out.align();
      for (int plane = kPlanes - 1; plane >= omitted; --plane) {
        for (const T v : x) out.put(mantissa_of(v) >> (8 * plane) & 0xff, 8);
      }
    }
    return out.bytes();
  }

  static std::vector<std::uint8_t> encode(std::span<const T> x) {
    std::vector<std::uint8_t> all;
    for (std::size_t begin = 0; begin < x.size(); begin += 512) {
      const auto part = x.subspan(begin, std::min<std::size_t>(512, x.size() - begin));
      bool same = true;
      for (const T v : part) same = same && exponent_of(v) == exponent_of(part[0]);
      std::vector<std::uint8_t> best;
      for (int width = same ? 0 : 1; width <= (same ? 0 : 8); ++width) {
        const auto one = block(part, width);
        if (best.empty() || one.size() < best.size()) best = one;
      }
      if (best.size() >= 1 + part.size() * sizeof(T)) {
        best.assign(1 + part.size() * sizeof(T), 0xff);
        std::memcpy(best.data() + 1, part.data(), part.size() * sizeof(T));
      }
      all.insert(all.end(), best.begin(), best.end());
    }
    return all;
  }
};

}  // namespace gradwire::testing
