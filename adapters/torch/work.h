// An operation of gradwire as PyTorch's Work and Future.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
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
};

// How a group's operations end: at once and inline, or later and on the pool.
struct Completion {
  bool blocking = false;
  std::shared_ptr<Pool> pool;
  // Told of each operation's end, if set; on the thread that completes futures.
  std::function<void(const c10d::WorkInfo&)> hook;
};

// c10d's names and habits: wait(), result() and the rest are its virtual functions. Results are in
// place when wait() returns or isCompleted() says so, on whichever thread that is; the future (with
// whatever is chained to it) is completed on the pool, or by begin() in blocking mode.
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
  // For an operation that another one carries (a batch): ends with it.
  void follow(const c10::intrusive_ptr<GradwireWork>& carrier);

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
  void synchronize() override {}
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
  std::string sentence() const;
  void complete_future();

  Operation operation_;
  const std::uint64_t number_;
  const std::shared_ptr<const Completion> completion_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::function<void(std::exception_ptr)> told_;
  c10::intrusive_ptr<GradwireWork> carrier_;
  gw_work* handle_ = nullptr;
  std::chrono::steady_clock::time_point started_;
  std::chrono::steady_clock::time_point finished_;

  mutable std::mutex state_mutex_;
  std::condition_variable settled_;
  enum class State { kRunning, kSettling, kSettled };
  State state_ = State::kRunning;
  std::exception_ptr error_;
  int source_ = -1;
};

}  // namespace gradwire::torch_backend
