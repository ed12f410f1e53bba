// Scratch memory that is kept between operations: fresh pages cost more than the copy into them.
#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Used by one thread at a time (whoever drives the operations).
class ScratchPool {
 public:
  // At least `bytes` bytes on `device`, contents unspecified. An empty Buffer for 0 bytes.
  Result<Buffer> take(std::size_t bytes, Device device);
  // Keeps it for later, or frees it when enough is kept.
  void give_back(Buffer buffer);

 private:
  std::vector<Buffer> kept_;
};

}  // namespace gradwire
