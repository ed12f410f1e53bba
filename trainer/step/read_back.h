// Numbers that a device computes for the host, and their way back.
#pragma once

#include <cstddef>
#include <span>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

// Room for some numbers on a device, and beside it on the host. Used by one thread at a time.
class ReadBack {
 public:
  // The arena is of a device; its stream is the one that read() waits for.
  static Result<ReadBack> create(const MemoryArena& arena, std::size_t bytes);
  ReadBack() = default;

  // Where kernels write: memory of the device.
  template <typename T>
  std::span<T> there() const {
    return {reinterpret_cast<T*>(there_.bytes().data()), there_.bytes().size() / sizeof(T)};
  }
  // What is there when all has run that the stream was given; valid until the next call. Waits.
  template <typename T>
  Result<std::span<const T>> read() const {
    GW_TRY(fetch());
    return std::span<const T>(reinterpret_cast<const T*>(here_.bytes().data()),
                              here_.bytes().size() / sizeof(T));
  }
  // What is there becomes `values`, as many as it has room for. Waits.
  template <typename T>
  Status write(std::span<const T> values) const {
    return send(std::as_bytes(values));
  }

 private:
  Status fetch() const;
  Status send(ConstByteSpan bytes) const;

  Stream stream_;
  Buffer there_;
  Buffer here_;  // pinned
};

}  // namespace gradwire
