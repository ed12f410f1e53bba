// Codes of four bits: two to a byte, the first low.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::cpu {

// bytes[i] = codes[2 i] | codes[2 i + 1] << 4 for i < count; codes are below 16.
void pack_nibbles(const std::uint8_t* codes, std::size_t count, std::byte* bytes);
// The reverse, of `count` bytes.
void unpack_nibbles(const std::byte* bytes, std::size_t count, std::uint8_t* codes);

}  // namespace gradwire::cpu
