// A searcher's random numbers: one after another, from one seed, the same on any machine.
#pragma once

#include <array>
#include <cstdint>

#include "base/philox.h"

namespace gradwire {

class SearchDraws {
 public:
  explicit SearchDraws(std::uint64_t seed) : key_(mix64(seed)) {}

  // 0 to end - 1; end from 1.
  int below(int end) {
    return static_cast<int>(std::uint64_t{word()} * static_cast<std::uint64_t>(end) >> 32);
  }
  // In [0, 1).
  double uniform() { return static_cast<double>(word()) * 0x1p-32; }

 private:
  std::uint32_t word() {
    const std::uint64_t block = next_ / 4;
    if (next_ % 4 == 0) {
      words_ = philox4x32(
          {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
          {static_cast<std::uint32_t>(key_), static_cast<std::uint32_t>(key_ >> 32)});
    }
    return words_[next_++ % 4];
  }

  std::uint64_t key_;
  std::uint64_t next_ = 0;
  std::array<std::uint32_t, 4> words_{};
};

}  // namespace gradwire
