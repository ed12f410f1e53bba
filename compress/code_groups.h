// Codes of 1 to 8 bits that start at a byte: a little-endian bit stream, eight codes in as many
// bytes as they have bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/qsgd/code_packing.h"
#include "compress/simd/code_words.h"

namespace gradwire {

constexpr std::size_t code_bytes(std::size_t codes, int bits) {
  return (codes * static_cast<std::size_t>(bits) + 7) / 8;
}

// `codes` has room for up to 7 beyond `count`, which become 0. Writes code_bytes(count, bits).
inline void write_codes(int bits, std::uint8_t* codes, std::size_t count, std::byte* bytes) {
  const std::size_t groups = count / 8;
  cpu::pack_words(bits, codes, groups, bytes);
  const std::size_t rest = count % 8;
  if (rest == 0) return;
  std::uint8_t* last = codes + 8 * groups;
  std::fill(last + rest, last + 8, std::uint8_t{0});
  std::array<std::byte, 8> tail{};
  pack_codes(bits, last, 1, tail.data());
  std::copy_n(tail.begin(), code_bytes(rest, bits),
              bytes + groups * static_cast<std::size_t>(bits));
}

// `codes` has room for up to 7 beyond `count`. False if free bits of the last byte are set.
[[nodiscard]] inline bool read_codes(int bits, const std::byte* bytes, std::size_t count,
                                     std::uint8_t* codes) {
  const std::size_t groups = count / 8;
  cpu::unpack_words(bits, bytes, groups, codes);
  const std::size_t rest = count % 8;
  if (rest == 0) return true;
  std::array<std::byte, 8> tail{};
  std::copy_n(bytes + groups * static_cast<std::size_t>(bits), code_bytes(rest, bits),
              tail.begin());
  std::uint8_t* last = codes + 8 * groups;
  unpack_codes(bits, tail.data(), 1, last);
  const std::size_t used = rest * static_cast<std::size_t>(bits) % 8;
  return used == 0 || std::to_integer<unsigned>(tail[code_bytes(rest, bits) - 1]) >> used == 0;
}

}  // namespace gradwire
