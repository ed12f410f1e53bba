// Memory that somebody owns.
#pragma once

#include <cstddef>
#include <memory>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Owns bytes on one device, 64-byte aligned, zeroed at birth. Movable; freed by the destructor. A
// default-constructed Buffer is empty.
class Buffer {
 public:
  // kUnsupported for a memory space this build lacks, kOutOfMemory when the device refuses.
  static Result<Buffer> allocate(std::size_t bytes, Device device = {});
  // Bytes that belong to `owner`, which the Buffer keeps until it goes; zeroed and aligned by it.
  static Buffer adopt(ByteSpan bytes, Device device, std::shared_ptr<void> owner);

  Buffer() = default;
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&&) noexcept = default;

  ByteSpan bytes() const;
  Device device() const;
  // The first `shape.elems()` elements as a tensor. Requires room for them.
  TensorView tensor(Shape shape, DType dtype) const;

 private:
  struct Rep;
  struct Free {
    void operator()(Rep* rep) const noexcept;
  };
  std::unique_ptr<Rep, Free> rep_;
};

}  // namespace gradwire
