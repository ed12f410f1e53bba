#include "collectives/shm/memory_run.h"

#include <sched.h>

#include <chrono>

#include "collectives/shm/moves.h"

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

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

Signature signature_of(const ShmCall& call) {
  return signature_of(call.kind, call.dtype, call.op, call.elems, call.root);
}

}  // namespace

// Until the execution can move, for a while; true when it can.
bool MemoryRun::wait_at_once(const ShmExecution& execution) const {
  const Waiting waiting = group().options().waiting;
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
bool MemoryRun::run_at_once(ShmExecution& execution) const {
  while (true) {
    const Result<bool> moved = execution.step();
    if (!moved.has_value()) return false;  // will fail again, where it can be dealt with
    if (execution.done()) return true;
    if (!moved.value() && !wait_at_once(execution)) return false;
  }
}

// Without an allocation or another thread. What others need not wait for is done while this rank
// waits for them.
Result<Work> MemoryRun::start_alone(std::optional<Deadline> deadline) {
  if (group().engine()->has_failed()) return group().engine()->status();
  GW_TRY(before());
  const std::uint64_t number = group().take_number();
  const ShmMoves& moves = shm_moves_of(call_.kind);
  const bool brief = moves.in_bytes(call_, group().size()) <= kAtOnceBytes &&
                     channel_->handed_over.load(std::memory_order_acquire) == 0;
  ShmExecution execution(*channel_, moves, call_, next_++);
  const bool sound = !brief || execution.step().has_value();
  const std::uint64_t flight = begin_flight(number);
  if (brief && sound && run_at_once(execution)) {
    group().other_bytes()->fetch_add(execution.bytes_sent(), std::memory_order_relaxed);
    group().engine()->recorder().end_at_once(flight, execution.bytes_sent());
    if (operated_.after) GW_TRY(operated_.after());
    return Work(nullptr);
  }
  auto work = std::make_shared<WorkState>(group().engine());
  GW_TRY(hand_over(std::move(execution), {number, flight}, deadline, work));
  return Work(std::move(work));
}

Status MemoryRun::start(const std::shared_ptr<WorkState>& work, std::optional<Deadline> deadline) {
  const std::uint64_t number = group().take_number();
  ShmExecution execution(*channel_, shm_moves_of(call_.kind), call_, next_++);
  return hand_over(std::move(execution), {number, begin_flight(number)}, deadline, work);
}

std::uint64_t MemoryRun::begin_flight(std::uint64_t number) const {
  return group().engine()->recorder().begin(
      {.communicator = static_cast<std::uint32_t>(group().id()),
       .number = number,
       .signature = signature_of(call_),
       .algorithm = kShmAlgorithm});
}

Status MemoryRun::hand_over(ShmExecution execution, Numbers numbers,
                            std::optional<Deadline> deadline, std::shared_ptr<WorkState> work) {
  auto running = std::make_unique<ShmExecution>(std::move(execution));
  running->hand_over(channel_, group().route_of(numbers.operation));
  return group().submit(std::make_unique<Operation>(Operation{.signature = signature_of(call_),
                                                              .number = numbers.operation,
                                                              .algorithm = kShmAlgorithm,
                                                              .execution = std::move(running),
                                                              .work = std::move(work),
                                                              .bytes_sent = group().other_bytes(),
                                                              .after = operated_.after,
                                                              .own = operated_.lent,
                                                              .flight = numbers.flight}),
                        deadline);
}

}  // namespace gradwire
