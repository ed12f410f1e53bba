#include "collectives/progress.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/roll_call.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

// A waiter spins this long before it sleeps. The engine's thread competes with the caller's own
// work, so it spins less.
constexpr double kWaiterSpin = 100e-6;
constexpr double kThreadSpin = 20e-6;
// Spinning gives the processor away only when the job has more ranks than there are processors: on
// a machine that is busy with something else, each time costs a slice of everybody else's, 10 ms
// and more, where sleeping costs some 10 us.
constexpr int kTurnsBeforeClock = 64;
constexpr int kTurnsBetweenLooks = 4096;
// The engine's thread looks this often for work shortly after an operation was started, which saves
// the callers a system call for each; later it has to be woken.
constexpr double kShortNap = 0.5e-3;
constexpr double kAttentive = 20e-3;
// An idle transport is driven this often (heartbeats want once a second).
constexpr double kLongNap = 0.25;
// While memory is waited for, the transport is looked at this often (heartbeats, verdicts).
constexpr std::chrono::milliseconds kBellNap{50};
constexpr std::chrono::milliseconds kMixedNap{1};
// After a time-out: how long ranks may take to answer the roll call, and cancelled messages to
// settle. Together less than the second that an operation may end late.
constexpr double kRollCall = 0.4;
constexpr double kSettle = 0.4;

}  // namespace

ProgressEngine::ProgressEngine(std::unique_ptr<Transport> transport)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      describe_(transport_->describe()),
      crowded_(size_ > static_cast<int>(std::thread::hardware_concurrency())),
      last_submit_(Clock::now()),
      ids_(kIds, false),
      thread_([this] { run(); }) {}

ProgressEngine::~ProgressEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_driver();
    work_to_do_.notify_all();
  }
  thread_.join();
  // Nobody else is left: waiting threads hold a reference to the engine.
  accept();
  if (!active_.empty()) {
    fail(nullptr, Status(Code::kCancelled, "its communicator was destroyed"));
  }
}

Status ProgressEngine::submit(std::unique_ptr<Operation> operation) {
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) {
    operation->work->finish(failure_);
    return failure_;
  }
  incoming_.push_back(std::move(operation));
  ++outstanding_;
  has_incoming_ = true;
  last_submit_ = Clock::now();
  if (driven_) {
    wake_driver();
    return {};
  }
  driven_ = true;
  lock.unlock();
  turn();
  lock.lock();
  driven_ = false;
  if (outstanding_ > 0 && waiters_ > 0) baton_free_.notify_all();
  if (outstanding_ > 0 && napping_) work_to_do_.notify_one();
  return {};
}

bool ProgressEngine::wait(const WorkState& work, std::optional<Deadline> until) {
  if (work.done()) return true;
  const Deadline end = until.value_or(Deadline::max());
  std::unique_lock lock(mutex_);
  ++waiters_;
  while (!work.done() && Clock::now() < end) {
    if (driven_) {
      // The engine's thread gives way to waiters; another waiter tells when it leaves.
      wake_driver();
      baton_free_.wait_until(lock, std::min(end, Clock::now() + std::chrono::seconds(1)));
      continue;
    }
    driven_ = true;
    lock.unlock();
    drive([&] { return work.done(); }, kWaiterSpin, end);
    lock.lock();
    driven_ = false;
  }
  --waiters_;
  if (waiters_ > 0) baton_free_.notify_all();
  if (outstanding_ > 0) work_to_do_.notify_one();
  return work.done();
}

void ProgressEngine::cancel() {
  const std::lock_guard lock(mutex_);
  cancel_asked_ = true;
  wake_driver();
  work_to_do_.notify_one();
}

Status ProgressEngine::status() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

TransportStats ProgressEngine::stats() {
  const std::lock_guard lock(mutex_);
  if (!driven_ && transport_) stats_ = transport_->stats();
  return stats_;
}

std::vector<std::uint64_t> ProgressEngine::free_ids() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> bits((kIds + 63) / 64, 0);
  for (std::size_t id = 0; id < ids_.size(); ++id) {
    if (!ids_[id]) bits[id / 64] |= std::uint64_t{1} << (id % 64);
  }
  return bits;
}

bool ProgressEngine::claim_id(int id) {
  const std::lock_guard lock(mutex_);
  if (ids_[static_cast<std::size_t>(id)]) return false;
  ids_[static_cast<std::size_t>(id)] = true;
  return true;
}

void ProgressEngine::release_id(int id) {
  const std::lock_guard lock(mutex_);
  ids_[static_cast<std::size_t>(id)] = false;
}

// One pass over everything that may have something to do; true if anything did.
bool ProgressEngine::turn() {
  bool moved = has_incoming_ && accept();
  if (cancel_asked_.exchange(false)) {
    fail(nullptr, Status(Code::kCancelled, "cancelled by its caller"));
  }
  if (!transport_) return moved;
  const Result<int> settled = transport_->progress();
  if (!settled.has_value()) {
    fail(nullptr, settled.error());
    return true;
  }
  moved = moved || settled.value() > 0;
  if (moved || polling_ > 0) moved = advance_all(!moved) || moved;
  return moved;
}

bool ProgressEngine::accept() {
  std::vector<std::unique_ptr<Operation>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(incoming_);
    has_incoming_ = false;
  }
  for (auto& operation : arrived) {
    if (failed_) {
      end(*operation, status());
    } else {
      if (operation->execution->polls()) ++polling_;
      active_.push_back(std::move(operation));
    }
  }
  return !arrived.empty();
}

// One turn of every operation, or of those alone that poll; true if any moved.
bool ProgressEngine::advance_all(bool polling_alone) {
  bool any = false;
  for (std::size_t i = 0; i < active_.size();) {
    Operation& operation = *active_[i];
    if (polling_alone && !operation.execution->polls()) {
      ++i;
      continue;
    }
    const Result<bool> moved = operation.execution->advance(*transport_, pool_);
    operation.count_bytes();
    if (!moved.has_value()) {
      fail(&operation, moved.error());
      return true;
    }
    any = any || moved.value();
    if (operation.execution->done()) {
      if (operation.execution->polls()) --polling_;
      operation.execution->release(pool_);
      end(operation, operation.after ? operation.after() : Status());
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return any;
}

void ProgressEngine::end(Operation& operation, Status status) {
  take_stats();
  operation.work->finish(std::move(status));
  --outstanding_;
  if (waiters_ > 0) {
    // Waiters look at done() under the mutex, so none can miss this.
    const std::lock_guard lock(mutex_);
    baton_free_.notify_all();
  }
}

void ProgressEngine::take_stats() {
  if (!transport_) return;
  const TransportStats now = transport_->stats();
  const std::lock_guard lock(mutex_);
  stats_ = now;
}

// Losses and deadlines; too dear for every turn.
void ProgressEngine::look_around(Deadline now) {
  if (active_.empty() || failed_) return;
  if (transport_->lost()) {
    return fail(active_.front().get(), Status(Code::kPeerLost, "a rank is lost"));
  }
  for (auto& operation : active_) {
    if (now >= operation->deadline) {
      return fail(operation.get(), Status(Code::kTimedOut, "deadline passed"));
    }
  }
}

Deadline ProgressEngine::next_deadline(Deadline now) const {
  Deadline next = now + std::chrono::milliseconds(250);
  for (const auto& operation : active_) next = std::min(next, operation->deadline);
  return next;
}

// Requires the baton. Turns until `enough` or, roughly, `until`.
void ProgressEngine::drive(const std::function<bool()>& enough, double spin_seconds,
                           Deadline until) {
  const auto spin = std::chrono::duration<double>(spin_seconds);
  int idle_turns = 0;
  int turns = 0;
  Deadline idle_since;
  while (!enough()) {
    const bool moved = turn();
    if (moved) {
      idle_turns = 0;
    } else if (crowded_) {
      sched_yield();
    }
    const bool look = ++turns % kTurnsBetweenLooks == 0;
    if ((moved || ++idle_turns < kTurnsBeforeClock) && !look) continue;
    const Deadline now = Clock::now();
    look_around(now);
    if (now >= until) return;
    if (idle_turns <= kTurnsBeforeClock) idle_since = now;
    if (now - idle_since >= spin) {
      sleep_in_transport(enough, std::min(until, next_deadline(now)));
      look_around(Clock::now());
    }
  }
}

// asleep_ is set before the last look, and read after whatever is to be seen was written: so either
// the look sees it, or its writer wakes this thread. Where memory alone is waited for, that is at
// the bell; messages and memory together have no such place, then naps are short.
void ProgressEngine::sleep_in_transport(const std::function<bool()>& enough, Deadline until) {
  if (!transport_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  const auto polling = static_cast<std::size_t>(bell_ ? polling_ : 0);
  const bool at_bell = polling > 0 && polling == active_.size();
  if (polling > 0) until = std::min(until, Clock::now() + (at_bell ? kBellNap : kMixedNap));
  const std::uint32_t seen = at_bell ? bell_->lie_down() : 0;
  const auto ready = [](const auto& operation) { return operation->execution->ready(); };
  Status status;
  asleep_ = true;
  if (!has_incoming_ && !cancel_asked_ && !enough()) {
    if (!at_bell) {
      status = transport_->wait(until);
    } else if (std::ranges::none_of(active_, ready)) {
      bell_->sleep(seen, until);
    }
  }
  asleep_ = false;
  if (at_bell) bell_->get_up();
  if (!status.ok()) fail(nullptr, status);
}

void ProgressEngine::wake_driver() {
  if (!asleep_) return;
  if (transport_) transport_->wake();
  if (bell_) bell_->ring();
}

// Ends every operation, for good. The verdict goes out first: others may be waiting for this rank.
void ProgressEngine::fail(Operation* culprit, Status cause) {
  if (failed_ && active_.empty()) return;
  failed_ = true;
  if (culprit == nullptr && !active_.empty()) culprit = active_.front().get();
  const Failure failure = investigate(culprit, std::move(cause));
  const Deadline now = Clock::now();
  std::vector<Status> outcomes;
  Status first = failure.cause;
  for (const auto& operation : active_) {
    outcomes.push_back(outcome_of(*operation, failure, *transport_, now));
    if (operation.get() == culprit) first = outcomes.back();
  }
  if (const auto verdict = verdict_of(culprit, failure, *transport_))
    transport_->announce(*verdict);
  for (auto& operation : active_) operation->execution->cancel(*transport_);
  const bool settled = settle_all() && !unsettled_;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = first;
    // The operands must not be touched once their owners have them back.
    if (!settled) transport_.reset();
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (settled) active_[i]->execution->release(pool_);
    end(*active_[i], outcomes[i]);
  }
  active_.clear();
  polling_ = 0;
}

// Who is to blame. After a time-out without a verdict of the transport's own, the ranks ask around.
Failure ProgressEngine::investigate(const Operation* culprit, Status cause) {
  Failure failure{std::move(cause), transport_->lost(), {}, rank_};
  if (failure.cause.code() != Code::kTimedOut || failure.lost) return failure;
  if (culprit == nullptr || !culprit->collective) return failure;
  const std::string own = description_of(*culprit);
  const RollCall call = take_roll_call(*transport_, culprit->execution->route(), own, kRollCall);
  unsettled_ = !call.settled;
  failure.lost = transport_->lost();
  failure.missing = call.missing;
  if (!call.disagreement.empty()) {
    failure.cause = Status(Code::kRankMismatch, call.disagreement + ", this rank " + own);
  }
  return failure;
}

bool ProgressEngine::settle_all() {
  const Deadline until = deadline_in(kSettle);
  while (true) {
    const Result<int> progressed = transport_->progress();
    bool settled = true;
    for (auto& operation : active_) {
      settled = operation->execution->settled(*transport_) && settled;
    }
    if (settled) return true;
    const Deadline now = Clock::now();
    if (now >= until || !progressed.has_value()) return false;
    if (!transport_->wait(std::min(until, now + std::chrono::milliseconds(5))).ok()) return false;
  }
}

// The engine's own thread.
void ProgressEngine::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!driven_ && waiters_ == 0) {
      driven_ = true;
      lock.unlock();
      turn();  // also what keeps an idle transport alive
      drive([this] { return stopping_ || waiters_ > 0 || outstanding_ == 0; }, kThreadSpin,
            Deadline::max());
      lock.lock();
      driven_ = false;
      if (waiters_ > 0) baton_free_.notify_all();
      if (stopping_) break;
    }
    const Deadline now = Clock::now();
    const bool attentive = now - last_submit_ < std::chrono::duration<double>(kAttentive);
    napping_ = !attentive;
    work_to_do_.wait_until(lock, deadline_in(attentive ? kShortNap : kLongNap));
    napping_ = false;
  }
}

}  // namespace gradwire
