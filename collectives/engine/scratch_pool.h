// Scratch memory that is kept between operations: fresh pages cost more than the copy into them.
#pragma once

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
  Result<Buffer> take(std::size_t bytes, Device device);
  // Keeps it for later, or frees it when enough is kept.
  void give_back(Buffer buffer);

 private:
  Make make_;
  std::size_t largest_kept_;
  std::vector<Buffer> kept_;
};

}  // namespace gradwire
