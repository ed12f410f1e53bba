#include "gradwire/buffer.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "device/cuda/have_cuda.h"
#include "device/cuda/memory_calls.h"

namespace gradwire {

struct Buffer::Rep {
  std::byte* data;
  std::size_t bytes;
  Device device;
  std::shared_ptr<void> owner;  // null: the bytes are the heap's, or CUDA's
};

void Buffer::Free::operator()(Rep* rep) const noexcept {
  if (rep->owner == nullptr) {
    if constexpr (kHaveCuda) {
      if (rep->device.space != MemorySpace::kHost) cuda::release(rep->data, rep->device);
    }
    if (rep->device.space == MemorySpace::kHost) std::free(rep->data);
  }
  delete rep;
}

Result<Buffer> Buffer::allocate(std::size_t bytes, Device device) {
  if (device.space != MemorySpace::kHost) {
    if constexpr (kHaveCuda) {
      GW_ASSIGN(std::byte* const data, cuda::allocate_zeroed(bytes, device));
      Buffer buffer;
      buffer.rep_.reset(new Rep{data, bytes, device, nullptr});
      return buffer;
    }
    return Status(Code::kUnsupported, "this build allocates host memory only");
  }
  constexpr std::size_t kAlign = 64;
  const std::size_t padded = (bytes + kAlign - 1) / kAlign * kAlign;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlign, padded == 0 ? kAlign : padded));
  if (data == nullptr) throw std::bad_alloc();  // the host's memory is out: left alone by design
  std::memset(data, 0, padded);
  Buffer buffer;
  buffer.rep_.reset(new Rep{data, bytes, device, nullptr});
  return buffer;
}

Buffer Buffer::adopt(ByteSpan bytes, Device device, std::shared_ptr<void> owner) {
  Buffer buffer;
  buffer.rep_.reset(new Rep{bytes.data(), bytes.size(), device, std::move(owner)});
  return buffer;
}

ByteSpan Buffer::bytes() const { return rep_ ? ByteSpan(rep_->data, rep_->bytes) : ByteSpan(); }
Device Buffer::device() const { return rep_ ? rep_->device : Device{}; }

TensorView Buffer::tensor(Shape shape, DType dtype) const {
  GW_CHECK(static_cast<std::size_t>(shape.elems()) * size_of(dtype) <= bytes().size());
  return {rep_ ? rep_->data : nullptr, shape, dtype, device()};
}

}  // namespace gradwire
