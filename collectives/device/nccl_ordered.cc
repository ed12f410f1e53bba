#include "collectives/device/nccl_ordered.h"

#include "device/cuda/ordered.h"

namespace gradwire {
namespace {

using Kind = NcclStep::Kind;

bool loses_nans(const NcclStep& step) {
  const bool reduces = step.kind == Kind::kAllReduce || step.kind == Kind::kReduce ||
                       step.kind == Kind::kReduceScatter;
  return reduces && (step.op == ReduceOp::kMax || step.op == ReduceOp::kMin) &&
         is_floating(step.dtype);
}

// Of the step's whole input.
std::int64_t elems_of(const NcclStep& step, int size) {
  return step.kind == Kind::kReduceScatter ? step.elems * size : step.elems;
}
// Each begins as CUDA's allocations do.
std::size_t room_for(const NcclStep& step, int size) {
  constexpr std::size_t kAlignment = 256;
  const auto elems = static_cast<std::size_t>(elems_of(step, size));
  const std::size_t bytes = elems * size_of(cuda::ordered_type(step.dtype));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<OrderedReductions> OrderedReductions::prepare(std::span<NcclStep> steps, int rank, int size,
                                                     const Stream& stream) {
  std::size_t bytes = 0;
  for (const NcclStep& step : steps) {
    if (size > 1 && loses_nans(step)) bytes += room_for(step, size);
  }
  GW_ASSIGN(cuda::Scratch memory, cuda::Scratch::allocate(bytes, stream));
  OrderedReductions made(std::move(memory));
  if (bytes == 0) return made;
  std::byte* at = made.memory_.as<std::byte>();
  for (NcclStep& step : steps) {
    if (!loses_nans(step)) continue;
    const DType ordered = cuda::ordered_type(step.dtype);
    const Shape whole = Shape::vector(elems_of(step, size));
    const std::size_t room = room_for(step, size);
    const bool scattered = step.kind == Kind::kReduceScatter;
    // In place, as NCCL has it: an own row of what is scattered is where it was.
    const auto own = static_cast<std::size_t>(scattered ? rank * step.elems : 0);
    std::byte* const result = at + own * size_of(ordered);
    GW_TRY(cuda::to_ordered(step.op, {step.in, whole, step.dtype, stream.device},
                            {at, whole, ordered, stream.device}, stream));
    if (step.kind != Kind::kReduce || step.peer == rank) {
      made.results_.push_back({result, step.out, step.elems, step.dtype});
    }
    step.in = at;
    step.out = result;
    step.dtype = ordered;
    at += room;
  }
  return made;
}

Status OrderedReductions::finish(const Stream& stream) const {
  for (const Received& one : results_) {
    const Shape shape = Shape::vector(one.elems);
    GW_TRY(cuda::from_ordered({one.from, shape, cuda::ordered_type(one.dtype), stream.device},
                              {one.to, shape, one.dtype, stream.device}, stream));
  }
  return {};
}

}  // namespace gradwire
