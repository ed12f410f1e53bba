// Memory of CUDA devices for what speaks CUDA itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "device/cuda/memory_calls.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire::cuda {

// Where a Stream's work is enqueued; null is CUDA's default stream.
inline cudaStream_t native(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native);
}

// Device memory of one operation: allocated and freed in the order of its stream, so that neither
// waits and the next operation on the stream gets the same bytes again. Not zeroed; 256-byte
// aligned.
class Scratch {
 public:
  // 0 bytes: nothing is allocated, and data() is null.
  static Result<Scratch> allocate(std::size_t bytes, const Stream& stream);
  Scratch(Scratch&& other) noexcept;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();
  template <typename T>
  T* as(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  Scratch(std::byte* data, const Stream& stream) : data_(data), stream_(stream) {}
  std::byte* data_;
  Stream stream_;
};

}  // namespace gradwire::cuda
