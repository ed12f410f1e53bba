#include "compress/lossless/lossless_loops.h"

#include <algorithm>
#include <bit>

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/lossless/lossless_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace lossless_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_split(const float* x, LosslessBytes& bytes) {
  bytes.any = 0;
  bytes.base = 0;
  for (std::size_t i = 0; i < kLosslessBlock; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    bytes.exponents[i] = static_cast<std::uint8_t>(bits >> 23);
    bytes.tops[i] = static_cast<std::uint8_t>((bits >> 24 & 0x80u) | (bits >> 16 & 0x7fu));
    bytes.high[i] = static_cast<std::uint8_t>(bits >> 8);
    bytes.low[i] = static_cast<std::uint8_t>(bits);
    bytes.any |= bits;
    bytes.base = std::max(bytes.base, bytes.exponents[i]);
  }
  bytes.escapes.fill(0);
  for (std::size_t i = 0; i < kLosslessBlock; ++i) {
    bytes.distances[i] = static_cast<std::uint8_t>(bytes.base - bytes.exponents[i]);
    for (unsigned w = 1; w <= 8; ++w) {
      bytes.escapes[w - 1] += bytes.distances[i] >= (1u << w) - 1 ? 1 : 0;
    }
  }
}

std::size_t simd_codes(const LosslessBytes& bytes, std::uint8_t escape, std::uint8_t* codes,
                       std::uint8_t* exceptions) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < kLosslessBlock; ++i) {
    codes[i] = std::min(bytes.distances[i], escape);
    if (codes[i] == escape) exceptions[count++] = bytes.exponents[i];
  }
  return count;
}

void simd_merge(const LosslessRows& rows, bool add, float* to) {
  const auto of = [](const std::uint8_t* row, std::size_t i) -> std::uint32_t {
    return row == nullptr ? 0 : row[i];
  };
  for (std::size_t i = 0; i < kLosslessBlock; ++i) {
    const std::uint32_t top = of(rows.tops, i);
    const float value =
        std::bit_cast<float>(of(rows.exponents, i) << 23 | (top & 0x80u) << 24 |
                             (top & 0x7fu) << 16 | of(rows.high, i) << 8 | of(rows.low, i));
    to[i] = add ? to[i] + value : value;
  }
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr hn::ScalableTag<std::uint8_t> kCodes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kRun = 4 * kLanes;  // elements whose codes fill a vector
using Words = hn::Vec<hn::ScalableTag<std::uint32_t> >;
using Codes = hn::Vec<hn::ScalableTag<std::uint8_t> >;
static_assert(kLosslessBlock % kRun == 0);

// The lowest bytes of four vectors' lanes.
HWY_INLINE Codes low_bytes(const Words* parts) {
  hn::Vec<Int32s> ints[4];
  const auto mask = hn::Set(kWords, 0xffu);
  for (std::size_t v = 0; v < 4; ++v) ints[v] = hn::BitCast(Int32s(), hn::And(parts[v], mask));
  return unsigned_bytes_of(halves(ints));
}

void split_run(const float* x, std::size_t i, LosslessBytes& bytes, Words& any, Codes& base) {
  Words bits[4];
  Words part[4];
  for (std::size_t v = 0; v < 4; ++v) {
    bits[v] = hn::BitCast(kWords, hn::LoadU(kFloats, x + i + v * kLanes));
    any = hn::Or(any, bits[v]);
  }
  hn::StoreU(low_bytes(bits), kCodes, bytes.low.data() + i);
  for (std::size_t v = 0; v < 4; ++v) part[v] = hn::ShiftRight<8>(bits[v]);
  hn::StoreU(low_bytes(part), kCodes, bytes.high.data() + i);
  for (std::size_t v = 0; v < 4; ++v) part[v] = hn::ShiftRight<23>(bits[v]);
  const Codes exponents = low_bytes(part);
  base = hn::Max(base, exponents);
  hn::StoreU(exponents, kCodes, bytes.exponents.data() + i);
  for (std::size_t v = 0; v < 4; ++v) {
    const auto sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(bits[v]));
    const auto mantissa = hn::And(hn::ShiftRight<16>(bits[v]), hn::Set(kWords, 0x7fu));
    part[v] = hn::Or(sign, mantissa);
  }
  hn::StoreU(low_bytes(part), kCodes, bytes.tops.data() + i);
}

void simd_split(const float* x, LosslessBytes& bytes) {
  Words any = hn::Zero(kWords);
  Codes base = hn::Zero(kCodes);
  for (std::size_t i = 0; i < kLosslessBlock; i += kRun) {
    split_run(x, i, bytes, any, base);
  }
  alignas(64) std::uint32_t words[kLanes];
  hn::Store(any, kWords, words);
  bytes.any = 0;
  for (const std::uint32_t word : words) bytes.any |= word;
  alignas(64) std::uint8_t largest[kRun];
  hn::Store(base, kCodes, largest);
  bytes.base = *std::max_element(largest, largest + kRun);
  const Codes all_base = hn::Set(kCodes, bytes.base);
  for (std::size_t i = 0; i < kLosslessBlock; i += kRun) {
    const Codes exponents = hn::LoadU(kCodes, bytes.exponents.data() + i);
    hn::StoreU(hn::Sub(all_base, exponents), kCodes, bytes.distances.data() + i);
  }
  bytes.escapes.fill(0);
  for (unsigned w = 1; w <= 8; ++w) {
    const Codes least = hn::Set(kCodes, static_cast<std::uint8_t>((1u << w) - 1));
    std::size_t count = 0;
    for (std::size_t i = 0; i < kLosslessBlock; i += kRun) {
      const Codes distances = hn::LoadU(kCodes, bytes.distances.data() + i);
      count += hn::CountTrue(kCodes, hn::Eq(hn::Max(distances, least), distances));
    }
    bytes.escapes[w - 1] = count;
    if (count == 0) break;
  }
}

std::size_t simd_codes(const LosslessBytes& bytes, std::uint8_t escape, std::uint8_t* codes,
                       std::uint8_t* exceptions) {
  const Codes most = hn::Set(kCodes, escape);
  std::size_t count = 0;
  for (std::size_t i = 0; i < kLosslessBlock; i += kRun) {
    const Codes distances = hn::LoadU(kCodes, bytes.distances.data() + i);
    hn::StoreU(hn::Min(distances, most), kCodes, codes + i);
    std::uint64_t escapes = 0;
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(kCodes, hn::Eq(hn::Max(distances, most), distances), bits);
    hwy::CopyBytes<8>(bits, &escapes);
    if constexpr (kRun < 64) escapes &= (std::uint64_t{1} << kRun) - 1;
    for (; escapes != 0; escapes &= escapes - 1) {
      exceptions[count++] =
          bytes.exponents[i + static_cast<std::size_t>(std::countr_zero(escapes))];
    }
  }
  return count;
}

HWY_INLINE Words row_of(const std::uint8_t* row, std::size_t i) {
  const hn::Rebind<std::uint8_t, hn::ScalableTag<std::uint32_t> > bytes;
  if (row == nullptr) return hn::Zero(kWords);
  return hn::PromoteTo(kWords, hn::LoadU(bytes, row + i));
}

template <bool Add>
HWY_INLINE void merge(const LosslessRows& rows, float* to) {
  for (std::size_t i = 0; i < kLosslessBlock; i += kLanes) {
    const Words top = row_of(rows.tops, i);
    const Words sign = hn::ShiftLeft<31>(hn::ShiftRight<7>(top));
    const Words mantissa = hn::ShiftLeft<16>(hn::And(top, hn::Set(kWords, 0x7fu)));
    const Words front =
        hn::Or(hn::Or(sign, mantissa), hn::ShiftLeft<23>(row_of(rows.exponents, i)));
    const Words back = hn::Or(hn::ShiftLeft<8>(row_of(rows.high, i)), row_of(rows.low, i));
    auto value = hn::BitCast(kFloats, hn::Or(front, back));
    if constexpr (Add) value = hn::Add(hn::LoadU(kFloats, to + i), value);
    hn::StoreU(value, kFloats, to + i);
  }
}

void simd_merge(const LosslessRows& rows, bool add, float* to) {
  add ? merge<true>(rows, to) : merge<false>(rows, to);
}

#endif
}  // namespace lossless_lanes

using lossless_lanes::simd_codes;
using lossless_lanes::simd_merge;
using lossless_lanes::simd_split;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_split);
HWY_EXPORT(simd_codes);
HWY_EXPORT(simd_merge);

void lossless_split(const float* x, LosslessBytes& bytes) {
  HWY_DYNAMIC_DISPATCH(simd_split)(x, bytes);
}
std::size_t lossless_codes(const LosslessBytes& bytes, std::uint8_t escape, std::uint8_t* codes,
                           std::uint8_t* exceptions) {
  return HWY_DYNAMIC_DISPATCH(simd_codes)(bytes, escape, codes, exceptions);
}
void lossless_merge(const LosslessRows& rows, bool add, float* to) {
  HWY_DYNAMIC_DISPATCH(simd_merge)(rows, add, to);
}

}  // namespace gradwire::cpu
#endif
