// What kernels find wrong, told to the host.
#pragma once

#include <cstdint>
#include <utility>

#include "device/cuda/memory_calls.h"
#include "gradwire/buffer.h"
#include "gradwire/stream.h"

namespace gradwire::cuda {

// A finding: where, and what of a method's own list. The one at the lowest place is kept.
struct Finding {
  std::uint64_t place = 0;  // below 2^56
  unsigned kind = 0;        // 1 ... 255; 0: nothing was found
};
inline constexpr std::uint64_t kNoFinding = ~std::uint64_t{0};

constexpr std::uint64_t word_of(std::uint64_t place, unsigned kind) { return place << 8 | kind; }
constexpr Finding finding_of(std::uint64_t word) {
  return word == kNoFinding ? Finding{} : Finding{word >> 8, static_cast<unsigned>(word & 0xffu)};
}

// One word on the device, which kernels lower with Block::least(), and its image on the host.
class Verdict {
 public:
  static Result<Verdict> open(Device device);
  // Enqueues that nothing is found yet; kernels that follow on `stream` may write word().
  // kUnsupported on a stream that is captured: a graph has nobody whom it could tell.
  Status clear(const Stream& stream);
  std::uint64_t* word() const { return reinterpret_cast<std::uint64_t*>(there_.bytes().data()); }
  // Waits for `stream`, and says what its kernels found.
  Result<Finding> read(const Stream& stream);

 private:
  Verdict(Buffer there, Buffer here) : there_(std::move(there)), here_(std::move(here)) {}
  Buffer there_;
  Buffer here_;  // pinned: the word, and behind it what clear() copies
};

}  // namespace gradwire::cuda
