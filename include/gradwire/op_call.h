// A communicator's operation as a value: what is done to which tensors. Whoever wraps, plans,
// records or batches operations handles this one type.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

enum class OpKind : std::uint8_t {
  kBroadcast,
  kReduce,
  kAllReduce,
  kAllReduceFused,
  kReduceScatter,
  kReduceScatterV,
  kAllGather,
  kAllGatherV,
  kGather,
  kGatherV,
  kScatter,
  kScatterV,
  kAllToAll,
  kAllToAllV,
  kExclusiveScan,
  kBarrier,
  kSend,
  kRecv,
};

// "all_reduce", "reduce_scatter_v", ...: the names of Communicator's methods.
std::string_view to_string(OpKind kind);

// What Communicator's method of the same name says about each argument; what a kind does not name
// stays as it is here. Spans are read during the call, tensors are lent until the Work is done.
struct OpCall {
  OpKind kind = OpKind::kBarrier;
  ConstTensorView in = {};
  TensorView out = {};
  ReduceOp op = ReduceOp::kSum;  // reductions
  int peer = 0;                  // the root, the receiver of a send, the sender of a recv
  std::span<const std::int64_t> counts = {};       // *_v; all_to_all_v: of what is sent
  std::span<const std::int64_t> recv_counts = {};  // all_to_all_v
  std::span<const TensorView> tensors = {};        // all_reduce_fused

  // For batches: Communicator::start_all.
  static OpCall send(ConstTensorView tensor, int peer) {
    return {.kind = OpKind::kSend, .in = tensor, .peer = peer};
  }
  static OpCall recv(TensorView tensor, int peer) {
    return {.kind = OpKind::kRecv, .out = tensor, .peer = peer};
  }
};

struct OpOptions {
  std::string_view algorithm =
      "auto";  // "ring", "canonical", ...; an unknown name is kInvalidArgument
  std::optional<Deadline>
      deadline;  // default: the communicator's deadline_seconds from the call on
  Stream stream;
  double factor = 1;  // of this rank's elements, for ReduceOp::kPreMulSum
};

}  // namespace gradwire
