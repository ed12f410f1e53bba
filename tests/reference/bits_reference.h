// A little-endian bit stream and the dither of an element, one at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "compress/kernel_format.h"

namespace gradwire::testing {

class BitsReference {
 public:
  void put(std::uint64_t code, int bits) {
    for (int k = 0; k < bits; ++k) {
      if (used_ % 8 == 0) bytes_.push_back(0);
      if (((code >> k) & 1) != 0) bytes_.back() |= static_cast<std::uint8_t>(1u << (used_ % 8));
      ++used_;
    }
  }
  // The next value starts at a byte.
  void align() { used_ = (used_ + 7) / 8 * 8; }
  template <typename T>
  void put_value(T value) {
    align();
    std::uint8_t bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    for (const std::uint8_t byte : bytes) put(byte, 8);
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t used_ = 0;
};

// In (0, 1), a multiple of 2^-17.
inline double dither_reference(const SliceKey& key, std::size_t i) {
  const RandomStream draws(key.seed, RandomUse::kDither, key.slice.tensor, key.slice.rank,
                           key.slice.stage, key.slice.step);
  const std::uint64_t element = static_cast<std::uint64_t>(key.slice.first) + i;
  const std::uint32_t word = draws.word(element / 2);
  return ((element % 2 == 0 ? word & 0xffffu : word >> 16) + 0.5) / 65536;
}

}  // namespace gradwire::testing
