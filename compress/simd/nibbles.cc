#include "compress/simd/nibbles.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/simd/nibbles.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace nibbles_lanes {
namespace hn = hwy::HWY_NAMESPACE;

void simd_pack_nibbles(const std::uint8_t* codes, std::size_t count, std::uint8_t* bytes) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint8_t> pairs;
  const hn::ScalableTag<std::int16_t> words;
  const hn::Rebind<std::uint8_t, decltype(words)> half;
  const auto low_byte = hn::Set(words, 0xff);
  for (; i + hn::Lanes(words) <= count; i += hn::Lanes(words)) {
    const auto pair = hn::BitCast(words, hn::LoadU(pairs, codes + 2 * i));
    const auto both = hn::And(hn::Or(pair, hn::ShiftRight<4>(pair)), low_byte);
    hn::StoreU(hn::DemoteTo(half, both), half, bytes + i);
  }
#endif
  for (; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

void simd_unpack_nibbles(const std::uint8_t* bytes, std::size_t count, std::uint8_t* codes) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint8_t> pairs;
  const hn::ScalableTag<std::uint16_t> words;
  const hn::Rebind<std::uint8_t, decltype(words)> half;
  const auto low_bits = hn::Set(pairs, 0x0f);
  for (; i + hn::Lanes(words) <= count; i += hn::Lanes(words)) {
    const auto both = hn::PromoteTo(words, hn::LoadU(half, bytes + i));
    const auto pair = hn::BitCast(pairs, hn::Or(both, hn::ShiftLeft<4>(both)));
    hn::StoreU(hn::And(pair, low_bits), pairs, codes + 2 * i);
  }
#endif
  for (; i < count; ++i) {
    codes[2 * i] = bytes[i] & 0x0f;
    codes[2 * i + 1] = bytes[i] >> 4;
  }
}

}  // namespace nibbles_lanes

using nibbles_lanes::simd_pack_nibbles;
using nibbles_lanes::simd_unpack_nibbles;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_pack_nibbles);
HWY_EXPORT(simd_unpack_nibbles);

void pack_nibbles(const std::uint8_t* codes, std::size_t count, std::byte* bytes) {
  HWY_DYNAMIC_DISPATCH(simd_pack_nibbles)(codes, count, reinterpret_cast<std::uint8_t*>(bytes));
}
void unpack_nibbles(const std::byte* bytes, std::size_t count, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_unpack_nibbles)
  (reinterpret_cast<const std::uint8_t*>(bytes), count, codes);
}

}  // namespace gradwire::cpu
#endif
