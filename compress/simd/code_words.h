// Codes of 1 to 8 bits to and from bytes: eight codes are as many bytes as they have bits
// (compress/qsgd/code_packing.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::cpu {

// Writes groups * bits bytes: codes[8 groups] in bit order. By the best instruction set.
void pack_words(int bits, const std::uint8_t* codes, std::size_t groups, std::byte* bytes);
// The reverse.
void unpack_words(int bits, const std::byte* bytes, std::size_t groups, std::uint8_t* codes);

}  // namespace gradwire::cpu
