#include "aggregate/pipeline.h"

#include <chrono>
#include <deque>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = AggregateSpan::Kind;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class PipelinedStep {
 public:
  PipelinedStep(std::span<BucketExchange* const> buckets, std::uint64_t step, StepSource& source,
                StepCost& cost)
      : buckets_(buckets), step_(step), source_(source), cost_(cost) {}

  Status run() {
    std::vector<int> phases;
    for (const BucketExchange* bucket : buckets_) phases.push_back(bucket->phases());
    for (const Launch& next : launch_order(phases, kBucketsInWork)) GW_TRY(launch(next));
    while (!flying_.empty()) GW_TRY(land());
    return {};
  }

 private:
  struct Flight {
    Launch launch;
    std::optional<Work> work;
    Clock::time_point start;
    int lane;
  };

  BucketExchange& bucket(const Launch& launch) {
    return *buckets_[static_cast<std::size_t>(launch.bucket)];
  }

  Status launch(const Launch& next) {
    // Whoever was launched before and is not needed in the air makes way: an own earlier phase, or
    // the oldest when the sky is full.
    while (must_land_first(next)) GW_TRY(land());
    if (next.phase == 0) {
      // Idle until the gradients come? Then absorb what has been sent.
      while (!flying_.empty() && !source_.is_ready(next.bucket)) GW_TRY(land());
      GW_TRY(source_.wait_ready(next.bucket));
    }
    GW_TRY(encode(next));
    const Clock::time_point start = Clock::now();
    auto work = bucket(next).issue(next.phase);
    cost_.exchange_seconds += seconds_since(start);
    if (!work.has_value()) return named(next, work.error());
    // The oldest lands first, so lanes are free again when their turn comes.
    flying_.push_back({next, std::move(work).value(), start, launched_++ % kBucketsInWork});
    return {};
  }

  bool must_land_first(const Launch& next) const {
    if (flying_.size() >= static_cast<std::size_t>(kBucketsInWork)) return true;
    for (const Flight& flight : flying_) {
      if (flight.launch.bucket == next.bucket) return true;
    }
    return false;
  }

  Status encode(const Launch& next) {
    const Clock::time_point start = Clock::now();
    auto bytes = bucket(next).encode(next.phase, step_);
    cost_.encode_seconds += seconds_since(start);
    if (!bytes.has_value()) return named(next, bytes.error());
    cost_.payload_bytes += bytes.value();
    tell(Kind::kEncode, next, start);
    return {};
  }

  // Waits for the oldest exchange and absorbs it.
  Status land() {
    Flight flight = std::move(flying_.front());
    flying_.pop_front();
    if (flight.work.has_value()) {
      const Clock::time_point start = Clock::now();
      const Status done = source_.wait(*flight.work);
      cost_.exchange_seconds += seconds_since(start);
      GW_TRY(named(flight.launch, done));
      tell(Kind::kExchange, flight.launch, flight.start, flight.lane);
    }
    const Clock::time_point start = Clock::now();
    const Status absorbed = bucket(flight.launch).absorb(flight.launch.phase, step_);
    cost_.decode_seconds += seconds_since(start);
    GW_TRY(named(flight.launch, absorbed));
    tell(Kind::kDecode, flight.launch, start);
    if (flight.launch.phase + 1 == bucket(flight.launch).phases()) {
      source_.landed(flight.launch.bucket);
    }
    return {};
  }

  void tell(Kind kind, const Launch& launch, Clock::time_point start, int lane = 0) {
    AggregateSpan span;
    span.kind = kind;
    span.step = step_;
    span.bucket = source_.bucket_of(launch.bucket);
    span.phase = launch.phase;
    span.lane = lane;
    span.begin = start;
    span.end = Clock::now();
    source_.told(span);
  }

  Status named(const Launch& launch, const Status& status) const {
    if (status.ok()) return status;
    return status.with_context(format("step %llu, bucket %d, phase %d",
                                      static_cast<unsigned long long>(step_),
                                      source_.bucket_of(launch.bucket), launch.phase));
  }

  std::span<BucketExchange* const> buckets_;
  std::uint64_t step_;
  StepSource& source_;
  StepCost& cost_;
  std::deque<Flight> flying_;  // in the order of launch
  int launched_ = 0;
};

}  // namespace

std::vector<Launch> launch_order(std::span<const int> phases, int depth) {
  std::vector<Launch> order;
  std::deque<Launch> working;  // the next phase of each bucket in work, oldest exchange first
  std::size_t begun = 0;
  while (begun < phases.size() || !working.empty()) {
    if (begun < phases.size() && working.size() < static_cast<std::size_t>(depth)) {
      const int bucket = static_cast<int>(begun++);
      order.push_back({bucket, 0});
      working.push_back({bucket, 1});
      continue;
    }
    const Launch next = working.front();
    working.pop_front();
    if (next.phase >= phases[static_cast<std::size_t>(next.bucket)]) continue;
    order.push_back(next);
    working.push_back({next.bucket, next.phase + 1});
  }
  return order;
}

Status run_step(std::span<BucketExchange* const> exchanges, std::uint64_t step, StepSource& source,
                StepCost& cost) {
  return PipelinedStep(exchanges, step, source, cost).run();
}

}  // namespace gradwire
