// Scratch memory that is kept between operations: fresh pages cost more than the copy into them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Used by one thread at a time (the one that drives the operations, or with a lock).
class ScratchPool {
 public:
  using Make = std::function<Result<Buffer>(std::size_t bytes, Device device)>;
  static constexpr std::size_t kLargestKept = 16 << 20;  // larger ones are rare

  // make: where memory comes from. largest_kept: bytes of a buffer that is kept.
  explicit ScratchPool(Make make = Buffer::allocate, std::size_t largest_kept = kLargestKept)
      : make_(std::move(make)), largest_kept_(largest_kept) {}

  // At least `bytes` bytes on `device`, contents unspecified. An empty Buffer for 0 bytes.
  Result<Buffer> take(std::size_t bytes, Device device) {
    if (bytes == 0) return Buffer();
    const auto found = std::ranges::find_if(kept_, [&](const Buffer& buffer) {
      return buffer.device() == device && buffer.bytes().size() >= bytes;
    });
    if (found == kept_.end()) {
      return make_(bytes > kLargestKept ? bytes : std::bit_ceil(std::max(bytes, kSmallest)),
                   device);
    }
    Buffer buffer = std::move(*found);
    kept_.erase(found);
    return buffer;
  }
  // Keeps it for later, or frees it when enough is kept.
  void give_back(Buffer buffer) {
    const std::size_t bytes = buffer.bytes().size();
    if (bytes == 0 || bytes > largest_kept_ || kept_.size() >= kMostBuffers) return;
    kept_.push_back(std::move(buffer));
  }

 private:
  static constexpr std::size_t kMostBuffers = 8;
  static constexpr std::size_t kSmallest = 64 << 10;  // bytes

  Make make_;
  std::size_t largest_kept_;
  std::vector<Buffer> kept_;
};

}  // namespace gradwire
