#include "collectives/engine/scratch_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradwire {
namespace {

constexpr std::size_t kMostBuffers = 8;
constexpr std::size_t kSmallest = 64 << 10;  // bytes

}  // namespace

Result<Buffer> ScratchPool::take(std::size_t bytes, Device device) {
  if (bytes == 0) return Buffer();
  const auto fits = [&](const Buffer& buffer) {
    return buffer.device() == device && buffer.bytes().size() >= bytes;
  };
  const auto found = std::ranges::find_if(kept_, fits);
  if (found == kept_.end()) {
    return make_(bytes > kLargestKept ? bytes : std::bit_ceil(std::max(bytes, kSmallest)), device);
  }
  Buffer buffer = std::move(*found);
  kept_.erase(found);
  return buffer;
}

void ScratchPool::give_back(Buffer buffer) {
  const std::size_t bytes = buffer.bytes().size();
  if (bytes == 0 || bytes > largest_kept_ || kept_.size() >= kMostBuffers) return;
  kept_.push_back(std::move(buffer));
}

}  // namespace gradwire
