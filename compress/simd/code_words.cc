#include "compress/simd/code_words.h"

#include <cstring>

#include "compress/qsgd/code_packing.h"
#include "compress/simd/nibbles.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/simd/code_words.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace code_words_lanes {

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

// One instruction takes the low bits of eight bytes together, or apart. Whole words are moved while
// what follows them is the range's own, too.
HWY_INLINE std::uint64_t places_of(int bits) {
  return 0x0101010101010101u * ((std::uint64_t{1} << bits) - 1);
}

void simd_pack(int bits, const std::uint8_t* codes, std::size_t groups, std::byte* bytes) {
  const std::uint64_t places = places_of(bits);
  const auto length = static_cast<std::size_t>(bits);
  std::size_t g = 0;
  for (; g * length + 8 <= groups * length; ++g) {
    std::uint64_t apart;
    std::memcpy(&apart, codes + 8 * g, 8);
    const std::uint64_t together = _pext_u64(apart, places);
    std::memcpy(bytes + g * length, &together, 8);
  }
  with_code_bits(
      bits, [&]<int Bits>() { pack_groups<Bits>(codes + 8 * g, groups - g, bytes + g * length); });
}

void simd_unpack(int bits, const std::byte* bytes, std::size_t groups, std::uint8_t* codes) {
  const std::uint64_t places = places_of(bits);
  const auto length = static_cast<std::size_t>(bits);
  std::size_t g = 0;
  for (; g * length + 8 <= groups * length; ++g) {
    std::uint64_t together;
    std::memcpy(&together, bytes + g * length, 8);
    const std::uint64_t apart = _pdep_u64(together, places);
    std::memcpy(codes + 8 * g, &apart, 8);
  }
  with_code_bits(bits, [&]<int Bits>() {
    unpack_groups<Bits>(bytes + g * length, groups - g, codes + 8 * g);
  });
}

#else

void simd_pack(int bits, const std::uint8_t* codes, std::size_t groups, std::byte* bytes) {
  pack_codes(bits, codes, groups, bytes);
}
void simd_unpack(int bits, const std::byte* bytes, std::size_t groups, std::uint8_t* codes) {
  unpack_codes(bits, bytes, groups, codes);
}

#endif

}  // namespace code_words_lanes

using code_words_lanes::simd_pack;
using code_words_lanes::simd_unpack;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_pack);
HWY_EXPORT(simd_unpack);

void pack_words(int bits, const std::uint8_t* codes, std::size_t groups, std::byte* bytes) {
  if (bits == 8) {
    std::memcpy(bytes, codes, 8 * groups);
  } else if (bits == 4) {
    pack_nibbles(codes, 4 * groups, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(simd_pack)(bits, codes, groups, bytes);
  }
}
void unpack_words(int bits, const std::byte* bytes, std::size_t groups, std::uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, bytes, 8 * groups);
  } else if (bits == 4) {
    unpack_nibbles(bytes, 4 * groups, codes);
  } else {
    HWY_DYNAMIC_DISPATCH(simd_unpack)(bits, bytes, groups, codes);
  }
}

}  // namespace gradwire::cpu
#endif
