// Communicator's methods as spellings of start(), which is GroupCommunicator's.
#include "gradwire/communicator.h"

#include <algorithm>
#include <new>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {
namespace {

// Lengths that ranks tell each other add up to less, or they are not lengths.
constexpr std::int64_t kMostGathered = std::int64_t{1} << 40;

TensorView bytes_view(ByteSpan bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}

ConstTensorView bytes_view(ConstByteSpan bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}

}  // namespace

std::string_view to_string(OpKind kind) { return traits_of(kind).name; }

int Communicator::node_count() const {
  const std::vector<int> node_of = nodes();
  return node_of.empty() ? size() : 1 + *std::ranges::max_element(node_of);
}

std::string_view to_string(Waiting waiting) {
  switch (waiting) {
    case Waiting::kAdaptive: return "adaptive";
    case Waiting::kSpin: return "spin";
    case Waiting::kYield: return "yield";
    case Waiting::kSleep: return "sleep";
  }
  return "?";
}

Result<int> Communicator::probe(int, int, Deadline) {
  return Status(Code::kUnsupported, "probe: not by this communicator");
}

Result<std::unique_ptr<Communicator>> Communicator::create_group(std::span<const int>,
                                                                 const GroupOptions&) {
  return Status(Code::kUnsupported, "create_group: not by this communicator");
}

Result<Buffer> Communicator::allocate(std::size_t bytes) { return Buffer::allocate(bytes); }

Result<Work> Communicator::broadcast(ConstTensorView in, TensorView out, int root,
                                     const OpOptions& options) {
  return start({.kind = OpKind::kBroadcast, .in = in, .out = out, .peer = root}, options);
}

Result<Work> Communicator::broadcast(TensorView tensor, int root, const OpOptions& options) {
  return broadcast(tensor, tensor, root, options);
}

Result<Work> Communicator::reduce(ConstTensorView in, TensorView out, ReduceOp op, int root,
                                  const OpOptions& options) {
  return start({.kind = OpKind::kReduce, .in = in, .out = out, .op = op, .peer = root}, options);
}

Result<Work> Communicator::all_reduce(ConstTensorView in, TensorView out, ReduceOp op,
                                      const OpOptions& options) {
  return start({.kind = OpKind::kAllReduce, .in = in, .out = out, .op = op}, options);
}

Result<Work> Communicator::all_reduce(TensorView tensor, ReduceOp op, const OpOptions& options) {
  return all_reduce(tensor, tensor, op, options);
}

Result<Work> Communicator::all_reduce_fused(std::span<const TensorView> tensors, ReduceOp op,
                                            const OpOptions& options) {
  return start({.kind = OpKind::kAllReduceFused, .op = op, .tensors = tensors}, options);
}

Result<Work> Communicator::reduce_scatter(ConstTensorView in, TensorView out, ReduceOp op,
                                          const OpOptions& options) {
  return start({.kind = OpKind::kReduceScatter, .in = in, .out = out, .op = op}, options);
}

Result<Work> Communicator::reduce_scatter_v(ConstTensorView in, TensorView out,
                                            std::span<const std::int64_t> counts, ReduceOp op,
                                            const OpOptions& options) {
  return start({.kind = OpKind::kReduceScatterV, .in = in, .out = out, .op = op, .counts = counts},
               options);
}

Result<Work> Communicator::all_gather(ConstTensorView in, TensorView out,
                                      const OpOptions& options) {
  return start({.kind = OpKind::kAllGather, .in = in, .out = out}, options);
}

Result<Work> Communicator::all_gather_v(ConstTensorView in, TensorView out,
                                        std::span<const std::int64_t> counts,
                                        const OpOptions& options) {
  return start({.kind = OpKind::kAllGatherV, .in = in, .out = out, .counts = counts}, options);
}

Result<Work> Communicator::all_gather_v(ConstByteSpan in, ByteSpan out,
                                        std::span<const std::int64_t> bytes,
                                        const OpOptions& options) {
  return all_gather_v(bytes_view(in), bytes_view(out), bytes, options);
}

Result<Work> Communicator::all_gather_unsized(ConstByteSpan in, std::vector<std::byte>& out,
                                              std::vector<std::int64_t>& bytes,
                                              const OpOptions& options) {
  const auto own = static_cast<std::int64_t>(in.size());
  bytes.assign(static_cast<std::size_t>(size()), 0);
  GW_ASSIGN(Work exchange, all_gather(const_view_of(std::span<const std::int64_t>(&own, 1)),
                                      view_of(std::span(bytes)), options));
  GW_TRY(exchange.wait());
  std::int64_t sum = 0;
  for (const std::int64_t count : bytes) {
    if (count < 0 || count > kMostGathered - sum) {
      return Status(
          Code::kRankMismatch,
          format("all_gather_unsized: a length of %lld bytes (expected 0 to 2^40 together)",
                 static_cast<long long>(count)));
    }
    sum += count;
  }
  // The lengths are the others' word: more than there is memory for is an error like any other.
  try {
    out.resize(static_cast<std::size_t>(sum));
  } catch (const std::bad_alloc&) {
    const auto most = std::ranges::max_element(bytes);
    return Status(Code::kOutOfMemory,
                  format("all_gather_unsized: no memory for %lld bytes, %lld of them from rank %d",
                         static_cast<long long>(sum), static_cast<long long>(*most),
                         static_cast<int>(most - bytes.begin())));
  }
  return all_gather_v(in, out, bytes, options);
}

Result<Work> Communicator::gather(ConstTensorView in, TensorView out, int root,
                                  const OpOptions& options) {
  return start({.kind = OpKind::kGather, .in = in, .out = out, .peer = root}, options);
}

Result<Work> Communicator::gather_v(ConstTensorView in, TensorView out,
                                    std::span<const std::int64_t> counts, int root,
                                    const OpOptions& options) {
  return start({.kind = OpKind::kGatherV, .in = in, .out = out, .peer = root, .counts = counts},
               options);
}

Result<Work> Communicator::scatter(ConstTensorView in, TensorView out, int root,
                                   const OpOptions& options) {
  return start({.kind = OpKind::kScatter, .in = in, .out = out, .peer = root}, options);
}

Result<Work> Communicator::scatter_v(ConstTensorView in, TensorView out,
                                     std::span<const std::int64_t> counts, int root,
                                     const OpOptions& options) {
  return start({.kind = OpKind::kScatterV, .in = in, .out = out, .peer = root, .counts = counts},
               options);
}

Result<Work> Communicator::all_to_all(ConstTensorView in, TensorView out,
                                      const OpOptions& options) {
  return start({.kind = OpKind::kAllToAll, .in = in, .out = out}, options);
}

Result<Work> Communicator::all_to_all_v(ConstTensorView in,
                                        std::span<const std::int64_t> send_counts, TensorView out,
                                        std::span<const std::int64_t> recv_counts,
                                        const OpOptions& options) {
  return start({.kind = OpKind::kAllToAllV,
                .in = in,
                .out = out,
                .counts = send_counts,
                .recv_counts = recv_counts},
               options);
}

Result<Work> Communicator::all_to_all_v(ConstByteSpan in, std::span<const std::int64_t> send_bytes,
                                        ByteSpan out, std::span<const std::int64_t> recv_bytes,
                                        const OpOptions& options) {
  return all_to_all_v(bytes_view(in), send_bytes, bytes_view(out), recv_bytes, options);
}

Result<Work> Communicator::exclusive_scan(ConstTensorView in, TensorView out, ReduceOp op,
                                          const OpOptions& options) {
  return start({.kind = OpKind::kExclusiveScan, .in = in, .out = out, .op = op}, options);
}

Result<Work> Communicator::barrier(const OpOptions& options) {
  return start({.kind = OpKind::kBarrier}, options);
}

Result<Work> Communicator::send(ConstTensorView tensor, int peer, const OpOptions& options) {
  return start(OpCall::send(tensor, peer), options);
}

Result<Work> Communicator::recv(TensorView tensor, int peer, const OpOptions& options) {
  return start(OpCall::recv(tensor, peer), options);
}

}  // namespace gradwire
