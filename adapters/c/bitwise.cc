#include "adapters/c/bitwise.h"

#include <cstring>
#include <memory>
#include <vector>

#include "adapters/c/operation_call.h"
#include "base/text.h"

namespace gradwire::c {
namespace {

using Bytes = std::vector<std::byte>;

std::byte combined(gw_reduction reduction, std::byte a, std::byte b) {
  if (reduction == GW_BIT_AND) return a & b;
  return reduction == GW_BIT_OR ? a | b : a ^ b;
}

// Rows of `bytes` bytes, the first `count` of them, into `out`; none leaves what changes nothing.
void fold_rows(gw_reduction reduction, const Bytes& rows, std::size_t count, std::size_t bytes,
               std::byte* out) {
  const auto neutral = static_cast<std::byte>(reduction == GW_BIT_AND ? 0xff : 0);
  for (std::size_t i = 0; i < bytes; ++i) {
    std::byte value = count == 0 ? neutral : rows[i];
    for (std::size_t r = 1; r < count; ++r) {
      value = combined(reduction, value, rows[r * bytes + i]);
    }
    out[i] = value;
  }
}

// Sends rows to whom they belong, or one row to all that need it.
Result<Work> exchange(Communicator& communicator, const OpCall& call, Bytes& rows,
                      std::vector<std::int64_t>& received, const OpOptions& options) {
  const DType dtype = call.in.dtype();
  const auto all = static_cast<std::int64_t>(rows.size() / size_of(dtype));
  const TensorView to(rows.data(), Shape::vector(all), dtype);
  switch (call.kind) {
    case OpKind::kReduce: return communicator.gather(call.in, to, call.peer, options);
    case OpKind::kReduceScatter: return communicator.all_to_all(call.in, to, options);
    case OpKind::kReduceScatterV:
      received.assign(call.counts.size(),
                      call.counts[static_cast<std::size_t>(communicator.rank())]);
      return communicator.all_to_all_v(call.in, call.counts, to, received, options);
    default: return communicator.all_gather(call.in, to, options);
  }
}

}  // namespace

bool is_bitwise(gw_reduction reduction) {
  return reduction == GW_BIT_AND || reduction == GW_BIT_OR || reduction == GW_BIT_XOR;
}

Result<BitwiseOperation> start_bitwise(const char* function, Communicator& communicator,
                                       const gw_op& op, const OpOptions& options) {
  if (options.stream.device.space == MemorySpace::kCuda) {
    return Status(Code::kUnsupported, std::string(function) +
                                          ": a bitwise reduction of tensors on CUDA device " +
                                          std::to_string(options.stream.device.ordinal) +
                                          " (expected host memory, or another reduction)");
  }
  gw_op as_sum = op;  // the same memory
  as_sum.reduction = GW_SUM;
  GW_ASSIGN(const OpCall call,
            call_of(function, as_sum, communicator.rank(), communicator.size(), Device{}));
  const DType dtype = call.in.dtype();
  if (is_floating(dtype)) {
    return Status(Code::kInvalidArgument, std::string(function) + ": a bitwise reduction of " +
                                              std::string(to_string(dtype)) +
                                              " (expected an integer type)");
  }
  const bool here = call.kind != OpKind::kReduce || call.peer == communicator.rank();
  const std::size_t ranks = static_cast<std::size_t>(communicator.size());
  const std::size_t bytes = call.out.bytes().size();
  auto rows = std::make_shared<Bytes>(here ? ranks * bytes : 0);
  std::vector<std::int64_t> received;
  GW_ASSIGN(Work work, exchange(communicator, call, *rows, received, options));
  const std::size_t folded =
      call.kind == OpKind::kExclusiveScan ? static_cast<std::size_t>(communicator.rank()) : ranks;
  return BitwiseOperation{std::move(work),
                          [reduction = op.reduction, rows, folded, bytes, out = call.out.data()] {
                            if (bytes > 0 && !rows->empty()) {
                              fold_rows(reduction, *rows, folded, bytes, out);
                            }
                          }};
}

}  // namespace gradwire::c
