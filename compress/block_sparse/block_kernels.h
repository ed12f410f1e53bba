// Host kernels of block_sparse, which look at bits alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/little_endian.h"
#include "gradwire/tensor.h"

namespace gradwire::cpu {

// The numbers of those blocks of `block_bytes` bytes (the last may be shorter) that have a bit set,
// ascending. Both sizes are multiples of 4. One pass; of a block that has one, about as much as
// lies in front of it.
void find_blocks(ConstByteSpan bytes, std::size_t block_bytes, std::vector<std::uint32_t>& blocks);

namespace plain {

// Whether a bit is set in `count` 32-bit words from `words` on.
inline bool any_bit(const std::byte* words, std::size_t count) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) bits |= load_le<std::uint32_t>(words, i);
  return bits != 0;
}

}  // namespace plain

namespace simd {

// As plain::, by the best instruction set of the machine; asks for memory behind the words.
bool any_bit(const std::byte* words, std::size_t count);

}  // namespace simd
}  // namespace gradwire::cpu
