// The path of tensors on CUDA devices: NCCL moves and reduces them. Who is there, whose fault a
// failure is, and what is on the host is the business of the engine of messages between the same
// ranks.
//
// What is on the device: calls with a tensor there, or (barriers, and ranks that have no part) with
// a stream of the device. Their work is enqueued on that stream when the call returns, which does
// not wait for it; kernels on the same stream need no wait(). Where the first call to a peer makes
// a connection it waits for the peer. Tensors on the host go over messages, as if there were no
// NCCL.
//
// Calls on a stream that is captured become part of its CUDA graph, on all ranks or on none; the
// Work is done at once. What the graph does later has no deadline, is not counted by bytes_sent(),
// and hangs where a rank does not launch it, until somebody calls abort(). The communicator, and
// the tensors, outlive the graph.
//
// Differences to operations on the host: mean and pre_mul_sum are NCCL's own, which scale before
// they add; maxima and minima of floating numbers are NCCL's of integers (nccl_ordered.h); NCCL
// fixes the order of a sum, the same on all ranks, but not alike for all sizes;
// bytes_sent() counts what a rank has to send at least; sends and receives that wait for one
// another must be one batch (start_all), and no two may differ in their order; ranks whose calls
// differ are not told so but when they are late. Not served (kUnsupported): exclusive_scan, tags,
// receives from any source, named algorithms; nor (kInvalidArgument) CUDA's default stream for
// ranks that are threads of one process with one device.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "base/hash.h"
#include "base/text.h"
#include "collectives/device/nccl_backend.h"
#include "collectives/device/nccl_execution.h"
#include "collectives/device/nccl_ordered.h"
#include "collectives/device/nccl_plan.h"
#include "collectives/plan/path.h"
#include "collectives/schedules/op_traits.h"
#include "comm/host.h"
#include "comm/nccl/nccl_calls.h"
#include "comm/shm/bell.h"
#include "device/cuda/capture.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
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

// The job ranks, other than its own, that are threads of this rank's process and bring its device:
// what one of them has on CUDA's default stream stands before what this rank puts there.
using NcclNeighbours = std::vector<int>;

// What ranks tell one another before they make a communicator over NCCL.

// What a rank says: three numbers.
enum NcclStanding : std::size_t {
  kVersion,
  kOrdinal,
  kProcess,  // a hash of its number and of where that number counts
  kWords
};

std::int64_t this_process() {
  const std::string name =
      format("%s/%d", comm::process_space().c_str(), static_cast<int>(getpid()));
  return static_cast<std::int64_t>(hash_name(name));
}

Status check_versions(const std::vector<std::int64_t>& all) {
  const auto text = [](std::int64_t version) {
    return nccl::version_text(static_cast<int>(version));
  };
  const std::int64_t wanted = all[kVersion];
  for (std::size_t r = 0; r < all.size() / kWords; ++r) {
    const std::int64_t theirs = all[r * kWords + kVersion];
    const auto rank = static_cast<int>(r);
    if (theirs == 0) {
      return {Code::kUnsupported, format("nccl: rank %d cannot take part, and says why", rank)};
    }
    if (theirs == wanted) continue;
    return {Code::kRankMismatch, format("nccl: NCCL %s on rank %d (expected %s, as on rank 0)",
                                        text(theirs).c_str(), rank, text(wanted).c_str())};
  }
  return {};
}

// Collective: all ranks or none. `version` of NCCL is that of every rank: kRankMismatch, naming
// both. 0: this rank cannot take part, and says why itself; the others are told who it is
// (kUnsupported). `device` is what this rank brings.
Result<NcclNeighbours> agree_on_nccl(Communicator& group, int version, Device device) {
  const std::array<std::int64_t, kWords> own{version, device.ordinal, this_process()};
  GW_ASSIGN(const auto all, gather_numbers(group, own));
  GW_TRY(check_versions(all));
  NcclNeighbours neighbours;
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t* const theirs = all.data() + kWords * static_cast<std::size_t>(r);
    const bool beside = theirs[kProcess] == own[kProcess] && theirs[kOrdinal] == own[kOrdinal];
    if (beside && r != group.rank()) neighbours.push_back(group.job_rank(r));
  }
  return neighbours;
}

// kInvalidArgument, naming a neighbour and what to do, where `stream`, of this rank's device, is
// CUDA's default stream or goes with it, and a neighbour is among `group`: their kernels would
// wait for each other and never end, at once or when one of the two frees memory.
Status check_own_stream(const std::string& operation, const Stream& stream, const Group& group,
                        const NcclNeighbours& neighbours) {
  if (neighbours.empty()) return {};
  GW_ASSIGN(const bool shared, cuda::goes_with_default(stream));
  if (!shared) return {};
  for (int r = 0; r < group.size(); ++r) {
    if (std::ranges::find(neighbours, group.job_rank(r)) == neighbours.end()) continue;
    return {Code::kInvalidArgument,
            operation +
                format(": on a stream that synchronises with CUDA's default stream, while rank %d, "
                       "a thread of the same process, uses that device too (expected a stream of "
                       "the rank's own in OpOptions::stream, made with cudaStreamNonBlocking)",
                       r)};
  }
  return {};
}

// The engine of messages looks at the device about every millisecond while somebody waits for it.
void look_often(Group& world) { world.engine()->listen_to(std::make_shared<shm::Bell>()); }

// How many ranks of the same node come before this one. Where nobody knows of nodes it is one.
int place_in_node(const Communicator& group) {
  const std::vector<int> nodes = group.nodes();
  if (nodes.empty()) return group.rank();
  const auto self = nodes.begin() + group.rank();
  return static_cast<int>(std::count(nodes.begin(), self, *self));
}

using Calls = std::vector<std::unique_ptr<const KeptCall>>;

// What an operation has of the device beside its tensors, and how much it sends.
struct Enqueued {
  std::vector<cuda::Scratch> copies;  // freed in the stream's order, its device being the thread's
  std::optional<OrderedReductions> ordered;
  std::uint64_t bytes = 0;
};

// What the communicators of a rank's job have in common.
struct NcclJob {
  std::shared_ptr<const nccl::Calls> calls;
  std::shared_ptr<Buffer> spare;  // some bytes of the device
  NcclNeighbours neighbours;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes =
      std::make_shared<std::atomic<std::uint64_t>>(0);  // that NCCL was given to send
};

class NcclPath final : public CallPath {
 public:
  NcclPath(Group& group, std::shared_ptr<NcclComm> comm, NcclJob job)
      : group_(group), comm_(std::move(comm)), job_(std::move(job)) {}
  // After a failure the others may be gone: nobody waits for them.
  ~NcclPath() override {
    if (group_.engine()->in_child()) {
      abandon(comm_);
    } else if (group_.has_failed()) {
      (void)comm_->abort(kNcclAbortSeconds);
    }
  }

  // Calls on the device.
  bool serves(const OpCall& call, const OpOptions& options) const override {
    return names_device(call, options);
  }
  std::optional<Device> device() const override { return comm_->device(); }
  // Only where "nccl" is asked for: where the tensors are is not said.
  Result<std::optional<std::string_view>> algorithm_for(OpKind, std::int64_t,
                                                        std::string_view wanted) override {
    return wanted == kAlgorithm ? std::optional(kAlgorithm) : std::nullopt;
  }
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall& call) override {
    std::vector<std::unique_ptr<PreparedCall>> prepared;
    GW_TRY(prepare_all({call}, prepared));
    return std::move(prepared.front());
  }
  // One for all: NCCL runs them in one group.
  Status prepare_all(const std::vector<CheckedCall>& calls,
                     std::vector<std::unique_ptr<PreparedCall>>& prepared) override;
  std::string describe() const override {
    return format("CUDA device %d: NCCL %s (%s)", comm_->device().ordinal,
                  nccl::version_text(job_.calls->version).c_str(), job_.calls->library.c_str());
  }
  // That NCCL has to send at least.
  std::uint64_t job_bytes() const override { return job_.bytes->load(std::memory_order_relaxed); }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers& part) override;
  Result<std::unique_ptr<CallPath>> for_split(int color, int key,
                                              const GroupMembers* part) override;
  Result<std::unique_ptr<CallPath>> for_survivors(const GroupMembers& left) override;
  // NCCL splits what has nothing under way.
  Status await_all(Deadline deadline) override;

 private:
  class Run;

  Status check(const CheckedCall& call) const;
  // Calls of one batch: their options are the same.
  Status start(const Calls& calls, const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline);
  Status enqueue(const Calls& calls, const Stream& stream, Deadline deadline, Enqueued& made) const;
  Result<cuda::Event> enqueue_to_point(const Calls& calls, const Stream& stream, Deadline deadline,
                                       Enqueued& made) const;
  std::vector<int> peers_of(const Calls& calls, bool pairs) const;

  Group& group_;
  std::shared_ptr<NcclComm> comm_;
  NcclJob job_;
  std::vector<std::shared_ptr<WorkState>> open_;  // of operations that may be under way
  std::uint64_t next_pair_ = 0;
};

// By a communicator of NCCL's that all ranks of the group make with this id.
Result<std::unique_ptr<CallPath>> path_with(const nccl::UniqueId& id, Group& group, NcclJob job,
                                            Device device, Deadline until) {
  const NcclComm::Place place{
      .id = id, .rank = group.rank(), .size = group.size(), .device = device};
  GW_ASSIGN(std::shared_ptr<NcclComm> comm, NcclComm::create(job.calls, place, until));
  return std::unique_ptr<CallPath>(
      std::make_unique<NcclPath>(group, std::move(comm), std::move(job)));
}

Status NcclPath::check(const CheckedCall& checked) const {
  const OpCall& call = checked.call;
  const Stream& stream = checked.options.stream;
  if (stream.device.space == MemorySpace::kCuda && stream.device != comm_->device()) {
    return {Code::kInvalidArgument, std::string(to_string(call.kind)) +
                                        format(": a stream of CUDA device %d (expected device %d)",
                                               stream.device.ordinal, comm_->device().ordinal)};
  }
  GW_TRY(check_own_stream(std::string(to_string(call.kind)), stream, group_, job_.neighbours));
  return check_nccl_serves(call, checked.options);
}

class NcclPath::Run final : public PreparedCall {
 public:
  Run(NcclPath& path, Calls calls)
      : PreparedCall(path.group_), path_(path), calls_(std::move(calls)) {}
  Status start(const std::shared_ptr<WorkState>& work,
               const std::optional<Deadline>& deadline) override {
    return path_.start(calls_, work, deadline);
  }

 private:
  NcclPath& path_;
  Calls calls_;
};

Status NcclPath::prepare_all(const std::vector<CheckedCall>& calls,
                             std::vector<std::unique_ptr<PreparedCall>>& prepared) {
  Calls kept;
  for (const CheckedCall& call : calls) {
    GW_TRY(check(call));
    kept.push_back(std::make_unique<const KeptCall>(call));
  }
  prepared.push_back(std::make_unique<Run>(*this, std::move(kept)));
  return {};
}

// The operation is the engine's before it is enqueued: where a peer does not come, the engine knows
// whose fault that is, and aborts.
Status NcclPath::start(const Calls& calls, const std::shared_ptr<WorkState>& work,
                       const std::optional<Deadline>& deadline) {
  const Stream stream{comm_->device(), calls.front()->options.stream.native};
  GW_ASSIGN(const bool captured, cuda::is_capturing(stream));
  const cuda::OnDevice here(comm_->device());
  GW_TRY(here.status());
  const Deadline until = group_.end_of(deadline);
  if (captured) {
    // What the graph will do each time it is launched. Nobody hears of that here: such work has
    // neither a deadline nor a point that it has passed.
    Enqueued made;
    const Status status = enqueue(calls, stream, until, made);
    // The others may have their part: none of them shall wait for this one.
    if (!status.ok()) group_.engine()->abort(std::string(status.message()));
    work->finish(status);
    return status;
  }
  const auto collective =
      std::ranges::find_if(calls, [](const auto& one) { return !traits_of(one->call.kind).pair; });
  const bool pairs = collective == calls.end();
  const KeptCall& head = pairs ? *calls.front() : **collective;
  const std::uint64_t number = pairs ? next_pair_++ : group_.take_number();
  auto flight = std::make_shared<NcclFlight>();
  GW_TRY(group_.engine()->submit(std::make_unique<Operation>(
      Operation{.signature = signature_of(head.call.kind, head.extent.dtype, head.call.op,
                                          head.extent.agreed, head.call.peer),
                .number = number,
                .algorithm = kAlgorithm,
                .collective = !pairs,
                .deadline = until,
                .execution = std::make_unique<NcclExecution>(comm_, flight, group_.route_of(number),
                                                             peers_of(calls, pairs)),
                .work = work,
                .bytes_sent = group_.other_bytes()})));
  std::erase_if(open_, [](const auto& one) { return one->done(); });
  open_.push_back(work);
  Enqueued made;  // until NCCL is through with it where it failed, too
  auto point = enqueue_to_point(calls, stream, until + std::chrono::seconds(1), made);
  if (point.has_value()) {
    job_.bytes->fetch_add(made.bytes, std::memory_order_relaxed);
    flight->enqueued(std::move(point).value(), made.bytes);
    work->set_hold([flight](const Stream& waiting) { return flight->hold(waiting); });
    work->set_passed([flight] { return flight->left(); });
    return {};
  }
  flight->failed(point.error(), stream);
  (void)group_.engine()->wait(*work, deadline_in(kGrace));
  flight->forget_stream();
  return work->done() ? work->status() : point.error();
}

// What NCCL is asked for all of them, in one group, on the stream. The device is the thread's.
Status NcclPath::enqueue(const Calls& calls, const Stream& stream, Deadline deadline,
                         Enqueued& made) const {
  const Device device = comm_->device();
  std::vector<NcclStep> steps;
  for (const auto& kept : calls) {
    const KeptCall& one = *kept;
    const ConstByteSpan in = one.call.in.bytes();
    const std::byte* from = in.data();
    if (needs_copy_of_in(one.call, one.extent)) {
      GW_ASSIGN(cuda::Scratch copy, cuda::Scratch::allocate(in.size(), stream));
      const ByteSpan to(copy.as<std::byte>(), in.size());
      GW_TRY(copy_bytes(in, device, to, device, stream));
      from = to.data();
      made.copies.push_back(std::move(copy));
    }
    const NcclPlan plan = plan_nccl(one.call, one.extent, one.options.factor, group_.rank(),
                                    group_.size(), from, job_.spare->bytes().data());
    for (const NcclPlan::Copy& copy : plan.copies) {
      GW_TRY(copy_bytes({copy.from, copy.bytes}, device, {copy.to, copy.bytes}, device, stream));
    }
    steps.insert(steps.end(), plan.steps.begin(), plan.steps.end());
    made.bytes += plan.bytes;
  }
  GW_ASSIGN(OrderedReductions ordered,
            OrderedReductions::prepare(steps, group_.rank(), group_.size(), stream));
  made.ordered.emplace(std::move(ordered));
  GW_TRY(comm_->launch(steps, stream, deadline));
  return made.ordered->finish(stream);
}

Result<cuda::Event> NcclPath::enqueue_to_point(const Calls& calls, const Stream& stream,
                                               Deadline deadline, Enqueued& made) const {
  GW_TRY(enqueue(calls, stream, deadline, made));
  GW_ASSIGN(cuda::Event point, cuda::Event::create(comm_->device()));
  GW_TRY(point.record(stream));
  return point;
}

// Job ranks: of sends and receives alone their peers, else all others.
std::vector<int> NcclPath::peers_of(const Calls& calls, bool pairs) const {
  std::vector<int> peers;
  for (int r = 0; r < group_.size(); ++r) {
    const bool named =
        std::ranges::any_of(calls, [r](const auto& one) { return one->call.peer == r; });
    if (r != group_.rank() && (!pairs || named)) peers.push_back(group_.job_rank(r));
  }
  std::ranges::sort(peers);
  return peers;
}

Status NcclPath::await_all(Deadline deadline) {
  for (const std::shared_ptr<WorkState>& work : open_) {
    if (!group_.engine()->wait(*work, deadline)) {
      return {Code::kTimedOut, "split: operations were still under way"};
    }
    GW_TRY(work->status());
  }
  open_.clear();
  return {};
}

Result<std::unique_ptr<CallPath>> NcclPath::for_group(const GroupMembers& part) {
  const Deadline until = part.group.end_of(std::nullopt);
  GW_ASSIGN(const nccl::UniqueId id, broadcast_id(*job_.calls, part.communicator, until));
  return path_with(id, part.group, job_, comm_->device(), until);
}

Result<std::unique_ptr<CallPath>> NcclPath::for_split(int color, int key,
                                                      const GroupMembers* part) {
  auto comm = comm_->split(color, key, group_.end_of(std::nullopt));
  if (!comm.has_value()) {
    group_.engine()->abort(std::string(comm.error().message()));
    return comm.error().with_context("split");
  }
  if (part == nullptr) return std::unique_ptr<CallPath>();
  if (comm.value()->rank() != part->group.rank() || comm.value()->size() != part->group.size()) {
    return Status(Code::kInternal,
                  format("split: NCCL says rank %d of %d (expected %d of %d)", comm.value()->rank(),
                         comm.value()->size(), part->group.rank(), part->group.size()));
  }
  return std::unique_ptr<CallPath>(
      std::make_unique<NcclPath>(part->group, std::move(comm).value(), job_));
}

// The survivors meet over messages, and make a new communicator of NCCL's.
Result<std::unique_ptr<CallPath>> NcclPath::for_survivors(const GroupMembers& left) {
  (void)comm_->abort(kNcclAbortSeconds);
  look_often(left.group);
  return for_group(left);
}

}  // namespace

Result<std::unique_ptr<CallPath>> make_nccl_path(const GroupMembers& world,
                                                 const std::vector<std::string>& libraries,
                                                 std::optional<int> ordinal,
                                                 double timeout_seconds) {
  const auto opened = nccl::open_calls(libraries);
  const auto device = device_of_rank(ordinal, place_in_node(world.communicator));
  auto spare = device.has_value() ? Buffer::allocate(1, device.value()) : device.error();
  if (opened.has_value() && spare.has_value()) {
    const Status reached = let_kernels_reach(*opened.value(), device.value());
    if (!reached.ok()) spare = reached;
  }
  const bool able = opened.has_value() && spare.has_value();
  auto neighbours = agree_on_nccl(world.communicator, able ? opened.value()->version : 0,
                                  device.has_value() ? device.value() : Device{});
  if (!opened.has_value()) return opened.error();
  if (!spare.has_value()) return spare.error().with_context("nccl");
  if (!neighbours.has_value()) return neighbours.error();
  const Deadline deadline = deadline_in(timeout_seconds);
  GW_ASSIGN(const nccl::UniqueId id, broadcast_id(*opened.value(), world.communicator, deadline));
  look_often(world.group);
  return path_with(id, world.group,
                   {.calls = opened.value(),
                    .spare = std::make_shared<Buffer>(std::move(spare).value()),
                    .neighbours = std::move(neighbours).value()},
                   device.value(), deadline);
}

}  // namespace gradwire
