// b-bit codes to and from bytes, eight at a time: eight codes are one 64-bit word, folded in three
// steps (pairs, fours, eights) into 8 b bits, which are b bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compress/little_endian.h"

namespace gradwire {

// One code in each byte of `spread` -> the low 8 Bits bits, the first code lowest.
template <int Bits>
constexpr std::uint64_t fold_codes(std::uint64_t spread) {
  constexpr int kGap = 8 - Bits;
  spread = (spread & 0x00ff00ff00ff00ffu) | (spread & 0xff00ff00ff00ff00u) >> kGap;
  spread = (spread & 0x0000ffff0000ffffu) | (spread & 0xffff0000ffff0000u) >> (2 * kGap);
  return (spread & 0x00000000ffffffffu) | (spread & 0xffffffff00000000u) >> (4 * kGap);
}

// The reverse; bits above 8 Bits are ignored.
template <int Bits>
constexpr std::uint64_t spread_codes(std::uint64_t folded) {
  constexpr int kGap = 8 - Bits;
  constexpr std::uint64_t kFour = (std::uint64_t{1} << (4 * Bits)) - 1;
  constexpr std::uint64_t kTwo = ((std::uint64_t{1} << (2 * Bits)) - 1) * 0x0000000100000001u;
  constexpr std::uint64_t kOne = ((std::uint64_t{1} << Bits) - 1) * 0x0001000100010001u;
  std::uint64_t x = (folded & kFour) | ((folded >> (4 * Bits)) & kFour) << 32;
  x = (x & kTwo) | (x & (kTwo << (2 * Bits))) << (2 * kGap);
  return (x & kOne) | (x & (kOne << Bits)) << kGap;
}

// Writes groups * Bits bytes: codes[8 groups] in bit order.
template <int Bits>
void pack_groups(const std::uint8_t* codes, std::size_t groups, std::byte* bytes) {
  const auto* from = reinterpret_cast<const std::byte*>(codes);
  for (std::size_t g = 0; g < groups; ++g) {
    const std::uint64_t folded = fold_codes<Bits>(load_le<std::uint64_t>(from, g));
    std::memcpy(bytes + g * Bits, &folded, Bits);
  }
}

// Reads groups * Bits bytes.
template <int Bits>
void unpack_groups(const std::byte* bytes, std::size_t groups, std::uint8_t* codes) {
  auto* to = reinterpret_cast<std::byte*>(codes);
  std::size_t g = 0;
  if constexpr (Bits != 1 && Bits != 2 && Bits != 4 &&
                Bits != 8) {  // whole words while they are there
    for (; g * Bits + 8 <= groups * Bits; ++g) {
      store_le(to, spread_codes<Bits>(load_le<std::uint64_t>(bytes + g * Bits)), g);
    }
  }
  for (; g < groups; ++g) {
    std::uint64_t folded = 0;
    std::memcpy(&folded, bytes + g * Bits, Bits);
    store_le(to, spread_codes<Bits>(folded), g);
  }
}

// The same for a width known at run time, 1 ... 8.
template <typename Call>
void with_code_bits(int bits, const Call& call) {
  switch (bits) {
    case 1: return call.template operator()<1>();
    case 2: return call.template operator()<2>();
    case 3: return call.template operator()<3>();
    case 4: return call.template operator()<4>();
    case 5: return call.template operator()<5>();
    case 6: return call.template operator()<6>();
    case 7: return call.template operator()<7>();
    default: return call.template operator()<8>();
  }
}
inline void pack_codes(int bits, const std::uint8_t* codes, std::size_t groups, std::byte* bytes) {
  with_code_bits(bits, [&]<int Bits>() { pack_groups<Bits>(codes, groups, bytes); });
}
inline void unpack_codes(int bits, const std::byte* bytes, std::size_t groups,
                         std::uint8_t* codes) {
  with_code_bits(bits, [&]<int Bits>() { unpack_groups<Bits>(bytes, groups, codes); });
}

}  // namespace gradwire
