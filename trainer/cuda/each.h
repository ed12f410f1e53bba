// Kernels that write one value a thread.
#pragma once

#include <cstdint>

#include "device/cuda/launch.h"

namespace gradwire::cuda {

// each(i) for i of 0 .. count - 1.
template <class Each>
struct EachIndex {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  std::int64_t count;
  Each each;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t stride = block.blocks() * kThreads;
    for (std::int64_t i = block.block() * kThreads + block.thread(); i < count; i += stride) {
      each(i);
    }
  }
};

template <class Each>
Status for_each(const char* name, std::int64_t count, const Each& each, const Stream& stream) {
  const EachIndex<Each> kernel{count, each};
  const std::int64_t blocks = blocks_for(count, EachIndex<Each>::kThreads);
  return launch(name, kernel, blocks < kMostBlocks ? blocks : kMostBlocks, stream);
}

}  // namespace gradwire::cuda
