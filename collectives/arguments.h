// What callers may hand to a Communicator: checks that every rank makes on its own side.
#pragma once

#include <cstdint>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// What a call means on this rank, in elements. Counts of a tensor that this rank has no part in
// (root's `out` elsewhere) are 0.
struct Extent {
  DType dtype = DType::kU8;
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t agreed = -1;  // the count that all ranks must agree on; -1 where there is none
  // In place: in's elements [in_begin, in_begin + shared) are out's from out_begin on.
  std::int64_t shared = 0;
  std::int64_t in_begin = 0;
  std::int64_t out_begin = 0;
};

// kInvalidArgument naming the operation, the value seen and the value wanted; kUnsupported for
// tensors outside the host's memory.
Result<Extent> check_call(const OpCall& call, const OpOptions& options, int rank, int size);

}  // namespace gradwire
