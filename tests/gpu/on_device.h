// Tensors on a CUDA device for tests, and what they hold.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire::gpu {

inline constexpr Device kFirst{MemorySpace::kCuda, 0};
inline constexpr Stream kStream{kFirst, nullptr};

// Bytes on the device, from `skip` bytes behind a 64-byte boundary on. Fails the test where there
// is no memory.
class OnDevice {
 public:
  explicit OnDevice(ConstByteSpan bytes, std::size_t skip = 0) : skip_(skip), size_(bytes.size()) {
    auto memory = Buffer::allocate(skip + bytes.size(), kFirst);
    EXPECT_TRUE(memory.has_value()) << memory.error().message();
    if (!memory.has_value()) return;
    memory_ = std::move(memory).value();
    const Status copied = copy_bytes(bytes, Device{}, this->bytes(), kFirst, kStream);
    EXPECT_TRUE(copied.ok()) << copied.message();
    const Status done = cuda::synchronize(kStream);  // the bytes may be gone then
    EXPECT_TRUE(done.ok()) << done.message();
  }
  explicit OnDevice(std::size_t size, std::size_t skip = 0)
      : OnDevice(ConstByteSpan(std::vector<std::byte>(size)), skip) {}

  ByteSpan bytes() const { return memory_.bytes().subspan(skip_, size_); }
  template <typename T>
  TensorView tensor(DType dtype = DTypeOf<T>::kValue) const {
    return {bytes().data(), Shape::vector(static_cast<std::int64_t>(size_ / sizeof(T))), dtype,
            kFirst};
  }
  // What is there now, when all that was enqueued has run.
  std::vector<std::byte> read() const {
    std::vector<std::byte> out(size_);
    const Status copied = copy_bytes(bytes(), kFirst, out, Device{}, kStream);
    EXPECT_TRUE(copied.ok()) << copied.message();
    const Status done = cuda::synchronize(kStream);
    EXPECT_TRUE(done.ok()) << done.message();
    return out;
  }
  template <typename T>
  std::vector<T> values() const {
    const std::vector<std::byte> raw = read();
    std::vector<T> out(raw.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), raw.data(), raw.size());
    return out;
  }

 private:
  std::size_t skip_;
  std::size_t size_;
  Buffer memory_;
};

template <typename T>
OnDevice uploaded(const std::vector<T>& values, std::size_t skip = 0) {
  return OnDevice(
      ConstByteSpan(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)),
      skip);
}

}  // namespace gradwire::gpu
