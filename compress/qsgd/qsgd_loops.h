// The inner loops of qsgd over part of a bucket. simd::, for fp32, takes the best instruction set
// of the machine and gives the bits that plain:: gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/philox.h"
#include "compress/corrected.h"
#include "compress/qsgd/qsgd_arithmetic.h"
#include "compress/qsgd/qsgd_kernels.h"

namespace gradwire::cpu {

// The draws of elements that follow one another.
struct QsgdDraws {
  const std::uint8_t* bytes = nullptr;   // the first draws
  const RandomStream* stream = nullptr;  // of all
  std::uint64_t first = 0;               // the element, in its tensor, that bytes[0] is for

  QsgdDraws from(std::size_t i) const { return {bytes + i, stream, first + i}; }
};

namespace plain {

// The largest |p|; NaN if there is one: its bits are largest.
template <typename T>
T largest_magnitude(const Corrected<T>& p);
// codes[i] of p[i] with the draws of element i.
template <typename T>
void round_to_codes(const QsgdGrid& grid, QsgdScaling<T> scaling, const Corrected<T>& p,
                    const QsgdDraws& draws, std::uint8_t* codes);
// dst = or += what the codes stand for.
template <typename T>
void expand(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, bool add,
            std::span<T> dst);
// next = p - own_scale * what the codes stand for.
template <typename T>
void take_away(const QsgdGrid& grid, QsgdMagnitude<T> to, const std::uint8_t* codes, T own_scale,
               const Corrected<T>& p, T* next);

}  // namespace plain

// A sum that is made while the codes of another bucket are: onto + what the codes stand for.
struct QsgdSum {
  QsgdMagnitude<float> to;
  const std::uint8_t* codes = nullptr;
  const float* onto = nullptr;
  std::span<float> sum;
};
// The most elements that simd:: rounds in one call.
inline constexpr std::size_t kMostQsgdRounding = 512;
// A bucket to be rounded, with the draws of its elements.
struct QsgdRounding {
  QsgdScaling<float> scaling;
  std::span<const float> x;
  QsgdDraws draws;
  std::uint8_t* codes = nullptr;
};

namespace simd {

// round_to_codes() of one bucket while the next is read from memory: neither waits for the other.
// Returns the largest magnitude of `next`, as largest_magnitude(). Either may be empty.
float round_reading(const QsgdGrid& grid, const QsgdRounding& bucket, std::span<const float> next);
// The same of the sum that is made meanwhile.
float round_adding(const QsgdGrid& grid, const QsgdRounding& bucket, const QsgdSum& next);
void round_to_codes(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                    const QsgdDraws& draws, std::uint8_t* codes);
void expand(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes, bool add,
            std::span<float> dst);
void take_away(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes,
               float own_scale, const Corrected<float>& p, float* next);

}  // namespace simd
}  // namespace gradwire::cpu
