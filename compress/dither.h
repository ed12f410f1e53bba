// The draws of stochastic rounding: 16 bits an element, two elements to a word of the Philox stream
// (seed, kDither, tensor, rank, stage, step). Element e has half e % 2 (the low one first) of word
// e / 2, e counted in the tensor: the same under any slicing and after a restart.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/philox.h"
#include "compress/kernel_format.h"
#include "compress/simd/dither_bytes.h"

namespace gradwire {

class Dither {
 public:
  static constexpr std::size_t kMost = 512;  // draws made at a time

  explicit Dither(const SliceKey& key)
      : stream_(key.seed, RandomUse::kDither, key.slice.tensor, key.slice.rank, key.slice.stage,
                key.slice.step),
        first_(static_cast<std::uint64_t>(key.slice.first)) {}

  // Draws of elements begin, begin + 1, ... of the slice, two bytes each, 0 ... 65535; count <=
  // kMost. Valid until the next call.
  const std::byte* of(std::size_t begin, std::size_t count) {
    const std::uint64_t element = first_ + begin;
    const std::size_t skip = element % kBlock;
    cpu::dither_words(stream_, element / kBlock, (skip + count + kBlock - 1) / kBlock,
                      bytes_.data());
    return reinterpret_cast<const std::byte*>(bytes_.data()) + 2 * skip;
  }

 private:
  static constexpr std::size_t kBlock = 8;  // draws of a Philox block

  RandomStream stream_;
  std::uint64_t first_;
  alignas(64) std::array<std::uint8_t, 2 * (kMost + 2 * kBlock)> bytes_;
};

}  // namespace gradwire
