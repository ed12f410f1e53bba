// Drives the operations of one transport, for all communicators that were split from one root.
//
// One thread at a time drives: it holds the baton (driven_) and alone touches the transport and the
// active operations. Whoever starts an operation takes the baton for one turn if it is free, so
// that messages leave at once; whoever waits takes it and drives until its own operation is done;
// the engine's own thread drives when nobody waits, and keeps an idle transport alive. See
// docs/internals/threads.md.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/forks.h"
#include "collectives/engine/communicator_ids.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/outcomes.h"
#include "collectives/engine/scratch_pool.h"
#include "collectives/engine/staging.h"
#include "collectives/failure/flight_recorder.h"
#include "collectives/failure/shrink.h"
#include "comm/shm/bell.h"
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
  // failed before.
  Status submit(std::unique_ptr<Operation> operation);
  // Until `work` is done, or `until`; true when it is done.
  bool wait(const WorkState& work, std::optional<Deadline> until);
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
  // The first failure, or ok. In a child of fork(): kUnsupported, as for all that can fail here;
  // the rest does nothing.
  Status status() const;
  static Status not_in_children() {
    return {Code::kUnsupported, "a forked child has none of its parent's communicators"};
  }
  // Whether there is one.
  bool has_failed() const { return in_child() || has_failed_.load(std::memory_order_acquire); }
  bool in_child() const { return mark_.in_child(); }
  // A collective of that communicator that this rank may finish without submit().
  void note_begun(std::uint32_t communicator, std::uint64_t number) {
    recorder_.note_begun(communicator, number);
  }
  // The record of the last operations. One that is in it already says so in submit().
  FlightRecorder& recorder() { return recorder_; }
  // Where the driver sleeps while it waits for memory alone. Before the first operation that polls.
  void listen_to(std::shared_ptr<shm::Bell> bell) {
    const std::lock_guard lock(mutex_);
    bell_ = std::move(bell);
  }

  std::uint32_t generation() const { return options_.generation; }
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
    ids_.release(id);
  }

 private:
  void with_baton(const std::function<void()>& action);
  bool turn();
  bool begin_accepted();
  void read_notes();
  Status learn_losses(int from, const EngineNote& proposal);
  bool is_old(const EngineNote& proposal) const;
  bool accept();
  enum class Which : std::uint8_t { kAll, kSettled, kPolling };
  bool advance(Which which, std::size_t first = 0);
  std::size_t polling() const;
  void look_around(Deadline now);
  bool has_more_time(Operation& operation, Deadline now) const;
  Deadline next_deadline(Deadline now) const;
  void drive(const std::function<bool()>& enough, double spin_seconds, Deadline until);
  void sleep_in_transport(const std::function<bool()>& enough, Deadline until);
  void wake_driver();
  void end(Operation& operation, Status status);
  void fail(Operation* culprit, Status cause);
  bool settle_all();
  void write_flight_record(const Failure& failure, const Status& status) const;
  void run();

  const ForkMark mark_;
  std::unique_ptr<Transport> transport_;  // of whoever drives; null when it had to be given up
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
  std::condition_variable baton_free_;  // for waiters: the baton is free, or something has ended
  std::condition_variable work_to_do_;  // for the engine's thread
  bool driven_ = false;
  bool napping_ = false;  // the engine's thread needs a call to wake
  Deadline last_submit_;
  Status failure_;
  std::atomic<bool> has_failed_{false};
  TransportStats stats_;
  std::vector<std::unique_ptr<Operation>> incoming_;
  CommunicatorIds ids_;
  std::shared_ptr<shm::Bell> bell_;

  std::atomic<bool> has_incoming_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cancel_asked_{false};
  std::atomic<bool> asleep_{false};  // the driver is, or is about to be, in Transport::wait
  std::atomic<int> waiters_{0};
  std::atomic<int> outstanding_{0};  // operations that have not ended

  // Of whoever drives.
  std::vector<std::unique_ptr<Operation>> active_;
  std::size_t several_ = 0;  // of these that are not single()
  std::vector<int> open_with_ = std::vector<int>(static_cast<std::size_t>(size_));  // by peer
  int unseen_ = 0;  // tickets that have settled, and that no operation has seen, at most
  int begun_ = 0;   // operations since the last turn
  ScratchPool pool_;
  int turns_since_look_ = 0;
  Attempt attempt_{.generation = options_.generation};  // to go on after a failure
  int turns_since_notes_ = 0;
  bool failed_ = false;

  std::thread thread_;
};

}  // namespace gradwire
