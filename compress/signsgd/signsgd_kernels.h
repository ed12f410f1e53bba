// Host kernels of signsgd. T is float or double. Bit i of `bits` is bit i % 8 of byte i / 8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/corrected.h"
#include "gradwire/tensor.h"

namespace gradwire::cpu {

// |v| summed in double over 16 lanes, element i of the bucket in lane i % 16, so that the result is
// the same however the loop is vectorised or cut.
using SumLanes = std::array<double, 16>;
inline double total(const SumLanes& lanes) {  // in order
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Adds |p| to the lanes and, if `bits` is not null, writes bits[0, p.size) = p < 0: ceil(size/8)
// bytes, unused bits 0. Calls for one bucket but the last take multiples of 16 elements. The lanes
// are finite after it if p is (fp32).
template <typename T>
void sum_and_pack(const Corrected<T>& p, SumLanes& lanes, std::byte* bits);

// bits[0, values.size()) = v < 0: ceil(size/8) bytes, unused bits 0.
template <typename T>
void pack_signs(std::span<const T> values, std::byte* bits) {
  SumLanes unused{};
  sum_and_pack(Corrected<T>(values), unused, bits);
}

// next = p - (bit first + i of `bits` ? -scale : +scale); p.residual is not null.
template <typename T>
void take_away(const Corrected<T>& p, const std::byte* bits, std::size_t first, T scale, T* next);

// False if bits that no element uses are set in `last`, the last byte of `elems` > 0 codes of
// `width` bits (1 or 2).
constexpr bool unused_bits_clear(std::byte last, std::size_t elems, std::size_t width) {
  const std::size_t used = elems * width % 8;
  return used == 0 || std::to_integer<unsigned>(last) >> used == 0;
}

// dst = (add: +=) bit first + i of `bits` ? -scale : +scale.
template <typename T>
void unpack_signs(const std::byte* bits, std::size_t first, T scale, bool add, std::span<T> dst);

// dst[i] = sign of the sum over payloads of their signs (bit i: minus), 0 on a tie. Each payload
// has ceil(dst.size()/8) bytes; fewer than 2^15 payloads.
template <typename T>
void count_votes(std::span<const ConstByteSpan> payloads, std::span<T> dst);

// Two bits an element: 0 for 0, 1 for above, 2 for below; ceil(m/4) bytes, unused bits 0.
template <typename T>
void pack_votes(std::span<const T> sums, std::byte* votes);

// dst = (add: +=) -1, 0 or +1. False if a code is 3, dst then unspecified.
template <typename T>
bool unpack_votes(const std::byte* votes, bool add, std::span<T> dst);

}  // namespace gradwire::cpu
