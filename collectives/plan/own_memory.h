// Memory of gradwire's own that operations borrow and hand back: for fused tensors and scaled
// inputs.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "collectives/engine/scratch_pool.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Any thread. Held by a shared_ptr, which what it lends keeps alive.
class OwnMemory : public std::enable_shared_from_this<OwnMemory> {
 public:
  explicit OwnMemory(ScratchPool pool = ScratchPool()) : pool_(std::move(pool)) {}

  // At least `bytes` bytes on `device`, contents unspecified; null for 0 bytes. It comes back when
  // the last copy of the pointer goes.
  Result<std::shared_ptr<std::byte>> lend(std::size_t bytes, Device device);

 private:
  std::mutex mutex_;
  ScratchPool pool_;
};

}  // namespace gradwire
