// What one rank's threads did when, for traces: layers forward and backward and the optimizer on
// the thread that trains, buckets encoded and decoded on the aggregators' threads, and exchanges in
// the air.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "adapters/trainer/traffic_bytes.h"
#include "gradwire/aggregator.h"
#include "trainer/spans.h"

namespace gradwire {

struct TraceSpan {
  int stream = 0;  // index into RankTrace::streams(); spans of one nest or are apart
  std::string name;
  std::string_view category;  // "forward", "backward", "encode", ... : a literal
  std::int64_t step = 0;      // of the run
  std::int64_t begin = 0;     // nanoseconds of this host's steady clock
  std::int64_t end = 0;
};

// What a rank sent in a step, by class of traffic, as of its end.
struct TraceCount {
  std::int64_t step = 0;
  std::int64_t time = 0;  // as TraceSpan's
  TrafficBytes bytes = {};
};

// Every function is thread-safe, but for spans(), streams() and counts(), which want all others to
// be quiet.
class RankTrace {
 public:
  // Keeps the spans of this run's first `steps` steps, from when step `first` begins: 1 or more.
  RankTrace(std::int64_t first, std::int64_t steps) : first_(first), end_(first + steps) {}

  // For Trainer::tell() and AggregatorOptions::on_span; valid as long as this is.
  const OnTrainerSpan* of_trainer() const { return &of_trainer_; }
  std::function<void(const AggregateSpan&)> of_aggregator();
  // Of a run that goes on from a checkpoint: steps count from here. Before the first step.
  void continue_from(std::int64_t steps);
  // What was sent in step `step`, which has just ended.
  void count(std::int64_t step, const TrafficBytes& bytes);

  const std::vector<TraceSpan>& spans() const { return spans_; }
  const std::vector<TraceCount>& counts() const { return counts_; }
  // "training", "updates", "gradients: coder", "gradients: wire 1", ...
  const std::vector<std::string>& streams() const { return streams_; }

 private:
  void add(const TrainerSpan& span);
  void add(const AggregateSpan& span);
  int stream(const std::string& name);     // with mutex_ held
  int stream_of(const TrainerSpan& span);  // likewise

  std::int64_t first_;
  std::int64_t end_;
  std::atomic<std::int64_t> step_ = 0;  // that is under way
  const OnTrainerSpan of_trainer_ = [this](const TrainerSpan& span) { add(span); };
  std::mutex mutex_;
  std::vector<TraceSpan> spans_;
  std::vector<TraceCount> counts_;
  std::vector<std::int64_t> message_ends_;  // of the last one, by row of messages
  std::vector<std::string> streams_{"training"};
};

}  // namespace gradwire
