// Zeroed memory for a benchmark's tensors: gradwire's own, the caller's, or a device's.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/collective_bench.h"
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

// Has `fill` write a tensor of the host's memory, which is the tensor, or is copied there.
template <typename Fill>
Status write_with(TensorView tensor, const Fill& fill) {
  if (tensor.empty()) return {};
  if (tensor.device().space == MemorySpace::kHost) {
    fill(tensor);
    return {};
  }
  std::vector<std::byte> here(tensor.bytes().size());
  fill(TensorView(here.data(), tensor.shape(), tensor.dtype()));
  return write_from_host(here, tensor);
}

// What calls and aggregators are told of the device's work.
inline Stream stream_of(const CollectiveBenchOptions& options) {
  return options.device.space == MemorySpace::kCuda ? Stream{options.device, nullptr} : Stream{};
}

}  // namespace gradwire::bench
