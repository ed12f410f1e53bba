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
#include "compress/little_endian.h"

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
    const std::size_t skip = element % 2;
    stream_.words(element / 2, std::span(words_).first((skip + count + 1) / 2));
    return reinterpret_cast<const std::byte*>(words_.data()) + 2 * skip;
  }

 private:
  RandomStream stream_;
  std::uint64_t first_;
  std::array<std::uint32_t, kMost / 2 + 1> words_;
};

}  // namespace gradwire
