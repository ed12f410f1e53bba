#include "collectives/engine/progress.h"

#include <sched.h>
#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/engine/outcomes.h"
#include "collectives/failure/notes.h"
#include "collectives/failure/roll_call.h"
#include "collectives/failure/shrink.h"
#include "device/rank_device.h"

namespace gradwire {

namespace {

using Clock = std::chrono::steady_clock;

// A waiter spins this long before it sleeps. The engine's thread competes with the caller's own
// work, so it spins less.
constexpr double kWaiterSpin = 100e-6;
constexpr double kThreadSpin = 20e-6;
// Spinning gives the processor away only where a machine has more ranks than processors: on
// a machine that is busy with something else, each time costs a slice of everybody else's, 10 ms
// and more, where sleeping costs some 10 us.
constexpr int kTurnsBeforeClock = 64;
constexpr int kTurnsBetweenLooks = 4096;
// A turn of large operations in shared memory takes up to a millisecond.
constexpr int kTurnsBetweenNotes = 64;
// Sends and receives that are begun in a row leave, but what has come is looked at after so many.
constexpr int kBegunBetweenTurns = 16;
// The engine's thread looks this often for work shortly after an operation was started, which saves
// the callers a system call for each; later it has to be woken.
constexpr double kShortNap = 0.5e-3;
constexpr double kAttentive = 20e-3;
// An idle transport is driven this often: a roll call waits for an answer 0.4 s.
constexpr double kLongNap = 0.1;
// While memory is waited for, the transport is looked at this often (heartbeats, verdicts).
constexpr std::chrono::milliseconds kBellNap{50};
constexpr std::chrono::milliseconds kMixedNap{1};

}  // namespace

ProgressEngine::ProgressEngine(std::unique_ptr<Transport> transport, EngineOptions options)
    : transport_(std::move(transport)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      describe_(transport_->describe()),
      takes_cuda_memory_(transport_->caps().cuda_memory),
      options_(std::move(options)),
      crowded_(transport_->is_crowded()),
      yields_(options_.waiting == Waiting::kYield ||
              (options_.waiting == Waiting::kAdaptive && crowded_)),
      never_sleeps_(options_.waiting == Waiting::kSpin || options_.waiting == Waiting::kYield),
      recorder_(options_.flight_operations),
      last_submit_(Clock::now()),
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
  if (in_child()) {
    operation->work->finish(status());
    return status();
  }
  std::unique_lock lock(mutex_);
  if (!failure_.ok()) {
    // Its caller may have begun it, so that others read its operands now.
    operation->execution->refuse();
    operation->work->finish(failure_);
    return failure_;
  }
  const Route& route = operation->execution->route();
  if (!operation->flight) {
    operation->flight = recorder_.begin({.communicator = route.communicator,
                                         .number = operation->number,
                                         .collective = operation->collective,
                                         .signature = operation->signature,
                                         .algorithm = operation->algorithm});
  }
  ids_.begin_operation(route.communicator);
  const bool message = !operation->collective && operation->signature.elems >= 0;  // or a probe
  last_submit_ = operation->started;
  incoming_.push_back(std::move(operation));
  ++outstanding_;
  has_incoming_ = true;
  if (driven_) {
    wake_driver();
    return {};
  }
  driven_ = true;
  lock.unlock();
  {
    const ThreadOnDevice there(options_.lanes->first());
    if (!message || ++begun_ >= kBegunBetweenTurns) {
      turn();
    } else {
      begin_accepted();
    }
  }
  lock.lock();
  driven_ = false;
  if (outstanding_ > 0 && waiters_ > 0) baton_free_.notify_all();
  if (outstanding_ > 0 && napping_) work_to_do_.notify_one();
  return {};
}

bool ProgressEngine::wait(const WorkState& work, std::optional<Deadline> until) {
  if (work.done() || in_child()) return work.done();
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
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  cancel_asked_ = true;
  wake_driver();
  work_to_do_.notify_one();
}

// Runs `action` while nobody else drives.
void ProgressEngine::with_baton(const std::function<void()>& action) {
  if (in_child()) return;
  std::unique_lock lock(mutex_);
  ++waiters_;
  while (driven_) {
    wake_driver();
    baton_free_.wait_for(lock, std::chrono::milliseconds(10));
  }
  driven_ = true;
  lock.unlock();
  action();
  lock.lock();
  driven_ = false;
  if (--waiters_ > 0) baton_free_.notify_all();
  work_to_do_.notify_one();
}

Status ProgressEngine::status() const {
  if (in_child()) return not_in_children();
  const std::lock_guard lock(mutex_);
  return failure_;
}

TransportStats ProgressEngine::stats() {
  if (in_child()) return stats_;
  const std::lock_guard lock(mutex_);
  if (!driven_ && transport_) stats_ = transport_->stats();
  stats_.bytes_staged = options_.lanes->bytes();
  return stats_;
}

// One pass over everything that may have something to do; true if anything did.
bool ProgressEngine::turn() {
  ++turns_since_look_;
  begun_ = 0;
  // What begins leaves before anything that has come is looked at.
  bool moved = begin_accepted();
  if (cancel_asked_.exchange(false)) {
    fail(nullptr, Status(Code::kCancelled, "cancelled by its caller"));
  }
  if (!transport_) return moved;
  const Result<int> settled = transport_->progress();
  if (!settled.has_value()) {
    fail(nullptr, settled.error());
    return true;
  }
  unseen_ += settled.value();
  moved = moved || settled.value() > 0;
  if (unseen_ > 0) {
    moved = advance(several_ > 0 ? Which::kAll : Which::kSettled) || moved;
  } else if (polling() > 0) {
    moved = advance(Which::kPolling) || moved;
  } else if (!moved && unseen_ < 0) {
    moved = advance(Which::kAll);
  }
  // Others ask what this rank is doing, and wait 0.4 s: also while it has much to do.
  if (!moved || ++turns_since_notes_ >= kTurnsBetweenNotes) read_notes();
  return moved;
}

bool ProgressEngine::begin_accepted() {
  const std::size_t first = active_.size();
  if (!has_incoming_ || !accept()) return false;
  advance(Which::kAll, first);
  return true;
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
      operation->execution->refuse();
      end(*operation, status());
    } else {
      if (operation->peer >= 0) {
        operation->open_before = open_with_[static_cast<std::size_t>(operation->peer)]++;
      }
      active_.push_back(std::move(operation));
    }
  }
  return !arrived.empty();
}

// Active operations that wait for memory now; one may wait for messages first and then for memory.
std::size_t ProgressEngine::polling() const {
  if (several_ == 0) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      active_, [](const auto& operation) { return operation->execution->polls(); }));
}

// One turn of every operation from `first` on, of those alone that poll, or of the oldest, as long
// as a ticket has settled that none has seen (where all are single()); true if any moved.
bool ProgressEngine::advance(Which which, std::size_t first) {
  bool any = false;
  for (std::size_t i = first; i < active_.size();) {
    if (which == Which::kSettled && unseen_ <= 0) return any;
    Operation& operation = *active_[i];
    if (which == Which::kPolling && !operation.execution->polls()) {
      ++i;
      continue;
    }
    const Result<bool> moved = operation.execution->advance(*transport_, pool_);
    operation.count_bytes();
    if (!moved.has_value()) {
      // A peer that gives up says so, and then withdraws what it was about to send.
      const bool of_a_loss = moved.error().code() == Code::kCancelled && transport_->lost();
      fail(&operation, of_a_loss ? Status(Code::kPeerLost, "a rank is lost") : moved.error());
      return true;
    }
    any = any || moved.value();
    if (!operation.single) {
      operation.single = operation.execution->single();
      several_ += *operation.single ? 0 : 1;
    }
    if (operation.execution->done()) {
      *operation.single ? --unseen_ : --several_;
      if (operation.peer >= 0) --open_with_[static_cast<std::size_t>(operation.peer)];
      operation.execution->release(pool_);
      end(operation, operation.after ? operation.after() : Status());
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  if (which != Which::kPolling && first == 0) unseen_ = 0;
  return any;
}

void ProgressEngine::end(Operation& operation, Status status) {
  const bool measured = transport_ && (!operation.single.value_or(false) || outstanding_ == 1);
  const TransportStats stats = measured ? transport_->stats() : TransportStats();
  {
    const std::lock_guard lock(mutex_);
    if (measured) stats_ = stats;
    ids_.end_operation(operation.execution->route().communicator);
  }
  recorder_.end(*operation.flight,
                status.ok() ? FlightRecord::State::kDone : FlightRecord::State::kFailed,
                operation.execution->bytes_sent(), std::move(operation.waited_for));
  operation.work->finish(std::move(status));
  --outstanding_;
  if (waiters_ > 0) {
    // Waiters look at done() under the mutex, so none can miss this.
    const std::lock_guard lock(mutex_);
    baton_free_.notify_all();
  }
}

// Losses, deadlines and what is done from time to time; too dear for every turn.
void ProgressEngine::look_around(Deadline now) {
  if (active_.empty() || failed_) return;
  turns_since_look_ = 0;
  if (transport_->lost()) {
    return fail(active_.front().get(), Status(Code::kPeerLost, "a rank is lost"));
  }
  for (auto& operation : active_) {
    if (now >= operation->deadline && !has_more_time(*operation, now)) {
      return fail(operation.get(), Status(Code::kTimedOut, "deadline passed"));
    }
  }
  bool moves = false;
  for (auto& operation : active_) moves = operation->execution->tend(*transport_, now) || moves;
  if (moves) advance(Which::kAll);
}

// A message that was posted behind others to or from the same peer can only follow them: whenever
// one of these has ended, the time that it may take counts anew.
bool ProgressEngine::has_more_time(Operation& operation, Deadline now) const {
  if (operation.peer < 0) return false;
  int before = 0;
  for (auto other = active_.begin(); other->get() != &operation; ++other) {
    before += (*other)->peer == operation.peer ? 1 : 0;
  }
  if (before >= std::exchange(operation.open_before, before)) return false;
  const auto time = operation.deadline - operation.started;
  operation.started = now;
  operation.deadline = now + time;
  return true;
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
  const int turns_before_clock = options_.waiting == Waiting::kSleep ? 1 : kTurnsBeforeClock;
  int idle_turns = 0;
  Deadline idle_since;
  // UCX, given a device's memory, calls CUDA in whatever thread drives it.
  Device device;
  std::optional<ThreadOnDevice> there;
  while (!enough()) {
    if (device != options_.lanes->first()) there.emplace(device = options_.lanes->first());
    const bool moved = turn();
    if (moved) {
      idle_turns = 0;
    } else if (yields_) {
      sched_yield();
    }
    // Counted over all operations: those that end in a few turns each are looked after too.
    const bool look = turns_since_look_ >= kTurnsBetweenLooks && !active_.empty();
    if ((moved || ++idle_turns < turns_before_clock) && !look) continue;
    const Deadline now = Clock::now();
    look_around(now);
    if (now >= until) return;
    if (idle_turns <= turns_before_clock) idle_since = now;
    if (never_sleeps_ && !active_.empty()) continue;
    if (now - idle_since >= spin || options_.waiting == Waiting::kSleep) {
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
  const std::size_t in_memory = polling();
  const auto listens = [](const auto& operation) { return operation->execution->listens(); };
  const bool at_bell = bell_ && in_memory > 0 && std::ranges::none_of(active_, listens);
  if (in_memory > 0) until = std::min(until, Clock::now() + (at_bell ? kBellNap : kMixedNap));
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

// The engine's own thread.
void ProgressEngine::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!driven_ && waiters_ == 0) {
      driven_ = true;
      lock.unlock();
      const ThreadOnDevice there(options_.lanes->first());
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

// How an engine's operations end when something fails, and how it hands its transport on.

namespace {

using Clock = std::chrono::steady_clock;

// After a failure, for cancelled messages to settle. With the roll call before it less than the
// second that an operation may end late.
constexpr double kSettle = 0.3;

}  // namespace

void ProgressEngine::abort(const std::string& reason) {
  with_baton([&] {
    (void)accept();
    if (!failed_) fail(nullptr, Status(Code::kCancelled, reason));
  });
}

Result<ProgressEngine::Successor> ProgressEngine::shrink(const std::vector<int>& group,
                                                         std::uint32_t communicator,
                                                         Deadline deadline) {
  ShrinkCall call{group,    options_.left_behind,         communicator,       status(), deadline,
                  attempt_, options_.allow_lone_survivor, options_.take_token};
  if (call.failure.ok()) {
    return Status(Code::kInvalidArgument,
                  "shrink: nothing has failed (expected a failure, or abort(), first)");
  }
  std::ranges::sort(call.group);
  Result<Survivors> agreed = Status(Code::kUnsupported, "shrink: the transport is gone");
  std::unique_ptr<Transport> transport;
  with_baton([&] {
    if (!transport_) return;
    agreed = agree_and_rebuild(*transport_, call, recorder_);
    const std::lock_guard lock(mutex_);
    if (agreed.has_value()) transport = std::move(transport_);
  });
  if (!agreed.has_value()) return agreed.error();
  const Survivors& survivors = agreed.value();
  EngineOptions options = options_;
  options.generation = survivors.generation;
  options.left_behind = survivors.lost;
  Successor successor{ProgressEngine::make(std::move(transport), std::move(options)), group};
  std::erase_if(successor.group,
                [&](int rank) { return !std::ranges::binary_search(survivors.ranks, rank); });
  return successor;
}

// What other ranks' engines want to know, whatever this rank does.
void ProgressEngine::read_notes() {
  turns_since_notes_ = 0;
  for (const Note& note : transport_->take_notes()) {
    const auto heard = decode_note(note.bytes, size_);
    if (!heard) continue;
    if (heard->kind == EngineNote::Kind::kAsk) {
      answer(*transport_, note.from, *heard, recorder_, status());
    }
    // Somebody goes on without the lost, and cannot without this rank.
    if (heard->kind == EngineNote::Kind::kPropose && !failed_ && !is_old(*heard)) {
      fail(nullptr, learn_losses(note.from, *heard));
    }
  }
}

// The proposal may be here before the verdict that led to it, which its sender has told by another
// way or has from elsewhere. It names the same ranks, and those that were left behind before.
Status ProgressEngine::learn_losses(int from, const EngineNote& proposal) {
  const std::string who = "rank " + std::to_string(from);
  std::vector<int> lost;
  std::ranges::set_difference(proposal.lost, options_.left_behind, std::back_inserter(lost));
  if (lost.empty() || std::ranges::binary_search(lost, rank_)) {
    return {Code::kPeerLost, who + " has failed and shrinks"};
  }
  for (const int rank : lost) {
    transport_->announce(
        {.rank = rank,
         .reason = "reported by " + who + ": continues without it",
         .certain = std::ranges::find(proposal.certain, rank) != proposal.certain.end(),
         .cause = LossCause::kLeftBehind,
         .reporter = from});
  }
  return {Code::kPeerLost,
          ranks_text(lost) + " lost in an operation of " + who + ", which continues without"};
}

// A proposal told again that led to this engine.
bool ProgressEngine::is_old(const EngineNote& proposal) const {
  return proposal.generation < options_.generation &&
         std::ranges::includes(options_.left_behind, proposal.lost);
}

// Ends every operation, for good. The verdict goes out first: others may be waiting for this rank.
void ProgressEngine::fail(Operation* culprit, Status cause) {
  if (failed_ && active_.empty()) return;
  failed_ = true;
  if (culprit == nullptr && !active_.empty()) culprit = active_.front().get();
  const Failure failure = investigate(*transport_, culprit, std::move(cause), recorder_,
                                      {.by_token = static_cast<bool>(options_.take_token),
                                       .allow_lone = options_.allow_lone_survivor});
  const Deadline now = Clock::now();
  std::vector<Status> outcomes;
  Status first = outcome_between_operations(failure);
  for (const auto& operation : active_) {
    operation->waited_for = operation->execution->waiting_for(*transport_);
    outcomes.push_back(outcome_of(*operation, failure, *transport_, now));
    if (operation.get() == culprit) first = outcomes.back();
  }
  for (const LostPeer& verdict : verdicts_of(culprit, failure, *transport_)) {
    transport_->announce(verdict);
  }
  for (auto& operation : active_) operation->execution->cancel(*transport_);
  // The operands must not be touched once their owners have them back.
  bool settled = settle_all();
  if (!settled && transport_->sever()) settled = settle_all();
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = first;
    has_failed_ = true;
    if (!settled) transport_.reset();
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    if (settled) active_[i]->execution->release(pool_);
    end(*active_[i], outcomes[i]);
  }
  active_.clear();
  several_ = 0;
  unseen_ = 0;
  write_flight_record(failure, first);
}

void ProgressEngine::write_flight_record(const Failure& failure, const Status& status) const {
  if (options_.flight_folder.empty()) return;
  FlightFailure head{.rank = rank_,
                     .size = size_,
                     .generation = options_.generation,
                     .status = status,
                     .silent = failure.call.silent,
                     .absent = failure.call.absent};
  for (const LostPeer& lost : failure.lost) head.lost.push_back(lost.rank);
  // No operation is left to tell.
  const Status written = write_flight(options_.flight_folder, head, recorder_.records());
  if (!written.ok() && options_.warn) options_.warn(written.message());
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

}  // namespace gradwire
