// Zeroed memory for a benchmark's tensors: gradwire's own or the caller's.
#pragma once

#include <cstddef>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::bench {

class BenchMemory {
 public:
  // shared: the communicator's.
  static Result<BenchMemory> create(Communicator& communicator, std::int64_t elems, DType dtype,
                                    bool shared) {
    BenchMemory memory;
    memory.elems_ = elems;
    memory.dtype_ = dtype;
    const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(dtype);
    if (shared) {
      GW_ASSIGN(memory.shared_, communicator.allocate(bytes));
    } else {
      memory.private_.assign(bytes, std::byte{0});
    }
    return memory;
  }

  TensorView view(Shape shape) {
    std::byte* const data = shared_.bytes().empty() ? private_.data() : shared_.bytes().data();
    return {data, shape, dtype_};
  }
  TensorView view() { return view(Shape::vector(elems_)); }

 private:
  std::int64_t elems_ = 0;
  DType dtype_ = DType::kF32;
  Buffer shared_;
  std::vector<std::byte> private_;
};

}  // namespace gradwire::bench
