#include "collectives/shm/communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/plan/arguments.h"

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

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ShmCommunicator::ShmCommunicator(std::unique_ptr<GroupCommunicator> group,
                                 std::shared_ptr<const SharedHosts> hosts,
                                 std::shared_ptr<ShmChannel> channel)
    : SharingCommunicator(std::move(group), std::move(hosts)),
      channel_(std::move(channel)),
      staging_(std::make_shared<ShmStaging>(hosts_->boards)) {}

ShmCommunicator::~ShmCommunicator() {
  if (!group_->engine()->has_failed()) channel_->close();
}

std::string ShmCommunicator::describe() const {
  return group_->describe() + "; collectives in shared memory";
}

Result<std::unique_ptr<Communicator>> ShmCommunicator::create(
    std::unique_ptr<GroupCommunicator>& group, const std::shared_ptr<const SharedHosts>& hosts) {
  const int size = group->size();
  const std::shared_ptr<ShmBoards>& boards = hosts->boards;
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
  for (int r = 0; r < size; ++r) members.push_back(boards->arena_rank(group->job_rank(r)));
  auto channel = std::make_shared<ShmChannel>(boards, static_cast<std::uint64_t>(offset),
                                              std::move(members), group->rank());
  return std::unique_ptr<Communicator>(
      new ShmCommunicator(std::move(group), hosts, std::move(channel)));
}

// The communicator's own choice of an algorithm is for all_reduce and reduce_scatter alone.
bool ShmCommunicator::in_memory(OpKind kind, std::string_view algorithm) const {
  if (!runs_in_memory(kind)) return false;
  const bool has_default = kind == OpKind::kAllReduce || kind == OpKind::kAllReduceFused ||
                           kind == OpKind::kReduceScatter || kind == OpKind::kReduceScatterV;
  if (has_default && algorithm == "auto") algorithm = group_->options().algorithm;
  return algorithm == "auto" || algorithm == kAlgorithm ||
         (has_default && algorithm == "canonical");
}

// What is on a device goes by messages.
bool ShmCommunicator::in_memory(const OpCall& call, const OpOptions& options) const {
  return !names_device(call, options) && in_memory(call.kind, options.algorithm);
}

Result<std::string_view> ShmCommunicator::algorithm_for(OpKind kind, std::int64_t bytes,
                                                        std::string_view wanted) {
  if (in_memory(kind, wanted)) return kAlgorithm;
  return group_->algorithm_for(kind, bytes, wanted);
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
    if (execution.met()) return true;
    if (yields) {
      sched_yield();
    } else if (look >= kQuickLooks) {
      pause_briefly();
    }
  }
  if (patient || !channel_->crowded()) return execution.met();
  channel_->sleep([&] { return execution.ready(); },
                  std::chrono::steady_clock::now() + kShortSleep);
  return execution.met();
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
Result<Work> ShmCommunicator::launch(const ShmOperation& planned,
                                     std::optional<Deadline> deadline) {
  if (group_->engine()->has_failed()) return group_->status();
  if (planned.before) GW_TRY(planned.before());
  const std::uint64_t number = group_->take_number();
  const ShmMoves& moves = shm_moves_of(planned.call.kind);
  const bool brief = moves.in_bytes(planned.call, size()) <= kAtOnceBytes &&
                     channel_->handed_over.load(std::memory_order_acquire) == 0;
  ShmExecution execution(*channel_, moves, planned.call, next_++);
  const bool sound = !brief || execution.step().has_value();
  const std::uint64_t flight = begin_flight(planned.call, number);
  if (brief && sound && run_at_once(execution)) {
    bytes_->fetch_add(execution.bytes_sent(), std::memory_order_relaxed);
    group_->engine()->recorder().end_at_once(flight, execution.bytes_sent());
    if (planned.after) GW_TRY(planned.after());
    return Work(nullptr);
  }
  auto work = std::make_shared<WorkState>(group_->engine());
  GW_TRY(hand_over(std::move(execution), planned, {number, flight}, deadline, work));
  return Work(std::move(work));
}

std::uint64_t ShmCommunicator::begin_flight(const ShmCall& call, std::uint64_t number) {
  return group_->engine()->recorder().begin({.communicator = group_->id(),
                                             .number = number,
                                             .signature = signature_of(call),
                                             .algorithm = kAlgorithm});
}

Status ShmCommunicator::hand_over(ShmExecution execution, const ShmOperation& planned,
                                  Numbers numbers, std::optional<Deadline> deadline,
                                  std::shared_ptr<WorkState> work) {
  auto running = std::make_unique<ShmExecution>(std::move(execution));
  running->hand_over(channel_, group_->route_of(numbers.operation));
  const Signature signature = signature_of(planned.call);
  auto operation = std::make_unique<Operation>(
      Operation{.name = signature.name,
                .number = numbers.operation,
                .dtype = signature.dtype,
                .elems = signature.elems,
                .reduce = signature.reduce,
                .root = signature.root,
                .algorithm = kAlgorithm,
                .started = std::chrono::steady_clock::now(),
                .deadline = deadline.value_or(deadline_in(group_->options().deadline_seconds)),
                .execution = std::move(running),
                .work = std::move(work),
                .bytes_sent = bytes_,
                .after = planned.after,
                .own = planned.own,
                .flight = numbers.flight});
  return group_->engine()->submit(std::move(operation));
}

Status ShmCommunicator::plan(const OpCall& call, const OpOptions& options,
                             ShmOperation& planned) const {
  return plan_in_memory(call, options, rank(), size(), *staging_, planned);
}

Result<Work> ShmCommunicator::start(const OpCall& call, const OpOptions& options) {
  if (!in_memory(call, options)) return group_->start(call, options);
  ShmOperation planned;
  GW_TRY(plan(call, options, planned));
  return launch(planned, options.deadline);
}

// Each call goes the way that it would go alone, so that ranks whose batches differ in sends and
// receives agree about the collectives.
Result<Work> ShmCommunicator::start_all(std::span<const OpCall> calls, const OpOptions& options) {
  if (calls.size() == 1) return start(calls.front(), options);
  std::vector<ShmOperation> here;
  std::vector<OpCall> others;
  for (const OpCall& call : calls) {
    if (!in_memory(call, options)) {
      others.push_back(call);
      continue;
    }
    GW_TRY(plan(call, options, here.emplace_back()));
  }
  if (here.empty()) return group_->start_all(calls, options);
  GW_ASSIGN(auto messages, group_->plan_all(others, options));
  if (group_->engine()->has_failed()) return group_->status();
  auto work = std::make_shared<WorkState>(group_->engine(), calls.size());
  Status refusal;
  for (const ShmOperation& planned : here) {
    if (planned.before) GW_TRY(planned.before());
  }
  for (const ShmOperation& planned : here) {
    const std::uint64_t number = group_->take_number();
    ShmExecution execution(*channel_, shm_moves_of(planned.call.kind), planned.call, next_++);
    const std::uint64_t flight = begin_flight(planned.call, number);
    const Status submitted =
        hand_over(std::move(execution), planned, {number, flight}, options.deadline, work);
    if (refusal.ok()) refusal = submitted;
  }
  const Status submitted = group_->launch(std::move(messages), options.deadline, work);
  if (refusal.ok()) refusal = submitted;
  GW_TRY(refusal);
  return Work(std::move(work));
}

Result<PersistentWork> ShmCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (!in_memory(call, options) || options.deadline) {
    return group_->prepare(call, options);
  }
  ShmOperation planned;
  GW_TRY(plan(call, options, planned));
  return PersistentWork(
      [this, planned = std::move(planned)] { return launch(planned, std::nullopt); });
}

bool shares_memory(const Communicator& communicator) {
  return dynamic_cast<const ShmCommunicator*>(&communicator) != nullptr;
}

}  // namespace gradwire
