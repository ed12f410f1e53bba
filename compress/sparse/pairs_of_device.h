// A tensor on a device as pairs of index and value on the host, and back: for exchanges that look
// at pairs themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// Of one tensor of kF32. Not thread-safe.
class PairsOfDevice {
 public:
  virtual ~PairsOfDevice() = default;
  // Elements of `tensor` other than 0, ascending. Waits for the stream.
  virtual Status fetch(ConstTensorView tensor, std::vector<std::uint32_t>& index,
                       std::vector<float>& values, const Stream& stream) = 0;
  // Enqueues dst = factor * values at their places, 0 elsewhere; indices ascend strictly and are
  // below the number of elements. Both are lent until the stream has run it.
  virtual Status put(std::span<const std::uint32_t> index, std::span<const float> values,
                     float factor, TensorView dst, const Stream& stream) = 0;
};

// kUnsupported without CUDA, and for 2^32 elements and more.
Result<std::unique_ptr<PairsOfDevice>> make_pairs_of_device(std::int64_t elems, Device device);

namespace cuda {
// The same, defined where kHaveCuda holds.
Result<std::unique_ptr<PairsOfDevice>> make_pairs_of_device(std::int64_t elems, Device device);
}  // namespace cuda

}  // namespace gradwire
