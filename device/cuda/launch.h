// How kernels are written and started, so that one source runs on a device and, in tests, on the
// host.
//
// A kernel is a trivially copyable value, its parameters being members:
//   static constexpr unsigned kThreads           threads of a block, a multiple of 32
//   struct Shared                                what a block's threads share; uninitialised
//   template <class Block> GW_DEVICE void run(Block& block, Shared& shared) const
// run() is what each thread does. The arithmetic of an element stands in constexpr functions that
// host kernels may call too; all else that a device offers comes from Block:
//   thread(), warp(), lane()     of the block, of the block, of the warp
//   block(), blocks()            of the grid
//   barrier()                    of all threads of the block
//   any(bool), ballot(bool)      of all 32 lanes of the warp; ballot: bit i is lane i's
//   shuffle(value, lane)         another lane's value (32 bits)
//   warp_barrier()               of all lanes of the warp; what they wrote is seen behind it
//   add(to, value), least(to, value), most(to, value)
//                                atomic on memory of block or grid; give what was there before
// All lanes of a warp call the four of the warp together, and all threads of a block barrier().
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "device/cuda/cuda_status.h"
#include "device/cuda/memory.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

#ifdef __CUDACC__
#define GW_DEVICE __device__ __forceinline__
#else
#define GW_DEVICE
#endif

namespace gradwire::cuda {

struct NothingShared {};

// What starts `blocks` > 0 blocks: of cuda_launch.h on devices, of tests/emulation on the host.
template <class Kernel>
cudaError_t start(const Kernel& kernel, unsigned blocks, cudaStream_t stream);

inline constexpr std::int64_t kGridLimit = 0x7fffffff;  // CUDA's
// kInvalidArgument, naming both.
Status too_many_blocks(const char* name, std::int64_t blocks);

// Enqueues the kernel on `stream`, whose device is the thread's (OnDevice); none of 0 blocks.
// `name` names it in errors. kInvalidArgument for more blocks than CUDA has.
template <class Kernel>
Status launch(const char* name, const Kernel& kernel, std::int64_t blocks, const Stream& stream) {
  if (blocks == 0) return {};
  if (blocks > kGridLimit) return too_many_blocks(name, blocks);
  return status_of(start(kernel, static_cast<unsigned>(blocks), native(stream)), name);
}

constexpr std::int64_t blocks_for(std::int64_t items, std::int64_t items_per_block) {
  return (items + items_per_block - 1) / items_per_block;
}

// Enough for every multiprocessor several times over; kernels that are started with fewer blocks
// than items stride over the rest.
inline constexpr std::int64_t kMostBlocks = 16384;

}  // namespace gradwire::cuda

#ifdef __CUDACC__
#include "device/cuda/cuda_launch.h"
#endif
