// The aggregator's thread: runs one step after another over a fixed list of buckets.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "aggregate/exchange.h"
#include "aggregate/pipeline.h"
#include "aggregate/plan/plan.h"
#include "aggregate/plan/predicted_bytes.h"
#include "aggregate/state/rescale.h"
#include "aggregate/state/state_image.h"
#include "gradwire/aggregator.h"

namespace gradwire {

// A bucket with its exchanges; while its warm-up lasts the dense one stands in.
struct Bucket {
  BucketPlan plan;
  Exchanges exchanges;
  Exchanges warmup;  // empty without warm-up steps
};

// Owned and called by one thread (the caller); owns the other (the aggregator thread), which alone
// touches coders and the communicator from the first ready() on. One mutex and one condition
// variable between them.
//
// With gradients on a device a bucket is ready when the device has come to where they are final:
// nothing is enqueued behind what others let run there. And whatever ends a step waits for what is
// enqueued, so that gradients are the caller's again.
class Engine final : private StepSource {
 public:
  // `parameters`, `context` and `options` outlive the engine. `fingerprint` are hashes of what all
  // ranks must agree on, compared once, before the first exchange.
  Engine(const ExchangeContext& context, const AggregatorOptions& options,
         std::vector<Bucket> buckets, std::span<const Parameter> parameters,
         std::uint64_t fingerprint);
  // Ends the thread; in the middle of a step this finishes the communicator. Memory of exchanges
  // that a device does not leave alone by the operations' deadline is given up.
  ~Engine() override;

  Status ready(int index);
  // Whether gradient `index` is not handed over yet; kInvalidArgument names it.
  Status check_open(int index) const;
  Status finish();
  Result<bool> arrived(int index, bool wait);
  AggregateStats stats() const;
  // That a step sent more than uncompressed gradients would have: said once, of the first such one.
  std::vector<std::string> notices() const;
  // Between steps only, in host memory, as it is now: valid until the next call and the next step.
  // Where a device does not give it, nothing, and the engine has failed.
  std::vector<NamedTensor> state();
  // Between steps only: `change` is given all state in host memory, and leaves it as it is to be,
  // or an error and nothing changed.
  using StateChange = std::function<Status(std::span<const NamedTensor>)>;
  Status change_state(const StateChange& change);
  // Between steps only. A rate or scale that is in force from now on, finite and >= 0; 0 is none.
  Status follow(ScaleKind kind, double value);
  // Between steps only, collective: the largest `value` of all ranks.
  Result<float> largest(float value);
  // No gradient waits for its mean: none was handed over since finish(), or all hold it.
  bool between_steps() const;

 private:
  // How long the thread sleeps in an exchange before it looks whether the aggregator ends, seconds.
  static constexpr double kPatience = 0.2;

  void run();
  bool wait_for_step();  // false when there will be none: the engine ends
  Status run_one_step();
  std::uint64_t held_bytes();
  void compare_with_dense(bool warming);  // with mutex_ held, at a step's end
  Status check_agreement();
  void fail(const Status& status);
  std::vector<NamedTensor> live_state();
  Status missing_gradients() const;  // with mutex_ held

  // engine_device.cc
  bool final_on_device(std::size_t bucket) const;
  Status await_device(std::size_t bucket);
  Status leave_device(Status status) const;
  Status change(std::vector<NamedTensor> live, const StateChange& change);
  void give_up_memory();

  // Of a step's exchanges, in order.
  int bucket_of(int exchange) const override {
    return static_cast<int>(bucket_at_[static_cast<std::size_t>(exchange)]);
  }
  bool is_ready(int exchange) override;
  Status wait_ready(int exchange) override;
  Status wait(Work& work) override;
  void landed(int exchange) override;
  void told(const AggregateSpan& span) override;
  Status check_index(int index) const;
  static Status cancelled() {
    return {Code::kCancelled, "the aggregator ended in the middle of a step"};
  }
  bool will_land(std::size_t bucket) const;  // with mutex_ held: without gradients that are missing

  const ExchangeContext& context_;
  Communicator& communicator_;
  const NodeGroups* nodes_;
  const AggregatorOptions& options_;
  std::vector<Bucket> buckets_;
  std::span<const Parameter> parameters_;
  std::uint64_t fingerprint_;
  std::vector<int> bucket_of_;      // by parameter
  std::int64_t step_ = 0;           // steps finished; part of state()
  std::array<double, 2> scales_{};  // by ScaleKind, the last value; 0: none. Part of state()
  StateImage image_;                // of the last state()
  bool agreed_ = false;             // fingerprints have been compared
  // Of the step that runs; the aggregator thread's alone.
  std::vector<std::size_t> bucket_at_;  // by exchange
  std::vector<std::size_t> flying_;     // by bucket, exchanges that have not landed
  AggregateStats per_step_;             // gradient_bytes and dense_ring_bytes of every step
  PredictedBytes predicted_;            // of every step

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> handed_over_;  // by parameter, in this step
  std::vector<int> missing_;       // by bucket, gradients to come in this step
  int missing_total_ = 0;
  std::vector<bool> landed_;  // by bucket, in this step
  bool step_done_ = false;
  bool stopping_ = false;
  Status status_;  // sticky
  AggregateStats stats_;
  std::vector<std::string> notices_;
  std::uint64_t compared_ = 0;  // bytes that steps sent so far, on two levels between nodes

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gradwire
