// Maxima and minima of floating numbers over NCCL. Its own prefer a number to a NaN and do not say
// which zero they take; ReduceOp promises that a NaN wins and that -0 is below +0. So NCCL is given
// integers that are ordered as the numbers are (device/cuda/ordered.h) and lie in memory of this
// operation: 8 bytes an element of f64, else 4. Before and behind it one pass each over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_comm.h"
#include "device/cuda/memory.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire {

class OrderedReductions {
 public:
  // Enqueues on `stream`, whose device is the thread's, what makes the integers for those of
  // `steps` that are such maxima and minima, and has these be about the integers. Among one rank
  // there is nothing to reduce, and nothing is done. The steps are valid while this lives.
  static Result<OrderedReductions> prepare(std::span<NcclStep> steps, int rank, int size,
                                           const Stream& stream);
  // Enqueues what makes numbers of the results, where this rank gets any. Call it when NCCL has
  // enqueued the steps.
  Status finish(const Stream& stream) const;

 private:
  struct Received {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::int64_t elems = 0;
    DType dtype = DType::kF32;
  };
  explicit OrderedReductions(cuda::Scratch memory) : memory_(std::move(memory)) {}

  cuda::Scratch memory_;  // freed in the stream's order
  std::vector<Received> results_;
};

}  // namespace gradwire
