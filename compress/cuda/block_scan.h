// Sums across the threads of a block.
#pragma once

#include <cstdint>

#include "device/cuda/launch.h"

namespace gradwire::cuda {

template <unsigned Threads>
struct ScanShared {
  std::uint32_t warps[Threads / 32];
};

struct Scanned {
  std::uint32_t before;  // the sum of what threads in front give
  std::uint32_t total;   // of all
};

// All threads of the block call it, and may again at once.
template <class Block, unsigned Threads>
GW_DEVICE Scanned scan(Block& block, ScanShared<Threads>& shared, std::uint32_t mine) {
  std::uint32_t sum = mine;
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint32_t other = block.shuffle(sum, (block.lane() + 32 - step) % 32);
    sum += block.lane() >= step ? other : 0;
  }
  if (block.lane() == 31) shared.warps[block.warp()] = sum;
  block.barrier();
  Scanned result{sum - mine, 0};
  for (unsigned w = 0; w < Threads / 32; ++w) {
    const std::uint32_t of_warp = shared.warps[w];
    result.before += w < block.warp() ? of_warp : 0;
    result.total += of_warp;
  }
  block.barrier();
  return result;
}

}  // namespace gradwire::cuda
