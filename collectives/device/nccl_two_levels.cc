// The path of two levels for tensors on CUDA devices, of a group whose ranks are on several nodes
// and whose algorithm is "two_level": all_reduce and all_reduce_fused that leave the choice of the
// algorithm to the communicator ("auto"), or say "two_level". NCCL sums inside nodes, and messages
// (UCX, TCP) between them.
//
//   NCCL       the n elements are in as many parts as the smallest node has ranks, one part where
//              they are few. Rank j of a node gets the sum of part j over the node.
//   messages   the j-th ranks of all nodes reduce part j among themselves
//   NCCL       the ranks of a node get the parts from those that have them
//
// All of it is enqueued on the caller's stream when the call returns: a gate holds the stream while
// messages travel, so that the host waits for none of it (but where the driver has no gates). The
// operation fails with the first of its three that does, and where a rank of the node says that
// its messages have failed (level_execution.h).
//
// The order of a sum is NCCL's inside a node, and then that of the messages' algorithm. A mean is a
// sum that is scaled between the levels. Calls on a stream that is captured go by NCCL alone, since
// a graph has no messages; as do all other operations.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collectives/cost/choice.h"
#include "collectives/device/level_execution.h"
#include "collectives/device/nccl_two_levels.h"
#include "collectives/schedules/line_piece.h"
#include "collectives/schedules/schedules.h"
#include "device/cuda/capture.h"
#include "device/ops.h"
#include "gradwire/buffer.h"

namespace gradwire {
namespace {

constexpr std::string_view kTwoLevel = "two_level";
// Up to so many bytes one rank of a node talks for all: a message of a part costs as much as one of
// the whole.
constexpr std::int64_t kOnePartBytes = 16 << 10;

// A tensor, and which of its elements each rank of the node reduces between nodes.
struct Divided {
  ConstTensorView in;
  TensorView out;
  std::vector<std::int64_t> lengths;  // by place
  TensorView own;                     // this rank's, of `out`
};

class NcclTwoLevels final : public CallPath {
 public:
  NcclTwoLevels(Group& group, Device device, Nodes nodes, std::unique_ptr<Communicator> inner,
                std::unique_ptr<Communicator> outer)
      : group_(group),
        device_(device),
        nodes_(std::move(nodes)),
        inner_(std::move(inner)),
        outer_(std::move(outer)),
        choice_(choice_between(group, node_count())) {}
  // Where NCCL's first operations make connections nothing waits for the host yet.
  Status connect();

  bool serves(const OpCall& call, const OpOptions& options) const override;
  std::optional<Device> device() const override { return device_; }
  // Where the tensors are is not said.
  Result<std::optional<std::string_view>> algorithm_for(OpKind, std::int64_t,
                                                        std::string_view) override {
    return std::optional<std::string_view>();
  }
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  void use_new_links() override { choice_ = choice_between(group_, node_count()); }
  std::string describe() const override {
    return format("all_reduce there by NCCL inside %d nodes, by messages between them",
                  node_count());
  }
  std::uint64_t group_bytes() const override {
    return inner_->bytes_sent() + (outer_ == nullptr ? 0 : outer_->bytes_sent());
  }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers& part) override {
    return make_nccl_two_levels(part, device_);
  }

 private:
  class Run;

  static AlgorithmChoice choice_between(const Group& group, int nodes) {
    return {nodes, group.links(), static_cast<std::int64_t>(group.segmentation().segment_bytes)};
  }
  int node_count() const { return static_cast<int>(nodes_.ranks.size()); }
  int place() const { return inner_->rank(); }
  Status start(const KeptCall& kept, const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline);
  Status enqueue(std::vector<Divided>& tensors, ReduceOp op, OpOptions options, Levels& levels);
  std::vector<Divided> divided(const KeptCall& kept) const;
  Divided divided(ConstTensorView in, TensorView out) const;
  Divided divided_byte(TensorView bytes) const;
  static int parts_of(std::span<const Divided> tensors);
  Status reduce_between(ReduceOp op, std::span<const Divided> tensors, OpOptions options,
                        Levels& levels);
  Status submit(const KeptCall& kept, Deadline deadline, std::shared_ptr<const Levels> levels,
                const std::shared_ptr<WorkState>& work);

  Group& group_;
  Device device_;
  Nodes nodes_;
  std::unique_ptr<Communicator> inner_;  // the ranks of this node, over NCCL
  std::unique_ptr<Communicator> outer_;  // one of each node; null where this rank has no parts
  AlgorithmChoice choice_;
  std::shared_ptr<OwnMemory> memory_ = std::make_shared<OwnMemory>();
};

bool NcclTwoLevels::serves(const OpCall& call, const OpOptions& options) const {
  const bool sums = call.kind == OpKind::kAllReduce || call.kind == OpKind::kAllReduceFused;
  const bool chosen = options.algorithm == "auto" || options.algorithm == kTwoLevel;
  if (!sums || !chosen || !names_device(call, options)) return false;
  const auto captured = cuda::is_capturing({device_, options.stream.native});
  return !captured.has_value() || !captured.value();
}

class NcclTwoLevels::Run final : public PreparedCall {
 public:
  Run(NcclTwoLevels& path, const CheckedCall& call)
      : PreparedCall(path.group_), path_(path), kept_(call) {}
  Status start(const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline) override {
    return path_.start(kept_, work, deadline);
  }

 private:
  NcclTwoLevels& path_;
  KeptCall kept_;
};

Result<std::unique_ptr<PreparedCall>> NcclTwoLevels::prepare(const CheckedCall& call) {
  const Stream& stream = call.options.stream;
  if (stream.device.space == MemorySpace::kCuda && stream.device != device_) {
    return Status(Code::kInvalidArgument,
                  std::string(to_string(call.call.kind)) +
                      format(": a stream of CUDA device %d (expected device %d)",
                             stream.device.ordinal, device_.ordinal));
  }
  return std::unique_ptr<PreparedCall>(std::make_unique<Run>(*this, call));
}

// Where one of the three was started and another could not be, the others would wait for it.
Status NcclTwoLevels::start(const KeptCall& kept, const std::shared_ptr<WorkState>& work,
                            const std::optional<Deadline>& deadline) {
  const OpOptions options{.deadline = group_.end_of(deadline),
                          .stream = {device_, kept.options.stream.native},
                          .factor = kept.options.factor};
  std::vector<Divided> tensors = divided(kept);
  auto levels = Levels::make(*memory_, parts_of(tensors), device_);
  Status enqueued = levels.error();
  if (enqueued.ok()) enqueued = enqueue(tensors, kept.call.op, options, *levels.value());
  if (enqueued.ok()) {
    work->set_hold([own = levels.value()](const Stream& stream) { return own->hold(stream); });
    work->set_passed([own = levels.value()] { return own->left(); });
    return submit(kept, *options.deadline, levels.value(), work);
  }
  const bool begun = levels.has_value() && !levels.value()->empty();
  if (begun) group_.engine()->abort(std::string(enqueued.message()));
  work->finish(enqueued);
  return enqueued;
}

Status NcclTwoLevels::submit(const KeptCall& kept, Deadline deadline,
                             std::shared_ptr<const Levels> levels,
                             const std::shared_ptr<WorkState>& work) {
  std::vector<int> peers = *group_.job_ranks();
  std::erase(peers, group_.job_rank(group_.rank()));
  std::ranges::sort(peers);
  const std::uint64_t number = group_.take_number();
  return group_.engine()->submit(std::make_unique<Operation>(
      Operation{.signature = signature_of(kept.call.kind, kept.extent.dtype, kept.call.op,
                                          kept.extent.agreed, kept.call.peer),
                .number = number,
                .algorithm = kTwoLevel,
                .deadline = deadline,
                .execution = std::make_unique<LevelExecution>(
                    std::move(levels), group_.route_of(number), std::move(peers)),
                .work = work,
                .bytes_sent = group_.other_bytes()}));
}

Status NcclTwoLevels::enqueue(std::vector<Divided>& tensors, ReduceOp op, OpOptions options,
                              Levels& levels) {
  std::vector<OpCall> calls;
  for (const Divided& one : tensors) {
    calls.push_back({.kind = OpKind::kReduceScatterV,
                     .in = one.in,
                     .out = one.own,
                     .op = op == ReduceOp::kMean ? ReduceOp::kSum : op,
                     .counts = one.lengths});
  }
  GW_ASSIGN(Work scattered, inner_->start_all(calls, options));
  levels.add(std::move(scattered));
  options.factor = 1;
  GW_TRY(reduce_between(op, tensors, options, levels));
  const Divided bytes = divided_byte(levels.bytes());
  if (!bytes.own.empty()) GW_TRY(levels.write_byte(place(), options.stream));
  tensors.push_back(bytes);
  calls.clear();
  for (const Divided& one : tensors) {
    calls.push_back(
        {.kind = OpKind::kAllGatherV, .in = one.own, .out = one.out, .counts = one.lengths});
  }
  GW_ASSIGN(Work gathered, inner_->start_all(calls, options));
  levels.add(std::move(gathered));
  return levels.finish(options.stream);
}

// Those that have elements.
std::vector<Divided> NcclTwoLevels::divided(const KeptCall& kept) const {
  std::vector<Divided> tensors;
  if (kept.call.kind == OpKind::kAllReduce) {
    tensors.push_back(divided(kept.call.in, kept.call.out));
  }
  for (const TensorView& tensor : kept.tensors) tensors.push_back(divided(tensor, tensor));
  std::erase_if(tensors, [](const Divided& one) { return one.out.empty(); });
  return tensors;
}

// Ranks of the node that have a part of any: its first.
int NcclTwoLevels::parts_of(std::span<const Divided> tensors) {
  std::ptrdiff_t most = 0;
  for (const Divided& one : tensors) {
    most = std::max(most, std::ranges::find(one.lengths, 0) - one.lengths.begin());
  }
  return static_cast<int>(most);
}

// One of each rank that has a part.
Divided NcclTwoLevels::divided_byte(TensorView bytes) const {
  Divided made{.in = {}, .out = bytes, .lengths = {}, .own = bytes.slice(0, 0)};
  for (int at = 0; at < inner_->size(); ++at) made.lengths.push_back(at < bytes.elems() ? 1 : 0);
  if (place() < bytes.elems()) made.own = bytes.slice(place(), 1);
  return made;
}

Divided NcclTwoLevels::divided(ConstTensorView in, TensorView out) const {
  const std::size_t width = size_of(out.dtype());
  const bool few = static_cast<std::int64_t>(out.bytes().size()) <= kOnePartBytes;
  const int parts = few ? 1 : nodes_.smallest();
  Divided made{.in = in, .out = out, .lengths = {}, .own = out.slice(0, 0)};
  for (int at = 0; at < inner_->size(); ++at) {
    const Range part = at < parts ? line_piece(out.elems(), width, parts, at) : Range{};
    made.lengths.push_back(part.size());
    if (at == place()) made.own = out.slice(part.begin, part.size());
  }
  return made;
}

// Of ranks that have a part of any tensor: the j-th of every node have the same ones.
Status NcclTwoLevels::reduce_between(ReduceOp op, std::span<const Divided> tensors,
                                     OpOptions options, Levels& levels) {
  std::vector<TensorView> parts;
  std::int64_t bytes = 0;
  for (const Divided& one : tensors) {
    if (one.own.empty()) continue;
    parts.push_back(one.own);
    bytes += static_cast<std::int64_t>(one.own.bytes().size());
  }
  if (parts.empty()) return {};
  const bool sums = op == ReduceOp::kMean || op == ReduceOp::kPreMulSum;
  const ReduceOp between = sums ? ReduceOp::kSum : op;
  options.algorithm = choice_.choose(OpKind::kAllReduce, bytes, false);
  GW_ASSIGN(Work reduced, parts.size() == 1 ? outer_->all_reduce(parts.front(), between, options)
                                            : outer_->all_reduce_fused(parts, between, options));
  GW_TRY(levels.add_messages(std::move(reduced), options.stream));
  if (op != ReduceOp::kMean) return {};
  for (const TensorView& part : parts) GW_TRY(scale(part, 1.0 / group_.size(), options.stream));
  return {};
}

// With every root that there will be: an element for each.
Status NcclTwoLevels::connect() {
  GW_ASSIGN(const auto lane, group_.engine()->lanes()->of(device_));
  const OpOptions options{.deadline = group_.end_of(std::nullopt),
                          .stream = lane->copies().to_device()};
  GW_ASSIGN(Buffer memory, Buffer::allocate(static_cast<std::size_t>(nodes_.smallest()), device_));
  const Divided all =
      divided_byte({memory.bytes().data(), Shape::vector(nodes_.smallest()), DType::kU8, device_});
  GW_ASSIGN(Work scattered,
            inner_->reduce_scatter_v(all.out, all.own, all.lengths, ReduceOp::kSum, options));
  GW_TRY(scattered.wait());
  GW_ASSIGN(Work gathered, inner_->all_gather_v(all.own, all.out, all.lengths, options));
  return gathered.wait();
}

}  // namespace

Result<std::unique_ptr<CallPath>> make_nccl_two_levels(const GroupMembers& members, Device device) {
  const Nodes nodes = nodes_of(members.communicator.nodes());
  const bool one_level =
      nodes.ranks.size() < 2 ||
      std::ranges::all_of(nodes.ranks, [](const auto& ranks) { return ranks.size() == 1; });
  if (one_level) return std::unique_ptr<CallPath>();
  const auto rank = static_cast<std::size_t>(members.communicator.rank());
  const int place = nodes.place_of[rank];
  const int node = nodes.node_of[rank];
  GW_ASSIGN(auto inner, members.communicator.split(node, place));
  const int color = place < nodes.smallest() ? place : -1;
  GW_ASSIGN(auto outer, members.communicator.split(color, node, {.messages_only = true}));
  auto path = std::make_unique<NcclTwoLevels>(members.group, device, nodes, std::move(inner),
                                              std::move(outer));
  GW_TRY(path->connect());
  return std::unique_ptr<CallPath>(std::move(path));
}

}  // namespace gradwire
