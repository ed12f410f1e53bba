// Memory in fp32 for buckets of 16 bits that are in work: as much as a few buckets take, whatever
// the number of gradients. And what such gradients bear.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Used by the aggregator's thread alone.
class WideBuffers {
 public:
  // At least `bytes` bytes of `device`, the same at every call; contents unspecified. Errors: those
  // of Buffer::allocate().
  Result<Buffer> take(std::size_t bytes, Device device) {
    const auto fits = [bytes](const Buffer& kept) { return kept.bytes().size() >= bytes; };
    const auto found = std::ranges::find_if(kept_, fits);
    if (found != kept_.end()) {
      Buffer buffer = std::move(*found);
      kept_.erase(found);
      return buffer;
    }
    // One that is too small would stay for good beside the one that is made now.
    if (!kept_.empty()) {
      bytes_ -= kept_.back().bytes().size();
      kept_.pop_back();
    }
    GW_ASSIGN(Buffer made, Buffer::allocate(bytes, device));
    bytes_ += made.bytes().size();
    return made;
  }
  void give_back(Buffer buffer) { kept_.push_back(std::move(buffer)); }

  // Of all buffers, those that are taken too.
  std::size_t bytes() const { return bytes_; }

  // What gradients of 16 bits are multiplied by (Aggregator::set_narrow_scale()); changed between
  // steps alone.
  double scale() const { return scale_; }
  void set_scale(double scale) { scale_ = scale; }

 private:
  double scale_ = 1;
  std::vector<Buffer> kept_;
  std::size_t bytes_ = 0;
};

}  // namespace gradwire
