// Zeroed memory for a benchmark's tensors: gradwire's own, the caller's, or a device's; and what
// works on it there.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "bench/collective_bench.h"
#include "device/copy_lane.h"
#include "device/host_copy.h"
#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::bench {

class BenchMemory {
 public:
  // Where the options say.
  static Result<BenchMemory> create(Communicator& communicator, std::int64_t elems, DType dtype,
                                    const CollectiveBenchOptions& options) {
    BenchMemory memory;
    memory.elems_ = elems;
    memory.dtype_ = dtype;
    const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(dtype);
    if (options.shared_buffers) {
      GW_ASSIGN(memory.owned_, communicator.allocate(bytes));
    } else if (options.device.space == MemorySpace::kCuda) {
      GW_ASSIGN(memory.owned_, Buffer::allocate(bytes, options.device));
      memory.device_ = options.device;
    } else {
      memory.private_.assign(bytes, std::byte{0});
    }
    return memory;
  }

  TensorView view(Shape shape) {
    std::byte* const data = owned_.bytes().empty() ? private_.data() : owned_.bytes().data();
    return {data, shape, dtype_, device_};
  }
  TensorView view() { return view(Shape::vector(elems_)); }

 private:
  std::int64_t elems_ = 0;
  DType dtype_ = DType::kF32;
  Device device_ = {};
  Buffer owned_;
  std::vector<std::byte> private_;
};

// What calls and aggregators of one rank are told of its device's work: on the host nothing, on a
// device a stream that no other rank has, and that neither waits for CUDA's default stream nor is
// waited for by it. Ranks that are threads, on one device, would stand behind one another on the
// default stream, and where an operation's kernel waits for the other rank's that is a deadlock.
class BenchStream {
 public:
  BenchStream() = default;
  // kUnsupported where there is no such device.
  static Result<BenchStream> create(const CollectiveBenchOptions& options) {
    BenchStream made;
    if (options.device.space != MemorySpace::kCuda) return made;
    GW_ASSIGN(made.lane_, CopyLane::create(options.device));
    return made;
  }
  // Of an operation that failed the device may still do something to tensors that are freed next.
  ~BenchStream() {
    if (lane_ != nullptr) (void)lane_->finish(kLateSeconds);
  }
  BenchStream(BenchStream&&) = default;
  BenchStream& operator=(BenchStream&& other) noexcept {
    std::swap(lane_, other.lane_);
    return *this;
  }

  // Valid while this lives.
  Stream stream() const { return lane_ != nullptr ? lane_->to_device() : Stream{}; }

 private:
  static constexpr double kLateSeconds = 0.3;
  std::unique_ptr<CopyLane> lane_;  // null on the host
};

// Has `fill` write a tensor of the host's memory, which is the tensor, or is copied there on
// `stream`. Done when it returns.
template <typename Fill>
Status write_with(TensorView tensor, const Stream& stream, const Fill& fill) {
  if (tensor.empty()) return {};
  if (tensor.device().space == MemorySpace::kHost) {
    fill(tensor);
    return {};
  }
  std::vector<std::byte> here(tensor.bytes().size());
  fill(TensorView(here.data(), tensor.shape(), tensor.dtype()));
  return write_from_host(here, tensor, stream);
}

}  // namespace gradwire::bench
