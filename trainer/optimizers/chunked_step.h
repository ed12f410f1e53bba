// An optimizer's step over parameters whose gradient comes a chunk at a time: from another arena,
// or out of fewer bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire {

// Chunk by chunk: the chunk's gradient is read to memory of its own, the optimizer updates the
// master's, and whoever wants it is told of the new values.
// Source, of a step in the host's arena: Ren et al., "ZeRO-Offload: democratizing billion-scale
// model training", USENIX ATC 2021, section 4.
class ChunkedStep {
 public:
  // `chunk`: elements, 1 or more, of `elems` in all. Memory for a chunk is the arena's, of class
  // `what`; where gradients are copied to the host for it, the link counts them (null: they lie in
  // the same arena).
  static Result<ChunkedStep> create(const MemoryArena& arena, MemoryClass what,
                                    std::shared_ptr<MemoryLink> link, std::int64_t chunk,
                                    std::int64_t elems);
  ChunkedStep() = default;

  // Where a gradient comes from: `read` writes its elements [first, first + part.size()), which
  // take `width` bytes each where they lie.
  struct Source {
    std::function<Status(std::size_t first, std::span<float> part)> read;
    std::size_t width = sizeof(float);
  };
  // Borrowed, as they are, and where they are: from a device they come when its stream has come
  // there, for which `read` waits.
  static Source from(std::span<const float> gradients, const MemoryArena& arena = {});

  // Elements [first, first + part.size()) of the master have these values now.
  using Updated = std::function<Status(std::size_t first, std::span<const float> part)>;
  // As optimizer.step(), with its bits (but for lengths, of a method of two passes).
  Status run(Optimizer& optimizer, std::span<float> master, const Source& gradients, double lr,
             const Updated& updated);
  // One chunk of it, elements [first, first + count), after optimizer.begin_step() of a method of
  // one pass: each element once, in any order, from one thread at a time. count: at most chunk().
  Status part(Optimizer& optimizer, std::span<float> master, const Source& gradients,
              std::size_t first, std::size_t count, const Updated& updated);
  std::size_t chunk() const { return chunk_; }

 private:
  Status first_pass(Optimizer& optimizer, std::span<float> master, const Source& gradients,
                    std::size_t first, std::size_t count);

  std::shared_ptr<MemoryLink> link_;
  std::size_t chunk_ = 1;
  Buffer arrived_;  // the chunk's gradient
};

}  // namespace gradwire
