// Codes of up to 32 bits one after another: bit j of the stream is bit j % 8 of byte j / 8.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compress/little_endian.h"
#include "gradwire/tensor.h"

namespace gradwire {

class BitWriter {
 public:
  // `out` has room for all that will be put.
  explicit BitWriter(ByteSpan out) : out_(out.data()) {}

  // The low `width` bits of `code`, whose other bits are 0. 0 <= width <= 32.
  void put(std::uint32_t code, int width) {
    held_ |= std::uint64_t{code} << bits_;
    bits_ += width;
    if (bits_ < 32) return;
    store_le(out_ + bytes_, static_cast<std::uint32_t>(held_));
    bytes_ += 4;
    held_ >>= 32;
    bits_ -= 32;
  }

  // Fills the last byte with zeros. Returns the bytes written.
  std::size_t finish() {
    for (; bits_ > 0; bits_ -= 8, held_ >>= 8) out_[bytes_++] = static_cast<std::byte>(held_);
    bits_ = 0;
    return bytes_;
  }

 private:
  std::byte* out_;
  std::size_t bytes_ = 0;
  std::uint64_t held_ = 0;  // bits_ of them, below 32 between calls
  int bits_ = 0;
};

class BitReader {
 public:
  explicit BitReader(ConstByteSpan in) : in_(in) {}

  // The next `width` bits, 0 <= width <= 32. Bits beyond the end read as 0.
  std::uint32_t get(int width) {
    if (bits_ < width) refill();
    const auto code = static_cast<std::uint32_t>(held_ & ((std::uint64_t{1} << width) - 1));
    held_ >>= width;
    bits_ -= width;
    return code;
  }

  // Is what was not read all zeros?
  bool rest_is_clear() const {
    return held_ == 0 && std::all_of(in_.begin() + static_cast<std::ptrdiff_t>(next_), in_.end(),
                                     [](std::byte b) { return b == std::byte{0}; });
  }

 private:
  void refill() {
    const std::size_t count = std::min<std::size_t>(4, in_.size() - next_);
    std::uint32_t word = 0;
    std::memcpy(&word, in_.data() + next_, count);
    next_ += count;
    held_ |= std::uint64_t{word} << bits_;
    bits_ += 32;
  }

  ConstByteSpan in_;
  std::size_t next_ = 0;
  std::uint64_t held_ = 0;  // bits_ of them
  int bits_ = 0;
};

}  // namespace gradwire
