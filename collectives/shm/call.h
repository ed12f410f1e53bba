// One call of a collective whose ranks share memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/tensor.h"

namespace gradwire {

// What a call asks for, and algorithm_for() says, where collectives go through shared memory.
inline constexpr std::string_view kShmAlgorithm = "shm";

struct ShmCall {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::int64_t elems = 0;  // of the tensor, or of one row; of all rows where these have lengths
  int root = 0;
  std::vector<std::int64_t> lengths = {};  // *_v: of each rank's row, in elements
};

}  // namespace gradwire
