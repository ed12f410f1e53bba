// Draws of eight bits, four to each word of Philox4x32-7.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/philox.h"

namespace gradwire::cpu {

inline constexpr std::size_t kBlockDraws = 16;  // of one Philox block

// Writes 16 * blocks bytes: the blocks first, first + 1, ... of `stream` with 7 rounds, their words
// in order, little-endian. Byte k of the stream is the draw of element k: the same on any
// instruction set and under any slicing. Source: Salmon et al., SC 2011, table 2: 7 rounds are the
// fewest that pass BigCrush.
void dither_bytes(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                  std::uint8_t* bytes);

// The same of the blocks with ten rounds: their words are RandomStream::word()'s.
void dither_words(const RandomStream& stream, std::uint64_t first, std::size_t blocks,
                  std::uint8_t* bytes);

// The draws of neighbouring elements, made some hundred at a time.
class ByteDither {
 public:
  static constexpr std::size_t kMost = 512;

  explicit ByteDither(const RandomStream& stream) : stream_(stream) {}
  const RandomStream& stream() const { return stream_; }
  // The draws of elements first ... first + count - 1; count <= kMost. Valid until the next call.
  const std::uint8_t* of(std::uint64_t first, std::size_t count) {
    const std::size_t skip = first % kBlockDraws;
    dither_bytes(stream_, first / kBlockDraws, (skip + count + kBlockDraws - 1) / kBlockDraws,
                 bytes_);
    return bytes_ + skip;
  }

 private:
  RandomStream stream_;
  alignas(64) std::uint8_t bytes_[kMost + 2 * kBlockDraws];
};

}  // namespace gradwire::cpu
