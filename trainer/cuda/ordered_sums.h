// Sums over threads in an order that never changes.
#pragma once

#include <cstdint>

#include "device/cuda/launch.h"

namespace gradwire::cuda {

// The sum of the warp's values from lane 0 on, on every lane. `of_warp`: 32 shared values of the
// warp's own.
template <typename T, class Block>
GW_DEVICE T sum_of_warp(Block& block, T* of_warp, T mine) {
  of_warp[block.lane()] = mine;
  block.warp_barrier();
  T sum = of_warp[0];
  for (int lane = 1; lane < 32; ++lane) sum += of_warp[lane];
  block.warp_barrier();
  return sum;
}

// The sum of the block's values, halves upon halves, on every thread. `of_block`: a shared value
// for each of its `Threads`, a power of two.
template <unsigned Threads, typename T, class Block>
GW_DEVICE T sum_of_block(Block& block, T* of_block, T mine) {
  const unsigned thread = block.thread();
  of_block[thread] = mine;
  block.barrier();
  for (unsigned half = Threads / 2; half > 0; half /= 2) {
    if (thread < half) of_block[thread] += of_block[thread + half];
    block.barrier();
  }
  const T sum = of_block[0];
  block.barrier();
  return sum;
}

}  // namespace gradwire::cuda
