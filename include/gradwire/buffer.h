// Owned memory on the host or on a GPU.
#pragma once

#include <cstddef>
#include <memory>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Owns a block of bytes on one device, zero when allocated and 64-byte aligned. Movable, not
// copyable; the destructor frees the bytes, so every view of them ends there. A default-constructed
// or moved-from Buffer is empty. Thread: one at a time.
class Buffer {
 public:
  // Allocates `bytes` zeroed bytes. Errors: kUnsupported for a memory space that this build lacks;
  // kOutOfMemory when the GPU (or pinned memory) has too little left. When the host's memory is
  // exhausted it throws std::bad_alloc.
  static Result<Buffer> allocate(std::size_t bytes, Device device = {});
  // Wraps bytes that `owner` keeps alive. The Buffer holds `owner` until it is destroyed, and
  // neither zeroes nor aligns the bytes. Never fails.
  static Buffer adopt(ByteSpan bytes, Device device, std::shared_ptr<void> owner);

  // An empty Buffer: 0 bytes of host memory.
  Buffer() = default;
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;

  // The owned bytes, valid as long as the Buffer. The length is the one asked for, in bytes.
  ByteSpan bytes() const;
  // Where the bytes are; the host for an empty Buffer.
  Device device() const;
  // The first shape.elems() elements as a tensor, lent until the Buffer is destroyed. Requires
  // shape.elems() * size_of(dtype) <= bytes().size(); ends the program otherwise.
  TensorView tensor(Shape shape, DType dtype) const;

 private:
  struct Rep;
  struct Free {
    void operator()(Rep* rep) const noexcept;
  };
  std::unique_ptr<Rep, Free> rep_;
};

}  // namespace gradwire
