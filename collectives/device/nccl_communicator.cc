#include "collectives/device/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/elements.h"
#include "base/forks.h"
#include "base/text.h"
#include "collectives/device/nccl_execution.h"
#include "collectives/plan/device_arguments.h"
#include "comm/nccl/nccl_calls.h"
#include "comm/shm/bell.h"
#include "device/cuda/capture.h"
#include "device/ops.h"
#include "device/rank_device.h"

namespace gradwire {
namespace {

constexpr std::string_view kAlgorithm = "nccl";
// An operation that cannot be enqueued is ended by its engine; this is for an engine that is late.
constexpr double kGrace = 5;

// Among ranks that know each other by messages already: rank 0's id.
Result<nccl::UniqueId> broadcast_id(const nccl::Calls& calls, Communicator& group,
                                    Deadline deadline) {
  nccl::UniqueId id{};
  if (group.rank() == 0) {
    GW_ASSIGN(id, nccl::make_id(calls));
  }
  const TensorView bytes(id.data(), Shape::vector(static_cast<std::int64_t>(id.size())),
                         DType::kU8);
  GW_ASSIGN(Work work, group.broadcast(bytes, 0, {.deadline = deadline, .stream = {}}));
  GW_TRY(work.wait());
  return id;
}

// Before 2.24 NCCL's kernels write straight into tensors of other devices of the same process.
// Those reach memory of cudaMalloc anyway, and gradwire's pool where they are let.
Status let_kernels_reach(const nccl::Calls& calls, Device device) {
  constexpr int kCopiesAtTheReceiver = 22400;  // 2.24.0
  return calls.version < kCopiesAtTheReceiver ? cuda::let_peers_reach(device) : Status();
}

// The engine of messages looks at the device about every millisecond while somebody waits for it.
void look_often(GroupCommunicator& group) {
  group.engine()->listen_to(std::make_shared<shm::Bell>());
}

void append(std::vector<NcclStep>& to, const std::vector<NcclStep>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// How many ranks of the same node come before this one. Where nobody knows of nodes it is one.
int place_in_node(const Communicator& group) {
  const std::vector<int> nodes = group.nodes();
  if (nodes.empty()) return group.rank();
  const auto self = nodes.begin() + group.rank();
  return static_cast<int>(std::count(nodes.begin(), self, *self));
}

bool is_pair(const OpCall& call) {
  return call.kind == OpKind::kSend || call.kind == OpKind::kRecv;
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl_communicator(
    std::unique_ptr<GroupCommunicator> group, const std::vector<std::string>& libraries,
    std::optional<int> ordinal, const Rendezvous& rendezvous) {
  const auto opened = nccl::open_calls(libraries);
  const auto device = device_of_rank(ordinal, place_in_node(*group));
  auto spare = device.has_value() ? Buffer::allocate(1, device.value()) : device.error();
  if (opened.has_value() && spare.has_value()) {
    const Status reached = let_kernels_reach(*opened.value(), device.value());
    if (!reached.ok()) spare = reached;
  }
  const bool able = opened.has_value() && spare.has_value();
  auto neighbours = agree_on_nccl(*group, able ? opened.value()->version : 0,
                                  device.has_value() ? device.value() : Device{});
  if (!opened.has_value()) return opened.error();
  if (!spare.has_value()) return spare.error().with_context("nccl");
  if (!neighbours.has_value()) return neighbours.error();
  const std::shared_ptr<const nccl::Calls>& calls = opened.value();
  const Deadline deadline = deadline_in(rendezvous.timeout_seconds);
  GW_ASSIGN(const nccl::UniqueId id, nccl::trade_id(*calls, rendezvous, "nccl/id", deadline));
  const NcclComm::Place place{
      .id = id, .rank = group->rank(), .size = group->size(), .device = device.value()};
  GW_ASSIGN(std::shared_ptr<NcclComm> comm, NcclComm::create(calls, place, deadline));
  look_often(*group);
  return std::unique_ptr<Communicator>(std::make_unique<NcclCommunicator>(
      std::move(group), std::move(comm),
      NcclCommunicator::Job{.calls = calls,
                            .spare = std::make_shared<Buffer>(std::move(spare).value()),
                            .neighbours = std::move(neighbours).value()}));
}

NcclCommunicator::NcclCommunicator(std::unique_ptr<GroupCommunicator> group,
                                   std::shared_ptr<NcclComm> comm, Job job)
    : group_(std::move(group)),
      comm_(std::move(comm)),
      job_(std::move(job)),
      bytes_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

// After a failure the others may be gone: nobody waits for them.
NcclCommunicator::~NcclCommunicator() {
  if (group_->engine()->in_child()) {
    abandon(comm_);
  } else if (!group_->status().ok()) {
    (void)comm_->abort(kNcclAbortSeconds);
  }
}

TransportStats NcclCommunicator::transport_stats() const {
  TransportStats stats = group_->transport_stats();
  stats.bytes_sent += job_.bytes->load(std::memory_order_relaxed);
  return stats;
}

std::uint64_t NcclCommunicator::bytes_sent() const {
  return group_->bytes_sent() + bytes_->load(std::memory_order_relaxed);
}

std::string NcclCommunicator::describe() const {
  return group_->describe() + format("; CUDA device %d: NCCL %s (%s)", comm_->device().ordinal,
                                     nccl::version_text(job_.calls->version).c_str(),
                                     job_.calls->library.c_str());
}

Result<std::string_view> NcclCommunicator::algorithm_for(OpKind kind, std::int64_t bytes,
                                                         std::string_view wanted) {
  if (wanted == kAlgorithm) return kAlgorithm;
  return group_->algorithm_for(kind, bytes, wanted);
}

bool NcclCommunicator::on_device(const OpCall& call, const OpOptions& options) const {
  const auto there = [](ConstTensorView tensor) {
    return tensor.device().space == MemorySpace::kCuda;
  };
  return options.stream.device.space == MemorySpace::kCuda || there(call.in) || there(call.out) ||
         std::ranges::any_of(call.tensors, there);
}

Result<NcclCommunicator::Checked> NcclCommunicator::check(const OpCall& call,
                                                          const OpOptions& options) const {
  if (options.stream.device.space == MemorySpace::kCuda &&
      options.stream.device != comm_->device()) {
    return Status(Code::kInvalidArgument,
                  std::string(to_string(call.kind)) +
                      format(": a stream of CUDA device %d (expected device %d)",
                             options.stream.device.ordinal, comm_->device().ordinal));
  }
  GW_TRY(check_own_stream(std::string(to_string(call.kind)), options.stream, *group_,
                          job_.neighbours));
  GW_ASSIGN(const Extent extent, check_device_call(call, options, rank(), size(), comm_->device()));
  GW_TRY(check_nccl_serves(call, options));
  return Checked{call, extent};
}

Result<Work> NcclCommunicator::start(const OpCall& call, const OpOptions& options) {
  return start_all(std::span(&call, 1), options);
}

Result<Work> NcclCommunicator::start_all(std::span<const OpCall> calls, const OpOptions& options) {
  const auto there = [&](const OpCall& call) { return on_device(call, options); };
  const auto count = std::ranges::count_if(calls, there);
  if (count == 0) return group_->start_all(calls, options);
  if (count != std::ssize(calls)) {
    return Status(Code::kInvalidArgument,
                  format("a batch with %lld of %zu calls on the device (expected all or none)",
                         static_cast<long long>(count), calls.size()));
  }
  std::vector<Checked> checked;
  for (const OpCall& call : calls) {
    GW_ASSIGN(Checked one, check(call, options));
    checked.push_back(one);
  }
  return launch(checked, options);
}

// The operation is the engine's before it is enqueued: where a peer does not come, the engine knows
// whose fault that is, and aborts.
Result<Work> NcclCommunicator::launch(const std::vector<Checked>& calls, const OpOptions& options) {
  GW_TRY(group_->status());
  GW_ASSIGN(const bool captured, cuda::is_capturing({comm_->device(), options.stream.native}));
  const cuda::OnDevice here(comm_->device());
  GW_TRY(here.status());
  if (captured) return capture(calls, options);
  const Checked& first = calls.front();
  const auto collective =
      std::ranges::find_if(calls, [](const Checked& one) { return !is_pair(one.call); });
  const Checked& head = collective == calls.end() ? first : *collective;
  const std::uint64_t number = collective == calls.end() ? next_pair_++ : group_->take_number();
  const Deadline deadline =
      options.deadline.value_or(deadline_in(group_->options().deadline_seconds));
  const Signature signature = signature_of(head.call, head.extent);
  auto flight = std::make_shared<NcclFlight>();
  auto work = std::make_shared<WorkState>(group_->engine());
  auto operation = std::make_unique<Operation>(Operation{
      .name = signature.name,
      .number = number,
      .dtype = signature.dtype,
      .elems = signature.elems,
      .reduce = signature.reduce,
      .root = signature.root,
      .algorithm = kAlgorithm,
      .collective = collective != calls.end(),
      .started = std::chrono::steady_clock::now(),
      .deadline = deadline,
      .execution =
          std::make_unique<NcclExecution>(comm_, flight, group_->route_of(number), peers_of(calls)),
      .work = work,
      .bytes_sent = bytes_});
  GW_TRY(group_->engine()->submit(std::move(operation)));
  std::erase_if(open_, [](const auto& one) { return one->done(); });
  open_.push_back(work);
  Enqueued made;  // until NCCL is through with it where it failed, too
  auto point = enqueue_to_point(calls, options, deadline + std::chrono::seconds(1), made);
  if (point.has_value()) {
    job_.bytes->fetch_add(made.bytes, std::memory_order_relaxed);
    flight->enqueued(std::move(point).value(), made.bytes);
    work->set_hold([flight](const Stream& waiting) { return flight->hold(waiting); });
    return Work(std::move(work));
  }
  flight->failed(point.error(), {comm_->device(), options.stream.native});
  (void)group_->engine()->wait(*work, deadline_in(kGrace));
  flight->forget_stream();
  return work->done() ? work->status() : point.error();
}

// What NCCL is asked for all of them, in one group, on the stream. The device is the thread's.
Status NcclCommunicator::enqueue(const std::vector<Checked>& calls, const OpOptions& options,
                                 Deadline deadline, Enqueued& made) const {
  const Device device = comm_->device();
  const Stream stream{device, options.stream.native};
  std::vector<NcclStep> steps;
  for (const Checked& one : calls) {
    const ConstByteSpan in = one.call.in.bytes();
    const std::byte* from = in.data();
    if (needs_copy_of_in(one.call, one.extent)) {
      GW_ASSIGN(cuda::Scratch copy, cuda::Scratch::allocate(in.size(), stream));
      const ByteSpan to(copy.as<std::byte>(), in.size());
      GW_TRY(copy_bytes(in, device, to, device, stream));
      from = to.data();
      made.copies.push_back(std::move(copy));
    }
    const NcclPlan plan = plan_nccl(one.call, one.extent, options.factor, rank(), size(), from,
                                    job_.spare->bytes().data());
    for (const NcclPlan::Copy& copy : plan.copies) {
      GW_TRY(copy_bytes({copy.from, copy.bytes}, device, {copy.to, copy.bytes}, device, stream));
    }
    append(steps, plan.steps);
    made.bytes += plan.bytes;
  }
  GW_ASSIGN(OrderedReductions ordered, OrderedReductions::prepare(steps, rank(), size(), stream));
  made.ordered.emplace(std::move(ordered));
  GW_TRY(comm_->launch(steps, stream, deadline));
  return made.ordered->finish(stream);
}

Result<cuda::Event> NcclCommunicator::enqueue_to_point(const std::vector<Checked>& calls,
                                                       const OpOptions& options, Deadline deadline,
                                                       Enqueued& made) const {
  GW_TRY(enqueue(calls, options, deadline, made));
  GW_ASSIGN(cuda::Event point, cuda::Event::create(comm_->device()));
  GW_TRY(point.record({comm_->device(), options.stream.native}));
  return point;
}

// What the graph will do each time it is launched. Nobody hears of that here: such work has neither
// a deadline nor a point that it has passed.
Result<Work> NcclCommunicator::capture(const std::vector<Checked>& calls,
                                       const OpOptions& options) {
  Enqueued made;
  const Deadline deadline =
      options.deadline.value_or(deadline_in(group_->options().deadline_seconds));
  const Status captured = enqueue(calls, options, deadline, made);
  if (captured.ok()) return Work(std::make_shared<WorkState>(group_->engine(), 0));
  // The others may have their part: none of them shall wait for this one.
  group_->abort(captured.message());
  return captured;
}

// Job ranks: of sends and receives alone their peers, else all others.
std::vector<int> NcclCommunicator::peers_of(const std::vector<Checked>& calls) const {
  std::vector<int> peers;
  const bool pairs = std::ranges::all_of(calls, [](const Checked& c) { return is_pair(c.call); });
  for (int r = 0; r < size(); ++r) {
    const bool named =
        std::ranges::any_of(calls, [r](const Checked& c) { return c.call.peer == r; });
    if (r != rank() && (!pairs || named)) peers.push_back(job_rank(r));
  }
  std::ranges::sort(peers);
  return peers;
}

Result<PersistentWork> NcclCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (!on_device(call, options)) return group_->prepare(call, options);
  if (options.deadline) {
    return Status(Code::kInvalidArgument,
                  "prepare: a deadline (expected none: each run has the communicator's)");
  }
  GW_ASSIGN(Checked checked, check(call, options));
  // The caller's spans are read during the call alone.
  struct Kept {
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> recv_counts;
    std::vector<TensorView> tensors;
  };
  auto kept = std::make_shared<Kept>(Kept{{call.counts.begin(), call.counts.end()},
                                          {call.recv_counts.begin(), call.recv_counts.end()},
                                          {call.tensors.begin(), call.tensors.end()}});
  checked.call.counts = kept->counts;
  checked.call.recv_counts = kept->recv_counts;
  checked.call.tensors = kept->tensors;
  OpOptions every = options;
  every.algorithm = kAlgorithm;
  return PersistentWork(
      [this, kept, every, calls = std::vector<Checked>{checked}] { return launch(calls, every); });
}

// NCCL splits what has nothing under way.
Status NcclCommunicator::await_all(Deadline deadline) {
  for (const std::shared_ptr<WorkState>& work : open_) {
    if (!group_->engine()->wait(*work, deadline)) {
      return {Code::kTimedOut, "split: operations were still under way"};
    }
    GW_TRY(work->status());
  }
  open_.clear();
  return {};
}

Result<std::unique_ptr<Communicator>> NcclCommunicator::split(int color, int key) {
  const Deadline deadline = deadline_in(group_->options().deadline_seconds);
  GW_TRY(await_all(deadline));
  GW_ASSIGN(auto part, group_->split(color, key));
  auto comm = comm_->split(color, key, deadline);
  if (!comm.has_value()) {
    group_->abort(std::string(comm.error().message()));
    return comm.error().with_context("split");
  }
  if (part == nullptr) return std::unique_ptr<Communicator>();
  std::unique_ptr<GroupCommunicator> group(static_cast<GroupCommunicator*>(part.release()));
  if (comm.value()->rank() != group->rank() || comm.value()->size() != group->size()) {
    return Status(Code::kInternal,
                  format("split: NCCL says rank %d of %d (expected %d of %d)", comm.value()->rank(),
                         comm.value()->size(), group->rank(), group->size()));
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(std::move(group), std::move(comm).value(), job_));
}

// The survivors meet over messages, and make a new NCCL communicator.
Result<std::unique_ptr<Communicator>> NcclCommunicator::shrink(std::optional<Deadline> deadline) {
  GW_ASSIGN(auto left, group_->shrink(deadline));
  (void)comm_->abort(kNcclAbortSeconds);
  std::unique_ptr<GroupCommunicator> group(static_cast<GroupCommunicator*>(left.release()));
  look_often(*group);
  const Deadline until = deadline_in(group->options().deadline_seconds);
  GW_ASSIGN(const nccl::UniqueId id, broadcast_id(*job_.calls, *group, until));
  const NcclComm::Place place{
      .id = id, .rank = group->rank(), .size = group->size(), .device = comm_->device()};
  GW_ASSIGN(std::shared_ptr<NcclComm> comm, NcclComm::create(job_.calls, place, until));
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(std::move(group), std::move(comm), job_));
}

}  // namespace gradwire
