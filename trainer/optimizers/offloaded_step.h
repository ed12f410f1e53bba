// An optimizer's step in the host's arena, of gradients that lie in the device's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/optimizer.h"

namespace gradwire {

// Chunk by chunk: the gradient's chunk is copied to the host, the optimizer updates the master's,
// and whoever wants it is told of the new values. Copies to the host count in the link.
// Source: Ren et al., "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021,
// section 4.
class OffloadedStep {
 public:
  // `chunk`: elements, 1 or more, of `elems` in all. The optimizer's state and the master lie in
  // places.host.
  static Result<OffloadedStep> create(const MemoryPlaces& places, std::int64_t chunk,
                                      std::int64_t elems);
  OffloadedStep() = default;

  // Elements [first, first + part.size()) of the master have these values now.
  using Updated = std::function<Status(std::size_t first, std::span<const float> part)>;
  // As optimizer.step(), with its bits; kUnsupported for a method that takes no parts.
  Status run(Optimizer& optimizer, std::span<float> master, std::span<const float> gradients,
             double lr, const Updated& updated);

 private:
  MemoryPlaces places_;
  std::size_t chunk_ = 1;
  Buffer arrived_;  // the chunk's gradient
};

}  // namespace gradwire
