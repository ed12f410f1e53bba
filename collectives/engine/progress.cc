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
constexpr int kBegunBetweenTurns = 64;
// Once so many brief operations have followed one another so soon, and nobody has waited, more of
// them begin together: in the next turn. A thread that waits takes that, or the engine's thread
// after a short nap.
constexpr std::chrono::microseconds kTogether{20};
constexpr int kLeastInARow = 4;
// A small operation beside others ends sooner, mostly. Until then the engine's thread goes on: if
// it hands them over, they stand still until a processor is free for the waiter.
constexpr std::chrono::milliseconds kHolderGoesOn{1};
// The engine's thread looks this often for work shortly after an operation was started, which saves
// the callers a system call for each; later it has to be woken.
constexpr double kShortNap = 0.25e-3;
// While a waiter drives, which wakes this thread when it leaves. On two processors, looks every
// quarter of a millisecond that find nothing cost large operations a tenth of their speed.
constexpr double kNapBesideWaiter = 4e-3;
// For longer, they cost a rank with one processor of its own a tenth of its training, whose steps
// have submits some milliseconds apart.
constexpr double kAttentive = 2e-3;
// An idle transport is driven this often: a query of the ranks waits 0.4 s for answers.
constexpr double kLongNap = 0.1;
// What may end without the engine has so long to do so, or twice as long.
constexpr std::chrono::microseconds kBetweenVisits{1000};
constexpr double kNapBetweenVisits = 1e-3;
// After a failure, for cancelled messages to settle. With the roll call before it less than the
// second that an operation may end late.
constexpr double kSettle = 0.3;

std::size_t index(Queue queue) { return static_cast<std::size_t>(queue) - 1; }

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
  std::vector<Operation*> begun;
  (void)accept(begun);
  if (has_active()) fail(nullptr, Status(Code::kCancelled, "its communicator was destroyed"));
}

Status ProgressEngine::submit(std::unique_ptr<Operation> operation) {
  if (in_child()) {
    operation->work->finish(not_in_children());
    return not_in_children();
  }
  operation->started = Clock::now();
  std::unique_lock lock(mutex_);
  const Route& route = operation->execution->route();
  if (const Status failure = failure_of(route.communicator); !failure.ok()) {
    lock.unlock();  // who is told of the end may ask this engine something
    // Its caller may have begun it, so that others read its operands now.
    operation->execution->refuse();
    operation->work->finish(failure);
    return failure;
  }
  if (!operation->flight) {
    operation->flight = recorder_.begin({.communicator = route.communicator,
                                         .number = operation->number,
                                         .collective = operation->collective,
                                         .signature = operation->signature,
                                         .algorithm = operation->algorithm});
  }
  ids_.begin_operation(route.communicator);
  const bool message = !operation->collective && operation->signature.elems >= 0;  // or a probe
  const bool follows = operation->brief && operation->started - last_submit_ < kTogether;
  in_a_row_ = follows ? in_a_row_ + 1 : 0;
  last_submit_ = operation->started;
  urgent_ += operation->queue == Queue::kLatency ? 1 : 0;
  incoming_.push_back(std::move(operation));
  ++outstanding_;
  has_incoming_ = true;
  if (driven_) {
    wake_driver();
    return {};
  }
  if (in_a_row_ >= kLeastInARow && ++begun_ < kBegunBetweenTurns) {
    if (napping_) work_to_do_.notify_one();
    return {};
  }
  begin_now(lock, !message || ++begun_ >= kBegunBetweenTurns);
  return {};
}

void ProgressEngine::begin_waiting() {
  if (in_child()) return;
  std::unique_lock lock(mutex_);
  begin_now(lock, false);
}

// Requires the lock. What has been submitted begins, unless somebody drives: with a whole turn, if
// so wanted.
void ProgressEngine::begin_now(std::unique_lock<std::mutex>& lock, bool whole_turn) {
  if (driven_ || !has_incoming_) return;
  driven_ = true;
  lock.unlock();
  {
    const ThreadOnDevice there(options_.lanes->first());
    if (whole_turn) {
      turn();
    } else {
      begin_accepted();
    }
  }
  lock.lock();
  driven_ = false;
  if (outstanding_ > 0 && is_awaited()) driver_left_.notify_all();
  if (outstanding_ > 0 && napping_) work_to_do_.notify_one();
}

bool ProgressEngine::wait(const WorkState& work, const std::optional<Deadline>& until) {
  if (work.done() || in_child()) return work.done();
  const Deadline end = until.value_or(Deadline::max());
  std::unique_lock lock(mutex_);
  in_a_row_ = 0;
  if (driven_ && urgent_ > 0 && urgent_ < outstanding_) {
    ++onlookers_;
    driver_left_.wait_until(lock, std::min(end, Clock::now() + kHolderGoesOn),
                            [&] { return work.done() || !driven_; });
    --onlookers_;
  }
  ++waiters_;
  while (!work.done() && Clock::now() < end) {
    if (driven_) {
      // The engine's thread gives way to waiters; another waiter tells when it leaves.
      wake_driver();
      driver_left_.wait_until(lock, std::min(end, Clock::now() + std::chrono::seconds(1)));
      continue;
    }
    driven_ = true;
    lock.unlock();
    drive([&] { return work.done(); }, kWaiterSpin, end);
    lock.lock();
    driven_ = false;
  }
  --waiters_;
  if (is_awaited()) driver_left_.notify_all();
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
void ProgressEngine::while_driving(const std::function<void()>& action) {
  if (in_child()) return;
  std::unique_lock lock(mutex_);
  ++waiters_;
  while (driven_) {
    wake_driver();
    driver_left_.wait_for(lock, std::chrono::milliseconds(10));
  }
  driven_ = true;
  lock.unlock();
  action();
  lock.lock();
  driven_ = false;
  --waiters_;
  if (is_awaited()) driver_left_.notify_all();
  work_to_do_.notify_one();
}

void ProgressEngine::keep_fate(std::uint32_t communicator, const std::shared_ptr<GroupFate>& fate) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  fates_[communicator] = fate;
  if (failed_ || (!failure_.ok() && !fate->fails_alone)) {
    fate->failure = failure_;
    fate->failed = true;
  }
}

Status ProgressEngine::status(const GroupFate& fate) const {
  if (in_child()) return not_in_children();
  const std::lock_guard lock(mutex_);
  return fate.failure;
}

void ProgressEngine::attend(std::weak_ptr<QuickWork> quick) {
  if (in_child()) return;
  const std::lock_guard lock(mutex_);
  quick_.push_back(std::move(quick));
  has_quick_ = true;
  last_submit_ = Clock::now();
  if (driven_) wake_driver();
  if (napping_) work_to_do_.notify_one();
}

// Requires the progress lock, and not the mutex: what is handed over is submitted here.
void ProgressEngine::visit_quick(Deadline now) {
  if (now < next_visit_) return;
  next_visit_ = now + kBetweenVisits;
  std::vector<std::weak_ptr<QuickWork>> attended;
  {
    const std::lock_guard lock(mutex_);
    attended.swap(quick_);
    has_quick_ = false;
  }
  std::erase_if(attended, [this](const auto& one) {
    const auto quick = one.lock();
    return quick == nullptr || !quick->hand_over(*this);
  });
  const std::lock_guard lock(mutex_);
  std::ranges::move(attended, std::back_inserter(quick_));
  has_quick_ = !quick_.empty();
}

// Requires the lock. Of a communicator that is gone: whether any has failed.
Status ProgressEngine::failure_of(std::uint32_t communicator) const {
  const auto found = fates_.find(communicator);
  return found == fates_.end() ? failure_ : found->second->failure;
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
    moved = advance_all(several_ > 0 ? Which::kAll : Which::kSettled) || moved;
  } else if (several_ > 0 && awaited().besides_messages()) {
    moved = advance_all(Which::kBesides) || moved;
  } else if (!moved && unseen_ < 0) {
    moved = advance_all(Which::kAll);
  }
  // Others ask what this rank is doing, and wait 0.4 s: also while it has much to do.
  if (!moved || ++turns_since_notes_ >= kTurnsBetweenNotes) read_notes();
  return moved;
}

bool ProgressEngine::begin_accepted() {
  std::vector<Operation*> begun;
  if (!has_incoming_ || !accept(begun)) return false;
  const bool several = begun.size() > 1 && transport_;
  if (several) transport_->gather(true);
  for (Operation* operation : begun) {
    if (advance(*operation) == Advanced::kFailed) break;
  }
  if (several && transport_) transport_->gather(false);
  return true;
}

// True if there were any; those that begin are in `begun`.
bool ProgressEngine::accept(std::vector<Operation*>& begun) {
  std::vector<std::unique_ptr<Operation>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(incoming_);
    has_incoming_ = false;
  }
  for (auto& operation : arrived) {
    Status failure;
    {
      const std::lock_guard lock(mutex_);
      failure = failure_of(operation->execution->route().communicator);
    }
    if (!failure.ok()) {
      operation->execution->refuse();
      end(*operation, std::move(failure));
    } else {
      if (operation->peer >= 0) {
        operation->open_before = open_with_[static_cast<std::size_t>(operation->peer)]++;
      }
      begun.push_back(operation.get());
      active_[index(operation->queue)].push_back(std::move(operation));
    }
  }
  return !arrived.empty();
}

// Calls action(operation) for all that are under way, the most urgent first.
template <typename Action>
void ProgressEngine::each_active(const Action& action) const {
  for (const auto& queue : active_) {
    for (const auto& operation : queue) action(*operation);
  }
}

bool ProgressEngine::has_active() const {
  return std::ranges::any_of(active_, [](const auto& queue) { return !queue.empty(); });
}

Awaited ProgressEngine::awaited() const {
  Awaited all;
  each_active([&](const Operation& operation) { all |= operation.execution->awaited(); });
  return all;
}

// kEnded: it is in no queue any more, of those the next is in its place. kFailed: nothing is.
ProgressEngine::Advanced ProgressEngine::advance(Operation& operation) {
  const Result<bool> moved = operation.execution->advance(*transport_, pool_);
  operation.count_bytes();
  if (!moved.has_value()) {
    // A peer that gives up says so, and then withdraws what it was about to send.
    const bool of_a_loss = moved.error().code() == Code::kCancelled && transport_->lost();
    fail(&operation, of_a_loss ? Status(Code::kPeerLost, "a rank is lost") : moved.error());
    return Advanced::kFailed;
  }
  if (!operation.single) {
    operation.single = operation.execution->single();
    several_ += *operation.single ? 0 : 1;
  }
  if (!operation.execution->done()) return moved.value() ? Advanced::kMoved : Advanced::kNot;
  *operation.single ? --unseen_ : --several_;
  if (operation.peer >= 0) --open_with_[static_cast<std::size_t>(operation.peer)];
  operation.execution->release(pool_);
  end(operation, operation.after ? operation.after() : Status());
  auto& queue = active_[index(operation.queue)];
  queue.erase(std::ranges::find(queue, &operation, &std::unique_ptr<Operation>::get));
  return Advanced::kEnded;
}

// One turn of every operation, of those alone that wait for something besides messages, or of the
// oldest, as long as a ticket has settled that none has seen (where all are single()); true if any
// moved.
bool ProgressEngine::advance_all(Which which) {
  bool any = false;
  settled_meanwhile_ = 0;
  for (auto& queue : active_) {
    for (std::size_t i = 0; i < queue.size();) {
      if (&queue != &active_.front() && !serve_latency()) return true;
      if (which == Which::kSettled && unseen_ <= 0) return any;
      if (i >= queue.size()) break;
      if (which == Which::kBesides && !queue[i]->execution->awaited().besides_messages()) {
        ++i;
        continue;
      }
      const Advanced advanced = advance(*queue[i]);
      if (advanced == Advanced::kFailed) return true;
      any = any || advanced != Advanced::kNot;
      if (advanced != Advanced::kEnded) ++i;
    }
  }
  // All that had settled before were seen; of these that settled meanwhile, some may not have been.
  if (which != Which::kBesides) unseen_ = settled_meanwhile_;
  return any;
}

// Between the turns of larger operations: small ones begin, hear of their messages and go on. False
// when operations have failed.
bool ProgressEngine::serve_latency() {
  const int failures = failures_;
  begin_accepted();
  if (failures_ != failures) return false;
  auto& urgent = active_[index(Queue::kLatency)];
  if (urgent.empty()) return true;
  const Result<int> settled = transport_->progress();
  if (!settled.has_value()) {
    fail(nullptr, settled.error());
    return false;
  }
  unseen_ += settled.value();
  settled_meanwhile_ += settled.value();
  for (std::size_t i = 0; i < urgent.size();) {
    const Advanced advanced = advance(*urgent[i]);
    if (advanced == Advanced::kFailed) return false;
    if (advanced != Advanced::kEnded) ++i;
  }
  return true;
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
  urgent_ -= operation.queue == Queue::kLatency ? 1 : 0;
  if (is_awaited()) {
    // Waiters look at done() under the mutex, so none can miss this.
    const std::lock_guard lock(mutex_);
    driver_left_.notify_all();
  }
}

// Losses, deadlines and what is done from time to time; too dear for every turn.
void ProgressEngine::look_around(Deadline now) {
  if (!has_active() || failed_) return;
  turns_since_look_ = 0;
  if (transport_->lost()) return fail(nullptr, Status(Code::kPeerLost, "a rank is lost"));
  Operation* late = nullptr;
  bool moves = false;
  each_active([&](Operation& operation) {
    const bool over = now >= operation.deadline && !has_more_time(operation, now);
    if (late == nullptr && over) late = &operation;
  });
  if (late != nullptr) return fail(late, Status(Code::kTimedOut, "deadline passed"));
  each_active(
      [&](Operation& operation) { moves = operation.execution->tend(*transport_, now) || moves; });
  if (moves) advance_all(Which::kAll);
}

// A message that was posted behind others to or from the same peer can only follow them: whenever
// one of these has ended, the time that it may take counts anew.
bool ProgressEngine::has_more_time(Operation& operation, Deadline now) const {
  if (operation.peer < 0) return false;
  int before = 0;
  const auto& queue = active_[index(operation.queue)];
  for (auto other = queue.begin(); other->get() != &operation; ++other) {
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
  each_active([&](const Operation& operation) { next = std::min(next, operation.deadline); });
  return next;
}

// Requires the progress lock. Turns until `enough` or, roughly, `until`.
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
    const bool look = turns_since_look_ >= kTurnsBetweenLooks && has_active();
    if ((moved || ++idle_turns < turns_before_clock) && !look) continue;
    const Deadline now = Clock::now();
    look_around(now);
    if (has_quick_) visit_quick(now);
    if (now >= until) return;
    if (idle_turns <= turns_before_clock) idle_since = now;
    if (never_sleeps_ && has_active()) continue;
    if (now - idle_since >= spin || options_.waiting == Waiting::kSleep) {
      sleep(enough, std::min(until, next_deadline(now)));
      look_around(Clock::now());
    }
  }
}

void ProgressEngine::sleep(const std::function<bool()>& enough, Deadline until) {
  if (!transport_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return;
  }
  const bool quick = has_quick_;
  if (quick) until = std::min(until, Clock::now() + 2 * kBetweenVisits);
  const Status status = waiter_.sleep(*transport_, awaited(), until, [&] {
    // Tickets that settled while small operations had their turns are heard of no more.
    bool ready = unseen_ != 0 || has_incoming_ || cancel_asked_ || enough();
    ready = ready || (!quick && has_quick_);
    each_active([&](const Operation& operation) { ready = ready || operation.execution->ready(); });
    return ready;
  });
  if (!status.ok()) fail(nullptr, status);
}

void ProgressEngine::wake_driver() {
  if (transport_) waiter_.wake(*transport_);
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
      if (has_quick_) visit_quick(Clock::now());
      drive([this] { return stopping_ || waiters_ > 0 || outstanding_ == 0; }, kThreadSpin,
            Deadline::max());
      lock.lock();
      driven_ = false;
      if (is_awaited()) driver_left_.notify_all();
      if (stopping_) break;
      // Who wanted to drive has what it waited for, and told this thread before it could hear that.
      if (waiters_ == 0 && outstanding_ > 0) continue;
    }
    const Deadline now = Clock::now();
    const bool submits = now - last_submit_ < std::chrono::duration<double>(kAttentive);
    napping_ = !submits && !has_quick_;
    const double nap = napping_       ? kLongNap
                       : waiters_ > 0 ? kNapBesideWaiter
                       : submits      ? kShortNap
                                      : kNapBetweenVisits;
    work_to_do_.wait_until(lock, deadline_in(nap));
    napping_ = false;
  }
}

void ProgressEngine::abort(const std::string& reason) {
  while_driving([&] {
    std::vector<Operation*> begun;
    (void)accept(begun);
    if (!failed_) fail(nullptr, Status(Code::kCancelled, reason));
  });
}

Result<ProgressEngine::Successor> ProgressEngine::shrink(const std::vector<int>& group,
                                                         std::uint32_t communicator,
                                                         Deadline deadline) {
  Status failed;
  {
    const std::lock_guard lock(mutex_);
    failed = failure_;
  }
  ShrinkCall call{group,    options_.left_behind,         communicator,       failed, deadline,
                  attempt_, options_.allow_lone_survivor, options_.take_token};
  if (call.failure.ok()) {
    return Status(Code::kInvalidArgument,
                  "shrink: nothing has failed (expected a failure, or abort(), first)");
  }
  std::ranges::sort(call.group);
  Result<Survivors> agreed = Status(Code::kUnsupported, "shrink: the transport is gone");
  std::unique_ptr<Transport> transport;
  while_driving([&] {
    if (!transport_) return;
    // Groups that went on alone end here: their messages are of a generation that is over.
    if (!failed_) fail(nullptr, Status(Code::kCancelled, "another group shrinks"), false);
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
      std::unique_lock lock(mutex_);
      const Status failure = failure_of(heard->communicator);
      lock.unlock();
      answer(*transport_, note.from, *heard, recorder_, failure);
    }
    // Somebody goes on without the lost, and cannot without this rank.
    if (heard->kind == EngineNote::Kind::kPropose && !failed_ && !is_old(heard->proposal)) {
      fail(nullptr, learn_losses(note.from, heard->proposal), false);
    }
  }
}

// The proposal may be here before the loss that led to it, which its sender has told by another
// way or has from elsewhere. It names the same ranks, and those that were left behind before.
Status ProgressEngine::learn_losses(int from, const Proposal& proposal) {
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
bool ProgressEngine::is_old(const Proposal& proposal) const {
  return proposal.generation < options_.generation &&
         std::ranges::includes(options_.left_behind, proposal.lost);
}

// Ends operations for good, with their groups: all of them, or, where ranks are lost and `spares`,
// those of all groups but those that fail alone and have none of these ranks. The report goes out
// first: others may be waiting for this rank.
void ProgressEngine::fail(Operation* failed_first, Status cause, bool spares) {
  if (failed_ && !has_active()) return;
  ++failures_;
  std::vector<Operation*> open;
  each_active([&](Operation& operation) { open.push_back(&operation); });
  if (failed_first == nullptr && !open.empty()) failed_first = open.front();
  const Failure failure = investigate(*transport_, failed_first, std::move(cause), recorder_,
                                      {.by_token = static_cast<bool>(options_.take_token),
                                       .allow_lone = options_.allow_lone_survivor});
  std::set<std::uint32_t> spared;
  if (spares) spared = spared_by(failure);
  if (!spared.empty() && !transport_->accept_losses()) spared.clear();
  failed_ = spared.empty();
  std::erase_if(open, [&](const Operation* operation) {
    return spared.contains(operation->execution->route().communicator);
  });
  const Deadline now = Clock::now();
  std::vector<Status> outcomes;
  Status first = failed_ ? outcome_between_operations(failure) : outcome_of_loss(failure);
  for (Operation* operation : open) {
    operation->waited_for = operation->execution->waiting_for(*transport_);
    outcomes.push_back(outcome_of(*operation, failure, *transport_, now));
    if (operation == failed_first) first = outcomes.back();
  }
  for (const LostPeer& report : reports_of(failed_first, failure, *transport_)) {
    transport_->announce(report);
  }
  // Ranks that this one has just called lost are no news to it.
  if (!failed_) (void)transport_->accept_losses();
  for (Operation* operation : open) operation->execution->cancel(*transport_);
  // Streams that wait for one of them go on, as others of them are behind that.
  for (Operation* operation : open) operation->work->failing();
  // The operands must not be touched once their owners have them back.
  bool settled = settle(open);
  if (!settled && !failed_) {  // what is severed is severed for all
    return fail(nullptr, Status(Code::kPeerLost, "messages of lost ranks do not end"), false);
  }
  if (!settled && transport_->sever()) settled = settle(open);
  end_failed({open, outcomes, spared, settled}, first);
  write_flight_record(failure, first);
}

// What has failed is told to its groups, and ends.
void ProgressEngine::end_failed(const Failed& failed, const Status& first) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = first;
    for (const auto& [communicator, fate] : fates_) {
      if (fate->failed || failed.spared.contains(communicator)) continue;
      fate->failure = first;
      fate->failed = true;
    }
    if (!failed.settled) transport_.reset();
  }
  for (std::size_t i = 0; i < failed.open.size(); ++i) {
    if (failed.settled) failed.open[i]->execution->release(pool_);
    if (failed.open[i]->peer >= 0) --open_with_[static_cast<std::size_t>(failed.open[i]->peer)];
    end(*failed.open[i], failed.outcomes[i]);
  }
  for (auto& queue : active_) {
    std::erase_if(queue, [&](const auto& operation) {
      return std::ranges::find(failed.open, operation.get()) != failed.open.end();
    });
  }
  // What goes on may have missed news of its messages.
  several_ = 0;
  unseen_ = 0;
  each_active([&](const Operation& operation) {
    several_ += operation.single.value_or(true) ? 0 : 1;
    ++unseen_;
  });
}

// The communicators that go on.
std::set<std::uint32_t> ProgressEngine::spared_by(const Failure& failure) const {
  const std::vector<int> lost = lost_by(failure);
  std::set<std::uint32_t> spared;
  if (lost.empty()) return spared;
  const std::lock_guard lock(mutex_);
  for (const auto& [communicator, fate] : fates_) {
    const bool hit = std::ranges::any_of(
        *fate->job_ranks, [&](int rank) { return std::ranges::binary_search(lost, rank); });
    if (fate->fails_alone && !fate->failed && !hit) spared.insert(communicator);
  }
  return spared;
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

bool ProgressEngine::settle(std::span<Operation* const> open) {
  const Deadline until = deadline_in(kSettle);
  while (true) {
    const Result<int> progressed = transport_->progress();
    bool settled = true;
    for (Operation* operation : open) {
      settled = operation->execution->settled(*transport_) && settled;
    }
    if (settled) return true;
    const Deadline now = Clock::now();
    if (now >= until || !progressed.has_value()) return false;
    if (!transport_->wait(std::min(until, now + std::chrono::milliseconds(5))).ok()) return false;
  }
}

}  // namespace gradwire
