// device/cuda/launch.h on the host, for kernels that run when their stream comes to them. Blocks
// run by themselves, in a random order; the threads of a block take turns, handing over where they
// wait for one another: the first thread first in some blocks, the last one first in others. So
// what depends on an order shows. A kernel whose threads wait for one that never comes ends the
// program and says so.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "device/cuda/launch.h"
#include "tests/emulation/queues.h"

namespace gradwire::emulation {

// As a launch on `stream` begins: it must be one of the thread's device, which counts it.
cudaError_t begin_launch(cudaStream_t stream);

// The turns of a block's threads, which are not those of the system: this one runs them all.
class Turns {
 public:
  // Runs thread(0) ... thread(threads - 1), each until it returns, or the last one first.
  static void run(unsigned threads, bool forward, const std::function<void(unsigned)>& thread);
  // Of the thread that runs now: lets the others go on until it has its next turn.
  static void give_way();
  // Something happened that others may wait for. When all have had a turn without it, the program
  // ends.
  static void note_progress();
};

inline constexpr unsigned kLanes = 32;

// What the threads of a block know of one another.
struct BlockState {
  std::int64_t block = 0;
  std::int64_t blocks = 0;
  unsigned threads = 0;
  unsigned arrived = 0;        // at the barrier that is next
  std::uint64_t barriers = 0;  // that all have passed
  struct Warp {
    std::uint64_t exchanges = 0;  // that all lanes have come to
    unsigned arrived = 0;         // at the next one
    // Of this exchange and the one before, which a slower lane may still read.
    std::array<std::array<std::uint32_t, kLanes>, 2> given{};
  };
  std::vector<Warp> warps = {};
};

// Runs thread(block, t) for all threads t of all blocks. shared: of the block that runs, full of
// what is no zeros when one begins.
void run_grid(const BlockState& grid, void* shared, std::size_t shared_bytes,
              const std::function<void(BlockState& block, unsigned thread)>& thread);

class EmulatedBlock {
 public:
  EmulatedBlock(BlockState& state, unsigned thread) : state_(state), thread_(thread) {}

  unsigned thread() const { return thread_; }
  unsigned warp() const { return thread_ / kLanes; }
  unsigned lane() const { return thread_ % kLanes; }
  std::int64_t block() const { return state_.block; }
  std::int64_t blocks() const { return state_.blocks; }

  void barrier() {
    const std::uint64_t passed = state_.barriers;
    Turns::note_progress();
    if (++state_.arrived == state_.threads) {
      state_.arrived = 0;
      ++state_.barriers;
      return;
    }
    while (state_.barriers == passed) Turns::give_way();
  }
  std::uint32_t ballot(bool mine) {
    const auto& given = exchange(mine ? 1 : 0);
    std::uint32_t bits = 0;
    for (unsigned i = 0; i < kLanes; ++i) bits |= given[i] << i;
    return bits;
  }
  bool any(bool mine) { return ballot(mine) != 0; }
  void warp_barrier() { exchange(0); }
  template <typename T>
  T shuffle(T mine, unsigned lane) {
    static_assert(sizeof(T) == 4);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &mine, 4);
    T theirs;
    std::memcpy(&theirs, &exchange(bits)[lane % kLanes], 4);
    return theirs;
  }

  std::uint32_t add(std::uint32_t* to, std::uint32_t value) {
    const std::uint32_t before = *to;
    *to = before + value;
    return before;
  }
  std::uint32_t most(std::uint32_t* to, std::uint32_t value) {
    const std::uint32_t before = *to;
    *to = std::max(before, value);
    return before;
  }
  std::uint64_t least(std::uint64_t* to, std::uint64_t value) {
    const std::uint64_t before = *to;
    *to = std::min(before, value);
    return before;
  }

 private:
  // What every lane gives. The result lives until the lane's next exchange but one.
  const std::array<std::uint32_t, kLanes>& exchange(std::uint32_t mine) {
    BlockState::Warp& warp = state_.warps[thread_ / kLanes];
    const std::uint64_t number = warp.exchanges;
    auto& given = warp.given[number % 2];
    given[lane()] = mine;
    Turns::note_progress();
    if (++warp.arrived == kLanes) {
      warp.arrived = 0;
      ++warp.exchanges;
    } else {
      while (warp.exchanges == number) Turns::give_way();
    }
    return given;
  }

  BlockState& state_;
  unsigned thread_;
};

}  // namespace gradwire::emulation

namespace gradwire::cuda {

template <class Kernel>
void run_blocks(const Kernel& kernel, unsigned blocks) {
  typename Kernel::Shared shared;
  emulation::run_grid({.blocks = blocks, .threads = Kernel::kThreads}, &shared, sizeof(shared),
                      [&](emulation::BlockState& state, unsigned thread) {
                        emulation::EmulatedBlock block(state, thread);
                        kernel.run(block, shared);
                      });
}

template <class Kernel>
cudaError_t start(const Kernel& kernel, unsigned blocks, cudaStream_t stream) {
  static_assert(Kernel::kThreads % emulation::kLanes == 0 && Kernel::kThreads <= 1024);
  if (const cudaError_t error = emulation::begin_launch(stream); error != cudaSuccess) return error;
  emulation::enqueue(stream, [kernel, blocks] { run_blocks(kernel, blocks); });
  return cudaSuccess;
}

}  // namespace gradwire::cuda
