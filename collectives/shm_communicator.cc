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
// Looks without success before an operation is handed over after all: some microseconds. With more
// ranks than processors the others need them in between.
constexpr int kLooks = 400;
constexpr int kCrowdedLooks = 16;

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

Result<ShmCall> ShmCommunicator::checked(const OpCall& call, const OpOptions& options) const {
  GW_ASSIGN(const Extent extent, check_call(call, options, rank(), size()));
  ShmCall checked{.kind = call.kind,
                  .dtype = extent.dtype,
                  .op = call.op,
                  .in = call.in.data(),
                  .out = call.out.data(),
                  .elems = extent.in,
                  .root = call.kind == OpKind::kBroadcast ? call.peer : 0};
  if (call.kind == OpKind::kReduceScatter || call.kind == OpKind::kAllGatherV ||
      call.kind == OpKind::kBroadcast) {
    checked.elems = extent.out;
  } else if (call.kind == OpKind::kAllToAll) {
    checked.elems = extent.in / size();
  }
  if (call.kind == OpKind::kAllGatherV)
    checked.lengths.assign(call.counts.begin(), call.counts.end());
  return checked;
}

// True when it has ended.
bool ShmCommunicator::run_at_once(ShmExecution& execution) const {
  const bool crowded = channel_->crowded();
  const int most = crowded ? kCrowdedLooks : kLooks;
  for (int looks = 0; looks < most;) {
    const Result<bool> moved = execution.step();
    if (!moved.has_value()) return false;  // will fail again, where it can be dealt with
    if (execution.done()) return true;
    if (moved.value()) {
      looks = 0;
      continue;
    }
    ++looks;
    crowded ? static_cast<void>(sched_yield()) : pause_briefly();
  }
  return false;
}

Result<Work> ShmCommunicator::launch(ShmCall call, std::optional<Deadline> deadline) {
  GW_TRY(group_->status());
  const std::uint64_t number = group_->take_number();
  const ShmMoves& moves = shm_moves_of(call.kind);
  const bool brief = moves.in_bytes(call, size()) <= kAtOnceBytes;
  const OpKind kind = call.kind;
  const DType dtype = call.dtype;
  const std::int64_t elems = call.elems;
  ShmExecution execution(channel_, moves, std::move(call), next_++);
  auto work = std::make_shared<WorkState>(group_->engine());
  if (brief && channel_->handed_over.load(std::memory_order_acquire) == 0 &&
      run_at_once(execution)) {
    bytes_->fetch_add(execution.bytes_sent(), std::memory_order_relaxed);
    work->finish({});
    return Work(std::move(work));
  }
  auto running = std::make_unique<ShmExecution>(std::move(execution));
  running->hand_over(group_->route_of(number));
  Operation operation{
      .name = to_string(kind),
      .number = number,
      .dtype = to_string(dtype),
      .elems = elems,
      .started = std::chrono::steady_clock::now(),
      .deadline = deadline.value_or(deadline_in(group_->options().deadline_seconds)),
      .execution = std::move(running),
      .work = work,
      .bytes_sent = bytes_};
  GW_TRY(group_->engine()->submit(std::make_unique<Operation>(std::move(operation))));
  return Work(std::move(work));
}

Result<Work> ShmCommunicator::start(const OpCall& call, const OpOptions& options) {
  if (!in_memory(call, options)) return group_->start(call, options);
  GW_ASSIGN(ShmCall shm, checked(call, options));
  return launch(std::move(shm), options.deadline);
}

Result<Work> ShmCommunicator::start_all(std::span<const OpCall> calls, const OpOptions& options) {
  // Operations in memory run one after another anyway; one alone is the usual case.
  if (calls.size() == 1) return start(calls.front(), options);
  return group_->start_all(calls, options);
}

Result<PersistentWork> ShmCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (!in_memory(call, options) || options.deadline) return group_->prepare(call, options);
  GW_ASSIGN(ShmCall shm, checked(call, options));
  return PersistentWork([this, shm = std::move(shm)] { return launch(shm, std::nullopt); });
}

}  // namespace gradwire
