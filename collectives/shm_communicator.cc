#include "collectives/shm_communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/arguments.h"

namespace gradwire {
namespace {

// Operations up to this size are tried inside the call: handing one over costs a microsecond or
// two, which is what they take.
constexpr std::size_t kAtOnceBytes = 1 << 20;
// Looks without success before an operation is handed over after all. The first few come one right
// after another; with a pause between, which is some 50 ns, the others take 20 us.
constexpr int kQuickLooks = 32;
constexpr int kLooks = 400;
// With more ranks than processors the others need them in between. A rank that has yielded as often
// as there are others and some still sleeps, for as long as a round of small operations may take.
constexpr int kCrowdedLooks = 48;
constexpr std::chrono::microseconds kShortSleep{200};
// Of Waiting::kSpin and kYield: then the engine goes on in the same way.
constexpr int kManyLooks = 20000;

constexpr std::string_view kAlgorithm = "shm";

Signature signature_of(const ShmCall& call) {
  const bool reduces = call.kind == OpKind::kAllReduce || call.kind == OpKind::kReduceScatter;
  return {.name = to_string(call.kind),
          .dtype = to_string(call.dtype),
          .reduce = reduces ? to_string(call.op) : std::string_view(),
          .elems = call.elems,
          .root = call.kind == OpKind::kBroadcast ? call.root : -1};
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ShmCommunicator::ShmCommunicator(std::unique_ptr<GroupCommunicator> group,
                                 std::shared_ptr<ShmBoards> boards,
                                 std::shared_ptr<ShmChannel> channel)
    : group_(std::move(group)),
      boards_(std::move(boards)),
      channel_(std::move(channel)),
      bytes_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

TransportStats ShmCommunicator::transport_stats() const {
  TransportStats stats = group_->transport_stats();
  stats.bytes_sent += boards_->total_bytes().load(std::memory_order_relaxed);
  return stats;
}

std::uint64_t ShmCommunicator::bytes_sent() const {
  return group_->bytes_sent() + bytes_->load(std::memory_order_relaxed);
}

std::string ShmCommunicator::describe() const {
  return group_->describe() + "; collectives in shared memory";
}

Result<std::unique_ptr<Communicator>> ShmCommunicator::create(
    std::unique_ptr<GroupCommunicator> group, std::shared_ptr<ShmBoards> boards) {
  const int size = group->size();
  if (size == 1) return std::unique_ptr<Communicator>(std::move(group));
  std::int64_t offset = -1;
  if (group->rank() == 0) {
    const auto made = boards->make(size);
    if (made.has_value()) offset = static_cast<std::int64_t>(made.value());
  }
  Communicator& messages = *group;
  GW_ASSIGN(Work work, messages.broadcast(view_of(std::span(&offset, 1)), 0));
  GW_TRY(work.wait());
  if (offset < 0) return std::unique_ptr<Communicator>(std::move(group));
  std::vector<int> members;
  for (int r = 0; r < size; ++r) members.push_back(group->job_rank(r));
  auto channel = std::make_shared<ShmChannel>(boards, static_cast<std::uint64_t>(offset),
                                              std::move(members), group->rank());
  return std::unique_ptr<Communicator>(
      new ShmCommunicator(std::move(group), std::move(boards), std::move(channel)));
}

Result<std::unique_ptr<Communicator>> ShmCommunicator::split(int color, int key) {
  GW_ASSIGN(auto part, group_->split(color, key));
  if (part == nullptr) return part;
  std::unique_ptr<GroupCommunicator> group(static_cast<GroupCommunicator*>(part.release()));
  return create(std::move(group), boards_);
}

Result<Buffer> ShmCommunicator::allocate(std::size_t bytes) {
  auto shared = boards_->arena().allocate(bytes);
  return shared.has_value() ? std::move(shared) : Buffer::allocate(bytes);
}

bool ShmCommunicator::in_memory(const OpCall& call, const OpOptions& options) const {
  bool sums = false;
  switch (call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter: sums = true; break;
    case OpKind::kBroadcast:
    case OpKind::kAllGather:
    case OpKind::kAllGatherV:
    case OpKind::kAllToAll:
    case OpKind::kBarrier: break;
    default: return false;
  }
  if (sums && call.op == ReduceOp::kPreMulSum) return false;  // factors differ between ranks
  std::string_view algorithm = options.algorithm;
  if (sums && algorithm == "auto") algorithm = group_->options().algorithm;
  return algorithm == "auto" || algorithm == "shm" || (sums && algorithm == "canonical");
}

Status ShmCommunicator::check(const OpCall& call, const OpOptions& options,
                              ShmCall& checked) const {
  GW_ASSIGN(const Extent extent, check_call(call, options, rank(), size()));
  checked.kind = call.kind;
  checked.dtype = extent.dtype;
  checked.op = call.op;
  checked.in = call.in.data();
  checked.out = call.out.data();
  checked.elems = extent.in;
  checked.root = call.kind == OpKind::kBroadcast ? call.peer : 0;
  if (call.kind == OpKind::kReduceScatter || call.kind == OpKind::kAllGatherV ||
      call.kind == OpKind::kBroadcast) {
    checked.elems = extent.out;
  } else if (call.kind == OpKind::kAllToAll) {
    checked.elems = extent.in / size();
  }
  if (call.kind == OpKind::kAllGatherV)
    checked.lengths.assign(call.counts.begin(), call.counts.end());
  return {};
}

// Until the execution can move, for a while; true when it can.
bool ShmCommunicator::wait_at_once(const ShmExecution& execution) const {
  const Waiting waiting = group_->options().waiting;
  const bool patient = waiting == Waiting::kSpin || waiting == Waiting::kYield;
  const bool yields =
      waiting == Waiting::kYield || (waiting == Waiting::kAdaptive && channel_->crowded());
  const int looks = waiting == Waiting::kSleep ? 0
                    : patient                  ? kManyLooks
                    : yields                   ? kCrowdedLooks
                                               : kLooks;
  for (int look = 0; look < looks; ++look) {
    if (execution.ready()) return true;
    if (yields) {
      sched_yield();
    } else if (look >= kQuickLooks) {
      pause_briefly();
    }
  }
  if (patient || !channel_->crowded()) return execution.ready();
  channel_->sleep([&] { return execution.ready(); },
                  std::chrono::steady_clock::now() + kShortSleep);
  return execution.ready();
}

// True when it has ended.
bool ShmCommunicator::run_at_once(ShmExecution& execution) const {
  while (true) {
    const Result<bool> moved = execution.step();
    if (!moved.has_value()) return false;  // will fail again, where it can be dealt with
    if (execution.done()) return true;
    if (!moved.value() && !wait_at_once(execution)) return false;
  }
}

// Small operations end in here, without an allocation or another thread. What others need not wait
// for is done while this rank waits for them.
Result<Work> ShmCommunicator::launch(ShmCall call, std::optional<Deadline> deadline) {
  FlightRecorder& recorder = group_->engine()->recorder();
  if (group_->engine()->has_failed()) return group_->status();
  const Signature signature = signature_of(call);
  const std::uint64_t number = group_->take_number();
  const ShmMoves& moves = shm_moves_of(call.kind);
  const bool brief = moves.in_bytes(call, size()) <= kAtOnceBytes &&
                     channel_->handed_over.load(std::memory_order_acquire) == 0;
  ShmExecution execution(*channel_, moves, std::move(call), next_++);
  const bool sound = !brief || execution.step().has_value();
  const std::uint64_t flight = recorder.begin({.communicator = group_->id(),
                                               .number = number,
                                               .signature = signature,
                                               .algorithm = kAlgorithm});
  if (brief && sound && run_at_once(execution)) {
    bytes_->fetch_add(execution.bytes_sent(), std::memory_order_relaxed);
    recorder.end_at_once(flight, execution.bytes_sent());
    return Work(nullptr);
  }
  auto running = std::make_unique<ShmExecution>(std::move(execution));
  running->hand_over(channel_, group_->route_of(number));
  auto work = std::make_shared<WorkState>(group_->engine());
  auto operation = std::make_unique<Operation>(
      Operation{.name = signature.name,
                .number = number,
                .dtype = signature.dtype,
                .elems = signature.elems,
                .reduce = signature.reduce,
                .root = signature.root,
                .algorithm = kAlgorithm,
                .started = std::chrono::steady_clock::now(),
                .deadline = deadline.value_or(deadline_in(group_->options().deadline_seconds)),
                .execution = std::move(running),
                .work = work,
                .bytes_sent = bytes_,
                .flight = flight});
  GW_TRY(group_->engine()->submit(std::move(operation)));
  return Work(std::move(work));
}

Result<Work> ShmCommunicator::start(const OpCall& call, const OpOptions& options) {
  if (!in_memory(call, options)) return group_->start(call, options);
  ShmCall shm;
  GW_TRY(check(call, options, shm));
  return launch(std::move(shm), options.deadline);
}

Result<Work> ShmCommunicator::start_all(std::span<const OpCall> calls, const OpOptions& options) {
  // Operations in memory run one after another anyway; one alone is the usual case.
  if (calls.size() == 1) return start(calls.front(), options);
  return group_->start_all(calls, options);
}

Result<PersistentWork> ShmCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (!in_memory(call, options) || options.deadline) return group_->prepare(call, options);
  ShmCall shm;
  GW_TRY(check(call, options, shm));
  return PersistentWork([this, shm = std::move(shm)] { return launch(shm, std::nullopt); });
}

}  // namespace gradwire
