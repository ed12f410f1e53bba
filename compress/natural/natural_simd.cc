// natural's loops for each instruction set: arithmetic on the bits of fp32.
#include "compress/natural/natural_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/natural/natural_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace natural_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_exponents(std::span<const float> x, const std::byte* draws, std::uint8_t* signs,
                    std::uint8_t* exponents) {
  plain::natural_exponents(x, draws, signs, exponents);
}
void simd_window(std::span<const float> x, const std::byte* draws, std::uint8_t* codes) {
  plain::natural_window(x, draws, codes);
}
void simd_values(const std::uint8_t* signs, const std::uint8_t* exponents, const float* onto,
                 std::span<float> dst) {
  plain::natural_values(signs, exponents, onto, dst);
}
void simd_window_values(const std::uint8_t* codes, const float* onto, std::span<float> dst) {
  plain::natural_window_values(codes, onto, dst);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr hn::ScalableTag<std::uint8_t> kCodes;
constexpr hn::Rebind<std::uint8_t, hn::ScalableTag<std::uint32_t> > kBytes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kRun = 4 * kLanes;  // elements whose codes fill a vector
using Words = hn::Vec<hn::ScalableTag<std::uint32_t> >;

HWY_INLINE Words carries(const std::byte* draws, std::size_t i) {
  const hn::Rebind<std::uint16_t, hn::ScalableTag<std::uint32_t> > halves_tag;
  const auto* words = reinterpret_cast<const std::uint16_t*>(draws);
  const auto draw = hn::PromoteTo(kWords, hn::LoadU(halves_tag, words + i));
  return hn::Or(hn::ShiftLeft<7>(draw), hn::Set(kWords, 64u));
}
HWY_INLINE void store_bytes(const Words* parts, std::uint8_t* to) {
  hn::Vec<Int32s> ints[4];
  for (std::size_t v = 0; v < 4; ++v) ints[v] = hn::BitCast(Int32s(), parts[v]);
  hn::StoreU(unsigned_bytes_of(halves(ints)), kCodes, to);
}

void simd_exponents(std::span<const float> x, const std::byte* draws, std::uint8_t* signs,
                    std::uint8_t* exponents) {
  const auto magnitude_bits = hn::Set(kWords, 0x7fffffffu);
  const auto infinity = hn::Set(kWords, kNaturalInfinity - 1);
  const auto zero = hn::Zero(kFloats);
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    Words parts[4];
    hn::Mask<decltype(kFloats)> below[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const std::size_t at = i + v * kLanes;
      const auto value = hn::LoadU(kFloats, x.data() + at);
      const auto magnitude = hn::And(hn::BitCast(kWords, value), magnitude_bits);
      const auto sum = hn::ShiftRight<23>(hn::Add(magnitude, carries(draws, at)));
      const auto rounded = hn::Min(sum, hn::Set(kWords, 254u));
      parts[v] =
          hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(kWords, kNaNExponent), rounded);
      below[v] = hn::Lt(value, zero);
    }
    for (std::size_t g = 0; g < kRun / kGroup; ++g) {
      fetch_ahead(x.data() + i + g * kGroup);
      store_group_bits(kFloats, below + g * (kGroup / kLanes), signs + (i + g * kGroup) / 8);
    }
    store_bytes(parts, exponents + i);
  }
  plain::natural_exponents(x.subspan(i), draws + 2 * i, signs + i / 8, exponents + i);
}

void simd_window(std::span<const float> x, const std::byte* draws, std::uint8_t* codes) {
  const auto magnitude_bits = hn::Set(kWords, 0x7fffffffu);
  const auto infinity = hn::Set(kWords, kNaturalInfinity - 1);
  const auto least = hn::Set(kWords, kLeastExponent << 23);
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    Words parts[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const std::size_t at = i + v * kLanes;
      if (v * kLanes % kGroup == 0) fetch_ahead(x.data() + at);
      const auto bits = hn::BitCast(kWords, hn::LoadU(kFloats, x.data() + at));
      const auto magnitude = hn::And(bits, magnitude_bits);
      const auto low = hn::BitCast(kFloats, hn::Min(magnitude, least));
      const auto lifted = hn::BitCast(kWords, hn::Add(low, hn::BitCast(kFloats, least)));
      const auto carry = carries(draws, at);
      const auto below =
          hn::Sub(hn::ShiftRight<23>(hn::Add(lifted, carry)), hn::Set(kWords, kLeastExponent));
      const auto within = hn::Sub(hn::ShiftRight<23>(hn::Add(magnitude, carry)),
                                  hn::Set(kWords, kLeastExponent - 1));
      const auto finite = hn::IfThenElse(hn::Lt(magnitude, least), below,
                                         hn::Min(within, hn::Set(kWords, kNaNCode - 1)));
      const auto code =
          hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Set(kWords, kNaNCode), finite);
      parts[v] = hn::Or(code, hn::ShiftLeft<7>(hn::ShiftRight<31>(bits)));
    }
    store_bytes(parts, codes + i);
  }
  plain::natural_window(x.subspan(i), draws + 2 * i, codes + i);
}

// to = value, or onto + value.
template <bool Onto>
HWY_INLINE void put(Words bits, const float* onto, float* to) {
  auto value = hn::BitCast(kFloats, bits);
  if constexpr (Onto) value = hn::Add(hn::LoadU(kFloats, onto), value);
  hn::StoreU(value, kFloats, to);
}

template <bool Onto>
HWY_INLINE std::size_t value_groups(const std::uint8_t* signs, const std::uint8_t* exponents,
                                    const float* onto, std::span<float> dst) {
  const auto minus = hn::Set(kWords, 0x80000000u);
  std::size_t i = 0;
  for (; i + kGroup <= dst.size(); i += kGroup) {
    const unsigned group = signs[i / 8] | static_cast<unsigned>(signs[i / 8 + 1]) << 8;
    for (std::size_t v = 0; v < kGroup / kLanes; ++v) {
      const std::size_t at = i + v * kLanes;
      const auto exponent = hn::PromoteTo(kWords, hn::LoadU(kBytes, exponents + at));
      const auto magnitude =
          hn::IfThenElse(hn::Eq(exponent, hn::Set(kWords, kNaNExponent)),
                         hn::Set(kWords, kNaturalNaN), hn::ShiftLeft<23>(exponent));
      const auto sign = hn::IfThenElseZero(group_mask(kWords, group, v), minus);
      put<Onto>(hn::Or(magnitude, sign), onto + at, dst.data() + at);
    }
  }
  return i;
}

void simd_values(const std::uint8_t* signs, const std::uint8_t* exponents, const float* onto,
                 std::span<float> dst) {
  if (onto != nullptr) {
    const std::size_t done = value_groups<true>(signs, exponents, onto, dst);
    plain::natural_values(signs + done / 8, exponents + done, onto + done, dst.subspan(done));
  } else {
    const std::size_t done = value_groups<false>(signs, exponents, dst.data(), dst);
    plain::natural_values(signs + done / 8, exponents + done, onto, dst.subspan(done));
  }
}

template <bool Onto>
HWY_INLINE std::size_t window_vectors(const std::uint8_t* codes, const float* onto,
                                      std::span<float> dst) {
  std::size_t i = 0;
  for (; i + kLanes <= dst.size(); i += kLanes) {
    const auto all = hn::PromoteTo(kWords, hn::LoadU(kBytes, codes + i));
    const auto code = hn::And(all, hn::Set(kWords, 127u));
    const auto lifted = hn::ShiftLeft<23>(hn::Add(code, hn::Set(kWords, kLeastExponent - 1)));
    const auto finite = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(kWords)), lifted);
    const auto magnitude = hn::IfThenElse(hn::Eq(code, hn::Set(kWords, kNaNCode)),
                                          hn::Set(kWords, kNaturalNaN), finite);
    put<Onto>(hn::Or(magnitude, hn::ShiftLeft<31>(hn::ShiftRight<7>(all))), onto + i,
              dst.data() + i);
  }
  return i;
}

void simd_window_values(const std::uint8_t* codes, const float* onto, std::span<float> dst) {
  if (onto != nullptr) {
    const std::size_t done = window_vectors<true>(codes, onto, dst);
    plain::natural_window_values(codes + done, onto + done, dst.subspan(done));
  } else {
    const std::size_t done = window_vectors<false>(codes, dst.data(), dst);
    plain::natural_window_values(codes + done, onto, dst.subspan(done));
  }
}

#endif
}  // namespace natural_lanes

using natural_lanes::simd_exponents;
using natural_lanes::simd_values;
using natural_lanes::simd_window;
using natural_lanes::simd_window_values;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_exponents);
HWY_EXPORT(simd_window);
HWY_EXPORT(simd_values);
HWY_EXPORT(simd_window_values);

void natural_exponents(std::span<const float> x, const std::byte* draws, std::uint8_t* signs,
                       std::uint8_t* exponents) {
  HWY_DYNAMIC_DISPATCH(simd_exponents)(x, draws, signs, exponents);
}
void natural_window(std::span<const float> x, const std::byte* draws, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_window)(x, draws, codes);
}
void natural_values(const std::uint8_t* signs, const std::uint8_t* exponents, const float* onto,
                    std::span<float> dst) {
  HWY_DYNAMIC_DISPATCH(simd_values)(signs, exponents, onto, dst);
}
void natural_window_values(const std::uint8_t* codes, const float* onto, std::span<float> dst) {
  HWY_DYNAMIC_DISPATCH(simd_window_values)(codes, onto, dst);
}

}  // namespace gradwire::cpu::simd
#endif
