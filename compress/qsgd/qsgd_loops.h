// The inner loops of qsgd over part of a bucket. simd::, for fp32, takes the best instruction set
// of the machine and gives the bits that plain:: gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/corrected.h"
#include "compress/qsgd/qsgd_kernels.h"

namespace gradwire::cpu {

// What turns x into 256 levels: (x * before) * by. `before` is a power of two that keeps `by` a
// normal number for the smallest and largest norms.
template <typename T>
struct QsgdScaling {
  T before = 1;
  T by = 0;
};

// What turns a level into a magnitude: norm * (level * step).
template <typename T>
struct QsgdMagnitude {
  T norm = 0;
  T step = 0;
};

namespace plain {

// The largest |p|; NaN if there is one: its bits are largest.
template <typename T>
T largest_magnitude(const Corrected<T>& p);
// codes[i] of p[i] with draw i.
template <typename T>
void round_to_codes(const QsgdGrid& grid, QsgdScaling<T> scaling, const Corrected<T>& p,
                    const std::uint8_t* draws, std::uint8_t* codes);
// dst = or += what the codes stand for.
template <typename T>
void expand(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, bool add,
            std::span<T> dst);
// next = p - own_scale * what the codes stand for.
template <typename T>
void take_away(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, T own_scale,
               const Corrected<T>& p, T* next);

}  // namespace plain

namespace simd {

void round_to_codes(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                    const std::uint8_t* draws, std::uint8_t* codes);
void expand(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes, bool add,
            std::span<float> dst);
void take_away(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes,
               float own_scale, const Corrected<float>& p, float* next);

}  // namespace simd
}  // namespace gradwire::cpu
