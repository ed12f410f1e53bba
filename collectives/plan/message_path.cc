// The path of messages: a schedule, chosen by its predicted time, run over the transport. It serves
// every call, on the host and, through pinned memory or a transport that takes it, on devices.
#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/cost/choice.h"
#include "collectives/engine/executor.h"
#include "collectives/engine/layout.h"
#include "collectives/plan/lent_inputs.h"
#include "collectives/plan/path.h"
#include "collectives/schedules/op_traits.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/selection.h"
#include "device/ops.h"
#include "device/rank_device.h"

namespace gradwire {
namespace {

// A schedule of a call, and how it uses messages and memory. Immutable.
struct MessagePlan {
  std::shared_ptr<const Layout> layout;
  std::string_view algorithm;  // a literal
};

// All that a plan of one group depends on, but its links.
struct PlanKey {
  OpKind kind = OpKind::kBarrier;
  Extent extent = {};  // shares what an input and an output of the caller's share
  int peer = 0;
  std::vector<std::int64_t> counts = {};
  std::vector<std::int64_t> recv_counts = {};
  std::string_view algorithm = {};  // as asked for; of a plan in the cache: a literal
  bool apart = false;               // input and output are not the same memory
  StagedTensors staged = {};
  auto operator<=>(const PlanKey&) const = default;
};

// A call as messages serve it: its plan and the memory that it runs on.
struct MessageCall {
  OpKind kind = OpKind::kBarrier;
  MessagePlan plan = {};
  Signature signature = {};
  DType dtype = DType::kU8;
  Operands operands = {};
  Operated operated = {};
  int peer = -1;  // of a send or recv
  int tag = 0;
  bool pair() const { return traits_of(kind).pair; }
};

AlgorithmChoice choice_for(const Group& group) {
  return {group.size(), group.links(),
          static_cast<std::int64_t>(group.segmentation().segment_bytes), group.nodes()};
}

// Elements of one block, or of the tensor where there are no blocks.
std::int64_t block_elems(const CheckedCall& call, int size) {
  return call.call.kind == OpKind::kAllToAll ? call.extent.in / size : call.extent.agreed;
}

// Of the tensor or of all ranks' blocks, as far as all ranks know: -1 for unequal blocks of an
// all-to-all, of which each rank knows its own.
std::int64_t all_elems(const OpCall& call, std::int64_t elems, int size) {
  const OpTraits traits = traits_of(call.kind);
  if (call.kind == OpKind::kAllToAllV) return -1;
  if (traits.counted) return std::reduce(call.counts.begin(), call.counts.end());
  return traits.blocks == Blocks::kNone ? elems : elems * size;
}

// Of plans that are kept; beyond, all are forgotten: some 10 MB.
constexpr std::size_t kMostKeptSteps = 64 << 10;

std::size_t steps_in(const Schedule& schedule) {
  std::size_t steps = 1;
  for (const Round& round : schedule.rounds) steps += 1 + round.size();
  for (const Schedule& stretch : schedule.stretches) steps += steps_in(stretch);
  return steps;
}

PlanKey key_of(const CheckedCall& checked, const Operands& operands) {
  const OpCall& call = checked.call;
  const Extent& extent = checked.extent;
  const OpTraits traits = traits_of(call.kind);
  PlanKey key{.kind = call.kind,
              .extent = extent,
              .peer = traits.rooted || traits.pair ? call.peer : 0,
              .counts = {call.counts.begin(), call.counts.end()},
              .recv_counts = {call.recv_counts.begin(), call.recv_counts.end()},
              .algorithm = checked.options.algorithm,
              .apart = extent.in > 0 && operands.in != operands.out};
  if (operands.staging) {
    key.staged = {!operands.staging->in.empty(), !operands.staging->out.empty()};
  }
  // In the host's memory that stands for a device's they are two.
  if (key.staged.out || operands.in != call.in.data()) key.extent.shared = 0;
  return key;
}

// The operation part of a message's tag: the number, and 6 bits of what ranks must agree on beside
// dtype and sizes. Messages of ranks that disagree never meet, so they time out, and the failure
// report says why, instead of a sum of maxima. Two that differ in one of the three, roots by less
// than 64, never have the same bits. Numbers wrap after 2^14 operations.
std::uint64_t tag_number(const MessageCall& call, std::uint64_t number) {
  if (call.pair()) return pair_operation(call.tag, number);
  const auto bits = 19 * static_cast<std::uint64_t>(call.kind) +
                    7 * static_cast<std::uint64_t>(call.operands.op) +
                    static_cast<std::uint64_t>(call.signature.root + 1);
  return (bits & 0x3f) << 14 | (number & kNumberMask);
}

// Of what may wait for more of its kind, much goes in one system call of the transport.
bool is_brief(const MessageCall& call) {
  constexpr std::int64_t kLongest = 64 << 10;
  if (!call.pair() || call.operands.staging != nullptr) return false;
  return call.kind == OpKind::kRecv ||
         call.signature.elems * static_cast<std::int64_t>(size_of(call.dtype)) <= kLongest;
}

Route route_of(const Group& group, const MessageCall& call, const PairLedger::Message& message) {
  return {.group = group.job_ranks(),
          .communicator = static_cast<std::uint32_t>(group.id()),
          .operation = tag_number(call, message.number),
          .first_channel = first_channel(call.pair(), call.dtype),
          .turn = message.turn};
}

class MessagePath final : public CallPath {
 public:
  explicit MessagePath(Group& group)
      : group_(group), choice_(choice_for(group)), memory_(std::make_shared<OwnMemory>()) {}

  bool serves(const OpCall&, const OpOptions&) const override { return true; }
  Result<std::optional<std::string_view>> algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) override {
    GW_ASSIGN(const std::string_view chosen, choose(kind, bytes, wanted));
    return std::optional(chosen);
  }
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override;
  void use_new_links() override {
    choice_ = choice_for(group_);
    plans_.clear();
    steps_ = 0;
  }

 private:
  class Run;

  Result<MessageCall> plan(const CheckedCall& call);
  Result<std::string_view> choose(OpKind kind, std::int64_t bytes, std::string_view wanted);
  std::string_view default_of(const OpTraits& traits) const;
  // One that is there, since calls are alike, or a new one, which is kept.
  Result<MessagePlan> plan_of(const CheckedCall& call, PlanKey key);
  Result<MessagePlan> make_plan(const CheckedCall& call, const PlanKey& key);
  Result<Schedule> schedule_of(const CheckedCall& call, std::string_view& algorithm,
                               std::int64_t& segment_bytes);
  Status place_on(Device device, MessageCall& planned, const CheckedCall& call) const;

  Group& group_;
  AlgorithmChoice choice_;
  std::map<PlanKey, MessagePlan> plans_;
  std::size_t steps_ = 0;  // of plans_
  std::shared_ptr<OwnMemory> memory_;
};

// A planned call, and its runs.
class MessagePath::Run final : public PreparedCall {
 public:
  Run(Group& group, MessageCall call) : PreparedCall(group), call_(std::move(call)) {}
  Status before() override { return call_.operated.before ? call_.operated.before() : Status(); }
  Status start(const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline) override;

 private:
  std::unique_ptr<Runnable> search(const std::shared_ptr<WorkState>& work) const;

  MessageCall call_;
};

// bytes: of the tensor, or of all ranks' blocks; -1 where ranks do not know it alike.
Result<std::string_view> MessagePath::choose(OpKind kind, std::int64_t bytes,
                                             std::string_view wanted) {
  const OpTraits traits = traits_of(kind);
  if (traits.pair) {
    return Status(Code::kInvalidArgument, std::string(traits.name) + ": has no algorithms");
  }
  if (wanted == "auto") wanted = default_of(traits);
  if (wanted == "auto" && bytes >= 0) return choice_.choose(traits.base, bytes, traits.counted);
  return resolve_algorithm(traits.base, wanted, traits.counted);
}

// What "auto" stands for first: the communicator's own choice, where the operation has it.
std::string_view MessagePath::default_of(const OpTraits& traits) const {
  const std::string_view chosen = group_.options().algorithm;
  if (traits.base == OpKind::kAllReduce) return chosen;
  if (traits.base != OpKind::kReduceScatter) return "auto";
  // One that no operation has is refused.
  const bool only_all_reduce = resolve_algorithm(OpKind::kAllReduce, chosen).has_value() &&
                               !resolve_algorithm(traits.base, chosen, traits.counted).has_value();
  return only_all_reduce ? "auto" : chosen;
}

// segment_bytes: what its cells are best cut into; 0: as all are.
Result<Schedule> MessagePath::schedule_of(const CheckedCall& checked, std::string_view& algorithm,
                                          std::int64_t& segment_bytes) {
  const OpCall& call = checked.call;
  const int rank = group_.rank();
  const int size = group_.size();
  if (traits_of(call.kind).pair) {
    algorithm = "direct";
    return call.kind == OpKind::kSend
               ? point_to_point_send(rank, size, call.peer, checked.extent.in)
               : point_to_point_recv(rank, size, call.peer, checked.extent.out);
  }
  ScheduleRequest request{.collective = traits_of(call.kind).base,
                          .rank = rank,
                          .size = size,
                          .elems = block_elems(checked, size),
                          .root = call.peer,
                          .counts = call.counts,
                          .recv_counts = call.recv_counts,
                          .node_of = group_.nodes()};
  const auto width = static_cast<std::int64_t>(size_of(checked.extent.dtype));
  request.stretch_elems = kStretchBytes / width;
  const std::int64_t elems = all_elems(call, request.elems, size);
  GW_ASSIGN(algorithm,
            choose(call.kind, elems < 0 ? elems : elems * width, checked.options.algorithm));
  request.algorithm = algorithm;
  if (elems >= 0) {
    segment_bytes = choice_.segment_bytes(request.collective, elems * width, algorithm);
  }
  return make_schedule(request);
}

// The schedule for an input and an output that are, or are not, the same memory.
Result<MessagePlan> MessagePath::make_plan(const CheckedCall& call, const PlanKey& key) {
  std::string_view algorithm;
  std::int64_t segment_bytes = 0;
  GW_ASSIGN(Schedule schedule, schedule_of(call, algorithm, segment_bytes));
  Segmentation segmentation = group_.segmentation();
  segmentation.ends_short = traits_of(call.call.kind).pair;
  const SharedElems shared{key.extent.shared, key.extent.in_begin, key.extent.out_begin};
  return MessagePlan{lay_out(std::move(schedule), key.apart, shared, call.extent.dtype,
                             segmentation, segment_bytes, key.staged),
                     algorithm};
}

Result<MessagePlan> MessagePath::plan_of(const CheckedCall& call, PlanKey key) {
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
  GW_ASSIGN(MessagePlan plan, make_plan(call, key));
  const std::size_t steps = steps_in(plan.layout->schedule());
  if (steps_ + steps > kMostKeptSteps) {
    plans_.clear();
    steps_ = 0;
  }
  if (steps > kMostKeptSteps) return plan;
  steps_ += steps;
  key.algorithm = key.algorithm == "auto" ? "auto" : plan.algorithm;  // the caller's need not last
  plans_.emplace(std::move(key), plan);
  return plan;
}

Result<MessageCall> MessagePath::plan(const CheckedCall& checked) {
  const OpCall& call = checked.call;
  const Extent& extent = checked.extent;
  const OpTraits traits = traits_of(call.kind);
  const Device device = device_of(call, extent, checked.options);
  const bool on_device = device.space == MemorySpace::kCuda;
  const bool own_stream = !on_device || checked.options.stream.device == device;
  const Stream stream = own_stream ? checked.options.stream : Stream{device, nullptr};
  MessageCall planned{
      .kind = call.kind,
      .signature = signature_of(call.kind, extent.dtype, call.op, extent.agreed, call.peer),
      .dtype = extent.dtype};
  if (traits.pair) planned.peer = call.peer;
  if (traits.pair) planned.tag = call.tag;
  planned.operands = {.in = call.in.data(),
                      .out = call.out.data(),
                      .op = call.op == ReduceOp::kPreMulSum ? ReduceOp::kSum : call.op,
                      .stream = stream,
                      .queue = queue_of(checked),
                      .workers = group_.workers()};
  if (!is_plain(checked) && (call.kind != OpKind::kAllReduceFused || !on_device)) {
    GW_ASSIGN(planned.operated, operated_of(checked, stream, *memory_));
    planned.operands.in = planned.operated.in;
    planned.operands.out = planned.operated.out;
  }
  if (call.kind == OpKind::kExclusiveScan && group_.rank() == 0) {
    // Of the host; on a device it is staged.
    planned.operated.after = [op = planned.operands.op, out = call.out] {
      return fill_neutral(op, out, {});
    };
  }
  if (on_device) GW_TRY(place_on(device, planned, checked));
  if (call.kind == OpKind::kRecv && call.peer == kAnySource) {  // none before its sender is known
    planned.plan.algorithm = "direct";
    return planned;
  }

  GW_ASSIGN(planned.plan, plan_of(checked, key_of(checked, planned.operands)));
  return planned;
}

Result<std::unique_ptr<PreparedCall>> MessagePath::prepare(const CheckedCall& call) {
  GW_ASSIGN(MessageCall planned, plan(call));
  return std::unique_ptr<PreparedCall>(std::make_unique<Run>(group_, std::move(planned)));
}

// What becomes of an operation whose tensors are on a device (staging.h).

bool is_cuda(Device device) { return device.space == MemorySpace::kCuda; }

// Fused tensors are pieces of one, scaled where they are.
void fuse_on_device(MessageCall& planned, const OpCall& call, double factor) {
  std::vector<TensorView> tensors;
  for (const TensorView& tensor : call.tensors) {
    if (tensor.empty()) continue;
    tensors.push_back(tensor);
    planned.operands.staging->out.add(tensor.data(), tensor.elems());
  }
  if (tensors.empty()) return;
  planned.operands.in = planned.operands.out = tensors.front().data();
  if (factor == 1) return;
  planned.operated.before = [tensors = std::move(tensors), factor,
                             stream = planned.operands.stream] {
    for (const TensorView& tensor : tensors) GW_TRY(scale(tensor, factor, stream));
    return Status();
  };
}

void use_there(Operands& operands, Device in, Device out, const StagingLane& lane) {
  operands.in_device = is_cuda(in) ? in : Device{};
  operands.out_device = is_cuda(out) ? out : Device{};
  operands.scratch_device = is_cuda(in) ? in : operands.out_device;
  operands.stream = lane.copies().to_device();
}

void use_staged(Operands& operands, Device in, Device out, const Extent& extent) {
  Staging& staging = *operands.staging;
  operands.scratch_device = {MemorySpace::kPinnedHost, 0};
  operands.stream = {};
  // `in` is only read; its constness is set aside for the common type.
  if (is_cuda(in)) staging.in.add(const_cast<std::byte*>(operands.in), extent.in);
  if (is_cuda(out)) staging.out.add(operands.out, extent.out);
}

Status MessagePath::place_on(Device device, MessageCall& planned,
                             const CheckedCall& checked) const {
  const OpCall& call = checked.call;
  const Extent& extent = checked.extent;
  Operands& operands = planned.operands;
  const Stream stream = operands.stream;  // the caller's
  GW_ASSIGN(std::shared_ptr<StagingLane> lane, group_.engine()->lanes()->of(device));
  GW_ASSIGN(std::unique_ptr<DevicePoint> ready, lane->copies().make_point());
  operands.staging = std::make_shared<Staging>(Staging{lane, std::move(ready)});
  const Device in = extent.in > 0 ? call.in.device() : Device{};
  const Device out = extent.out > 0 ? call.out.device() : Device{};
  if (call.kind == OpKind::kExclusiveScan && planned.operated.after && is_cuda(out)) {
    planned.operated.after = {};
    operands.staging->neutral = call.out;
  }
  if (call.kind == OpKind::kAllReduceFused) fuse_on_device(planned, call, checked.options.factor);
  const bool reachable = (!is_cuda(in) || others_can_reach(operands.in)) &&
                         (!is_cuda(out) || others_can_reach(operands.out));
  // What only moves needs no staging where the transport takes it.
  if (group_.engine()->takes_cuda_memory() && planned.signature.reduce.empty() && reachable) {
    use_there(operands, in, out, *lane);
  } else {
    use_staged(operands, in, out, extent);
  }
  planned.operated.before = [first = std::move(planned.operated.before), staging = operands.staging,
                             stream] {
    if (first) GW_TRY(first());
    return staging->ready->record(stream);
  };
  return {};
}

// Its number among those of its kind tells its messages from others'.
Status MessagePath::Run::start(const std::shared_ptr<WorkState>& work,
                               const std::optional<Deadline>& deadline) {
  auto operation = std::make_unique<Operation>(Operation{.signature = call_.signature,
                                                         .algorithm = call_.plan.algorithm,
                                                         .collective = !call_.pair(),
                                                         .brief = is_brief(call_),
                                                         .queue = call_.operands.queue,
                                                         .deadline = group().end_of(deadline),
                                                         .work = work,
                                                         .bytes_sent = group().message_bytes(),
                                                         .after = call_.operated.after,
                                                         .own = call_.operated.lent});
  if (call_.kind == OpKind::kRecv && call_.peer == kAnySource) {
    operation->execution = search(work);
    return group().engine()->submit(std::move(operation));
  }
  PairLedger::Message message;
  if (!call_.pair()) {
    message.number = group().take_number();
  } else {
    message = group().ledger()->take(call_.kind == OpKind::kRecv, call_.peer, call_.tag);
  }
  operation->number = message.number;
  if (call_.pair() && !deadline) operation->peer = group().job_rank(call_.peer);
  operation->execution = std::make_unique<Execution>(call_.plan.layout, call_.operands,
                                                     route_of(group(), call_, message));
  return group().engine()->submit(std::move(operation));
}

// What it makes outlives the communicator, if need be.
std::unique_ptr<Runnable> MessagePath::Run::search(const std::shared_ptr<WorkState>& work) const {
  SenderSearch::Request request = group().search_for(kAnySource, call_.tag);
  Segmentation segmentation = group().segmentation();
  segmentation.ends_short = true;
  auto receive = [call = call_, route = request.route, segmentation, rank = group().rank(), work](
                     int peer, const PairLedger::Message& message) -> std::unique_ptr<Runnable> {
    work->set_source(peer);
    Route to = route;
    to.operation = tag_number(call, message.number);
    to.turn = message.turn;
    to.first_channel = first_channel(true, call.dtype);
    const auto size = static_cast<int>(route.group->size());
    const StagedTensors staged{.in = false,
                               .out = call.operands.staging && !call.operands.staging->out.empty()};
    auto layout =
        std::make_shared<const Layout>(point_to_point_recv(rank, size, peer, call.signature.elems),
                                       call.dtype, segmentation, staged);
    return std::make_unique<Execution>(std::move(layout), call.operands, std::move(to));
  };
  return std::make_unique<SenderSearch>(std::move(request), std::move(receive));
}

}  // namespace

std::unique_ptr<CallPath> make_message_path(Group& group) {
  return std::make_unique<MessagePath>(group);
}

}  // namespace gradwire
