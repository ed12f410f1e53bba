// An operation of gradwire as PyTorch's Work and Future.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "adapters/torch/elements.h"
#include "adapters/torch/pool.h"
#include "gradwire/c.h"

namespace gradwire::torch_backend {

// What an operation needs until its end, and what it leaves.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";            // "all_reduce"; in profiles "gradwire:all_reduce"
  std::vector<at::Tensor> outputs;  // of result() and the future
  Lent lent;
  std::vector<gw_op> ops;                        // started together, one of them or more
  std::deque<std::vector<std::int64_t>> counts;  // that `ops` point to
  std::function<void()> finish;                  // after the copies of `lent`; may be empty
  std::chrono::milliseconds timeout{0};          // that it has
  double factor = 1.0;
  // Of tensors on a device: the stream that was current at the call, and the group's own, on which
  // results are followed.
  std::optional<c10::Stream> stream;
  std::optional<c10::Stream> results;
};

// How many operations of a group run for which a stream waits, and not the host. Any thread.
class Followed {
 public:
  void begin();
  void end();
  // Until none runs, at most `limit`.
  void await(std::chrono::milliseconds limit);

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  std::size_t running_ = 0;
};

// How a group's operations end: at once and inline, or later and on the pool.
struct Completion {
  bool blocking = false;
  std::shared_ptr<Pool> pool;
  std::shared_ptr<Followed> followed = std::make_shared<Followed>();
  // Told of each operation's end, if set; on the thread that completes futures.
  std::function<void(const c10d::WorkInfo&)> hook;
};

// c10d's names and habits: wait(), result() and the rest are its virtual functions. Results are in
// place when wait() returns or isCompleted() says so, on whichever thread that is; the future (with
// whatever is chained to it) is completed on the pool, or by begin() in blocking mode.
//
// Of tensors on a device, as with NCCL: a collective's future is complete when the call returns,
// with events behind which its readers come, and wait() has the caller's current stream wait and
// returns at once; an error of the operation is then the next one's and exception()'s. What remains
// to be done at the end (copies to tensors with gaps, and the like) is enqueued by the call, too.
// Messages' futures are completed when they have ended, since messages may end in another order.
// The host waits where wait() has a time limit, in barriers, in recvs from any source, in recvs
// whose result is to be copied, and in blocking mode.
class GradwireWork final : public c10d::Work {
 public:
  GradwireWork(int rank, Operation operation, std::uint64_t number,
               std::shared_ptr<const Completion> completion);
  ~GradwireWork() override;

  // Takes over an operation that was started. Called once, by the thread that started it.
  void begin(gw_work* handle) {
    hand_over(handle);
    begin();
  }
  // Operations that this one carries (a batch), and which end with it; before begin().
  void carry(std::vector<c10::intrusive_ptr<GradwireWork>> works);

  Operation& operation() { return operation_; }
  // begin() in two steps: what is told to `told` in between is the end, once, before the future.
  void hand_over(gw_work* handle) { handle_ = handle; }
  void on_end(std::function<void(std::exception_ptr)> told) { told_ = std::move(told); }
  void begin();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return number_; }

 private:
  static void ended(void* context, gw_status status);
  // Brings results in place, once; returns when that has happened, on whichever thread.
  void settle();
  std::exception_ptr outcome();
  // Whether the operation has ended, which is then settled; its copies on a device may run yet.
  bool ended_here();
  bool follow_at_start();
  bool wait_there();
  bool await_copies(std::chrono::steady_clock::time_point until) const;
  void finish_outputs(const std::optional<c10::Stream>& there);
  void follow_outputs() const;
  std::string sentence() const;
  void complete();
  void give_future(const std::exception_ptr& error);

  const GradwireWork& lead() const { return carrier_ ? *carrier_ : *this; }

  Operation operation_;
  // How results are followed where the host need not wait: by the group's stream, from the start
  // on, or by the one that is current in wait().
  bool at_start_;
  const bool at_wait_;
  const std::uint64_t number_;
  const std::shared_ptr<const Completion> completion_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::function<void(std::exception_ptr)> told_;
  c10::intrusive_ptr<GradwireWork> carrier_;
  std::vector<c10::intrusive_ptr<GradwireWork>> carried_;  // until the end
  std::atomic<bool> given_ = false;                        // the future
  gw_work* handle_ = nullptr;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point finished_;

  mutable std::mutex state_mutex_;
  std::condition_variable settled_;
  enum class State { kRunning, kSettling, kSettled };
  State state_ = State::kRunning;
  std::exception_ptr error_;
  int source_ = -1;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> outcomes_;  // of getFutureResult()
  bool followed_ = false;                                          // counted as such
  std::optional<c10::Event> passed_;  // behind the results, where a stream has followed them
};

}  // namespace gradwire::torch_backend
