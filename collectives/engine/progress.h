// Drives the operations of one transport, for all communicators that were split from one root.
//
// One thread at a time drives: it holds the progress lock (driven_) and alone touches the transport
// and the active operations. The thread that starts an operation takes the lock for one turn if it
// is free, so that messages leave at once; a thread that waits takes it and drives until its own
// operation is done; the engine's own thread drives when nobody waits, and keeps an idle transport
// alive. See docs/internals/threads.md.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "base/workers.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/outcomes.h"
#include "collectives/engine/quick_work.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/engine/staging.h"
#include "collectives/engine/waiter.h"
#include "collectives/failure/flight_recorder.h"
#include "collectives/failure/shrink.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

struct EngineOptions {
  std::string flight_folder = {};       // where a failure leaves the flight record; none if empty
  std::size_t flight_operations = 256;  // that it holds
  std::function<void(std::string_view)> warn = {};  // as CommunicatorOptions has it
  std::uint32_t generation = 0;                     // how often the ranks have shrunk
  std::vector<int> left_behind = {};  // ranks of the job that were lost with that, ascending
  Waiting waiting = Waiting::kAdaptive;
  bool allow_lone_survivor = false;  // both as CommunicatorOptions has them
  TakeToken take_token = {};
  std::shared_ptr<StagingLanes> lanes = std::make_shared<StagingLanes>();
  std::shared_ptr<Workers> workers = {};  // that share reductions
};

// Whether the operations of one communicator go on when ranks of the job fail.
struct GroupFate {
  GroupFate(std::shared_ptr<const std::vector<int>> members, bool alone)
      : job_ranks(std::move(members)), fails_alone(alone) {}

  std::shared_ptr<const std::vector<int>> job_ranks;  // its members
  bool fails_alone;                                   // as GroupOptions has it
  std::atomic<bool> failed{false};
  Status failure = {};  // why, then; of the engine's lock
};

// Which numbers of communicators are taken on a rank. Numbers 0 .. kIds - 1 (the last of 12 bits is
// the transport's own). One that is released while operations bear it is free when the last of them
// has ended: until then their messages have it. Used by one thread at a time.
class CommunicatorIds {
 public:
  static constexpr int kIds = 4095;

  // One bit each, set when free.
  std::vector<std::uint64_t> free_bits() const {
    std::vector<std::uint64_t> bits((kIds + 63) / 64, 0);
    for (std::size_t id = 0; id < uses_.size(); ++id) {
      if (uses_[id].free()) bits[id / 64] |= std::uint64_t{1} << (id % 64);
    }
    return bits;
  }
  // False when it was not free.
  bool claim(int id) {
    Use& use = uses_[static_cast<std::size_t>(id)];
    return use.free() && (use.claimed = true);
  }
  void release(int id) { uses_[static_cast<std::size_t>(id)].claimed = false; }

  // An operation of that communicator begins, and ends.
  void begin_operation(std::uint32_t id) {
    if (id < uses_.size()) ++uses_[id].under_way;
  }
  void end_operation(std::uint32_t id) {
    if (id < uses_.size()) --uses_[id].under_way;
  }

 private:
  struct Use {
    bool claimed = false;
    int under_way = 0;
    bool free() const { return !claimed && under_way == 0; }
  };
  std::vector<Use> uses_ = std::vector<Use>(kIds);
};

class ProgressEngine {
 public:
  explicit ProgressEngine(std::unique_ptr<Transport> transport, EngineOptions options = {});
  // One that is left alone in children of fork(), whose threads, locks and connections are the
  // parent's.
  static std::shared_ptr<ProgressEngine> make(std::unique_ptr<Transport> transport,
                                              EngineOptions options) {
    return {new ProgressEngine(std::move(transport), std::move(options)), [](ProgressEngine* it) {
              if (!it->in_child()) delete it;
            }};
  }
  // Ends what is open with kCancelled, then closes the transport.
  ~ProgressEngine();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  // All below may be called from any thread.

  // Starts an operation. Its WorkState ends in any case; the error is that of an engine that has
  // failed before. One that is brief may wait a little for more of them: see begin_waiting().
  Status submit(std::unique_ptr<Operation> operation);
  // Brief ones that wait for company begin.
  void begin_waiting();
  // Until `work` is done, or `until`; true when it is done.
  bool wait(const WorkState& work, const std::optional<Deadline>& until);
  // Ends every operation with kCancelled.
  void cancel();
  // The same, and returns when they have ended; the others are told `reason`. Nothing if the engine
  // has failed before.
  void abort(const std::string& reason);
  // Collective over the survivors of `group`: an engine of theirs, with this one's transport.
  // Errors: agree_and_rebuild's, kInvalidArgument if nothing has failed, kUnsupported if the
  // transport had to be given up or is gone already.
  struct Successor {
    std::shared_ptr<ProgressEngine> engine;
    std::vector<int> group;  // job ranks, in the old order
  };
  Result<Successor> shrink(const std::vector<int>& group, std::uint32_t communicator,
                           Deadline deadline);
  // Before the first operation of a communicator: what is told when ranks fail.
  void keep_fate(std::uint32_t communicator, const std::shared_ptr<GroupFate>& fate);
  // Why its operations fail, or ok. In a child of fork(): kUnsupported, as for all that can fail
  // here; the rest does nothing.
  Status status(const GroupFate& fate) const;
  static Status not_in_children() {
    return {Code::kUnsupported, "a forked child has none of its parent's communicators"};
  }
  // Whether it has failed.
  bool has_failed(const GroupFate& fate) const {
    return in_child() || fate.failed.load(std::memory_order_acquire);
  }
  // Something is open there that may end without this engine: asks it to hand over what does not,
  // within some milliseconds and until nothing is open.
  void attend(std::weak_ptr<QuickWork> quick);
  bool in_child() const { return mark_.in_child(); }
  // A collective of that communicator that this rank may finish without submit().
  void note_begun(std::uint32_t communicator, std::uint64_t number) {
    recorder_.note_begun(communicator, number);
  }
  // The record of the last operations. One that is in it already says so in submit().
  FlightRecorder& recorder() { return recorder_; }
  // What other ranks ring that have written to memory. Before the first operation that waits for
  // memory.
  void listen_to(std::shared_ptr<shm::Bell> bell) {
    while_driving([&] { waiter_.listen_to(std::move(bell)); });
  }

  // What shares reductions; null where one thread does them.
  const std::shared_ptr<Workers>& workers() const { return options_.workers; }
  // What copies between devices and the host for this rank's operations.
  const std::shared_ptr<StagingLanes>& lanes() const { return options_.lanes; }
  // Whether this machine has more ranks of the job than processors for them.
  bool crowded() const { return crowded_; }
  // Whether the transport sends and receives memory of CUDA devices.
  bool takes_cuda_memory() const { return takes_cuda_memory_; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& describe() const { return describe_; }
  // As of the last operation's end, or of now if nothing is under way.
  TransportStats stats();

  // As CommunicatorIds has them.
  std::vector<std::uint64_t> free_ids() const {
    const std::lock_guard lock(mutex_);
    return ids_.free_bits();
  }
  bool claim_id(int id) {
    const std::lock_guard lock(mutex_);
    if (!ids_.claim(id)) return false;
    recorder_.forget(static_cast<std::uint32_t>(id));
    return true;
  }
  void release_id(int id) {
    if (in_child()) return;
    const std::lock_guard lock(mutex_);
    fates_.erase(static_cast<std::uint32_t>(id));
    ids_.release(id);
  }

 private:
  void while_driving(const std::function<void()>& action);
  bool turn();
  void begin_now(std::unique_lock<std::mutex>& lock, bool whole_turn);
  bool begin_accepted();
  void read_notes();
  Status learn_losses(int from, const Proposal& proposal);
  bool is_old(const Proposal& proposal) const;
  bool accept(std::vector<Operation*>& begun);
  enum class Which : std::uint8_t { kAll, kSettled, kBesides };
  bool advance_all(Which which);
  bool serve_latency();
  enum class Advanced : std::uint8_t { kNot, kMoved, kEnded, kFailed };
  Advanced advance(Operation& operation);
  Awaited awaited() const;
  // Whether a thread waits for an operation, so that it is told of what changes.
  bool is_awaited() const { return waiters_ + onlookers_ > 0; }
  template <typename Action>
  void each_active(const Action& action) const;
  bool has_active() const;
  void look_around(Deadline now);
  bool has_more_time(Operation& operation, Deadline now) const;
  Deadline next_deadline(Deadline now) const;
  void drive(const std::function<bool()>& enough, double spin_seconds, Deadline until);
  void sleep(const std::function<bool()>& enough, Deadline until);
  void wake_driver();
  void visit_quick(Deadline now);
  void end(Operation& operation, Status status);
  void fail(Operation* failed_first, Status cause, bool spares = true);
  // Operations that end early, each with its outcome; communicators that go on; and whether nobody
  // touches the operands any more.
  struct Failed {
    std::span<Operation* const> open;
    std::span<const Status> outcomes;
    const std::set<std::uint32_t>& spared;
    bool settled;
  };
  void end_failed(const Failed& failed, const Status& first);
  std::set<std::uint32_t> spared_by(const Failure& failure) const;
  Status failure_of(std::uint32_t communicator) const;
  bool settle(std::span<Operation* const> open);
  void write_flight_record(const Failure& failure, const Status& status) const;
  void run();

  const ForkMark mark_;
  std::unique_ptr<Transport>
      transport_;  // of the thread that drives; null when it had to be given up
  int rank_;
  int size_;
  std::string describe_;
  bool takes_cuda_memory_;
  EngineOptions options_;
  bool crowded_;
  bool yields_;        // between looks: more ranks than processors
  bool never_sleeps_;  // while an operation is under way
  FlightRecorder recorder_;

  mutable std::mutex mutex_;
  std::condition_variable
      driver_left_;  // for waiters: the progress lock is free, or something has ended
  std::condition_variable work_to_do_;  // for the engine's thread
  bool driven_ = false;
  bool napping_ = false;  // the engine's thread needs a call to wake
  Deadline last_submit_;
  int in_a_row_ = 0;  // brief operations that followed one another soon
  Status failure_;    // the first
  std::map<std::uint32_t, std::shared_ptr<GroupFate>> fates_;  // by communicator
  TransportStats stats_;
  std::vector<std::unique_ptr<Operation>> incoming_;
  std::vector<std::weak_ptr<QuickWork>> quick_;  // that are attended
  CommunicatorIds ids_;

  std::atomic<bool> has_incoming_{false};
  std::atomic<bool> has_quick_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cancel_asked_{false};
  std::atomic<int> waiters_{0};
  std::atomic<int> onlookers_{0};    // waiters that leave the progress lock to its holder
  std::atomic<int> outstanding_{0};  // operations that have not ended
  std::atomic<int> urgent_{0};       // of these in the latency queue

  // Of the thread that drives.
  std::array<std::vector<std::unique_ptr<Operation>>, kQueues> active_;  // by queue
  std::size_t several_ = 0;  // of these that are not single()
  std::vector<int> open_with_ = std::vector<int>(static_cast<std::size_t>(size_));  // by peer
  int unseen_ = 0;             // tickets that have settled, and that no operation has seen, at most
  int settled_meanwhile_ = 0;  // of these, during the turn of all operations
  int begun_ = 0;              // operations since the last turn
  Waiter waiter_;
  ScratchPool pool_;
  int turns_since_look_ = 0;
  Proposal attempt_{.generation = options_.generation};  // to go on after a failure
  int turns_since_notes_ = 0;
  Deadline next_visit_{};
  std::atomic<bool> failed_{false};  // with all groups
  int failures_ = 0;                 // so far

  std::thread thread_;
};

}  // namespace gradwire
