// Memory in fp32 for buckets of 16 bits that are in work: as much as a few buckets take, whatever
// the number of gradients. And what such gradients bear.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "aggregate/narrow/in_work.h"
#include "base/text.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Used by the aggregator's thread alone.
class WideBuffers {
 public:
  // A bucket will take so many; before the first take().
  void expect(std::size_t bytes) { expected_.expect(bytes); }

  // At least `bytes` bytes of `device`, the same at every call; contents unspecified. All memory is
  // made with the first of them: when a bucket gives its own back depends on when gradients come,
  // and what is held must not. Errors: those of Buffer::allocate().
  Result<Buffer> take(std::size_t bytes, Device device) {
    if (bytes_ == 0) GW_TRY(make_all(device));
    // The smallest that fits: kept_ ascends.
    const auto fits = [bytes](const Buffer& kept) { return kept.bytes().size() >= bytes; };
    const auto found = std::ranges::find_if(kept_, fits);
    if (found == kept_.end()) {
      return Status(Code::kInternal, format("%zu bytes for a bucket in fp32, which none of the %zu "
                                            "buffers that are free has",
                                            bytes, kept_.size()));
    }
    Buffer buffer = std::move(*found);
    kept_.erase(found);
    return buffer;
  }
  void give_back(Buffer buffer) {
    const auto larger = [&buffer](const Buffer& kept) {
      return kept.bytes().size() >= buffer.bytes().size();
    };
    kept_.insert(std::ranges::find_if(kept_, larger), std::move(buffer));
  }

  // Of all buffers, those that are taken too.
  std::size_t bytes() const { return bytes_; }

  // What gradients of 16 bits are multiplied by (Aggregator::set_narrow_scale()); changed between
  // steps alone.
  double scale() const { return scale_; }
  void set_scale(double scale) { scale_ = scale; }

 private:
  Status make_all(Device device) {
    for (const std::uint64_t size : expected_.sizes()) {
      if (size == 0) continue;
      GW_ASSIGN(Buffer made, Buffer::allocate(static_cast<std::size_t>(size), device));
      bytes_ += made.bytes().size();
      give_back(std::move(made));
    }
    return {};
  }

  double scale_ = 1;
  InWork expected_;
  std::vector<Buffer> kept_;  // ascending
  std::size_t bytes_ = 0;
};

}  // namespace gradwire
