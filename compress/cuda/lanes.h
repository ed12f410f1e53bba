// Values of several words from other lanes of a warp.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "device/cuda/launch.h"

namespace gradwire::cuda {

// What lane `lane` gives; T is trivially copyable, of whole words. All lanes call it.
template <class Block, class T>
GW_DEVICE T from_lane(Block& block, const T& mine, unsigned lane) {
  using Words = std::array<std::uint32_t, sizeof(T) / 4>;
  Words words = std::bit_cast<Words>(mine);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = block.shuffle(words[i], lane % 32);
  return std::bit_cast<T>(words);
}

// mine.join() of all lanes' values, in no order that anything may hang on: every lane gets it.
template <class Block, class T>
GW_DEVICE T of_all_lanes(Block& block, T mine) {
  for (unsigned step = 16; step > 0; step /= 2) {
    mine.join(from_lane(block, mine, block.lane() ^ step));
  }
  return mine;
}

}  // namespace gradwire::cuda
