// What overlapping the exchange with backward is worth, in virtual time: T8 and T10 of the
// acceptance table over real aggregators; and the trace of a run that shows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/trace/rank_trace.h"
#include "base/elements.h"
#include "tests/adapters/modes/virtual_ranks.h"
#include "tests/adapters/planned_replicas.h"
#include "tests/support/aggregate_job.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/training.h"

namespace gradwire::testing::overlap_test {
namespace {

// Gradients that backward completes from the last to the first, each after so long.
struct Layer {
  std::int64_t elems;  // whole chunks for 2, 3 and 4 ranks
  double seconds;
};

// 2 (p - 1) alpha + 2 (p - 1) / p n beta, of a ring on p ranks.
ExactTime ring_time(std::int64_t elems, int ranks) {
  return 2 * (ranks - 1) * exact(kModelLinks.alpha) +
         2 * (ranks - 1) * (elems / ranks) * 4 * exact(kModelLinks.beta);
}

// Of one step of one rank.
struct Timeline {
  ExactTime start;
  ExactTime backward_end;
  ExactTime exchange_end;
};
double between(ExactTime from, ExactTime to) { return to.seconds() - from.seconds(); }

// A data-parallel rank whose gradients are memory alone.
class Rank {
 public:
  Rank(Communicator& communicator, VirtualClock& clock, const std::vector<Layer>& layers)
      : clock_(clock), rank_(communicator.rank()), layers_(layers) {
    DataParallelOptions parallel;
    parallel.aggregator.algorithm = "ring";
    parallel.aggregator.bucket_bytes = 1;  // every gradient is a bucket
    parallel.check_every = 0;
    std::vector<NamedTensor> tensors;
    for (const Layer& layer : layers) {
      memory_.emplace_back(static_cast<std::size_t>(layer.elems), 1.0F);
      tensors.push_back({std::to_string(memory_.size()), view_of(std::span(memory_.back()))});
    }
    gradients_ = tensors;
    auto made = DataParallelStrategy::create(MeshGroups::of_replicas(communicator),
                                             Registry::builtin(), parallel, tensors, gradients_);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    strategy_ = std::move(made).value();
  }

  // `timed`: backward takes the layers' seconds, else none. A bucket is waited for before the next
  // gradient is handed over, in real time alone: in virtual time its exchange may end later.
  Status step(bool timed, Timeline* timeline) {
    const ExactTime start = clock_.now(rank_);
    ExactTime computed;
    for (std::size_t i = layers_.size(); i-- > 0;) {
      if (timed) computed += exact(layers_[i].seconds);
      clock_.reach(rank_, start + computed);
      const int index = static_cast<int>(i);
      GW_TRY(strategy_->exchange().on_gradient(index, gradients_[i].tensor, {}));
      GW_ASSIGN(const bool landed, strategy_->aggregator().arrived(index, true));
      EXPECT_TRUE(landed);
    }
    GW_TRY(strategy_->exchange().finish({}));
    *timeline = {start, start + computed, clock_.now(rank_)};
    return {};
  }

 private:
  VirtualClock& clock_;
  int rank_;
  std::vector<Layer> layers_;
  std::vector<std::vector<float>> memory_;
  std::vector<NamedTensor> gradients_;
  std::unique_ptr<DataParallelStrategy> strategy_;
};

// Rank 0's second step, which all ranks begin at once: the first one also compares what ranks were
// told.
Timeline second_step(int ranks, const std::vector<Layer>& layers, bool timed) {
  Timeline of_first;
  std::barrier together(ranks);
  in_virtual_time(ranks, [&](Communicator& communicator, VirtualClock& clock) -> Status {
    Rank rank(communicator, clock, layers);
    Timeline timeline;
    const Status first = rank.step(false, &timeline);
    together.arrive_and_wait();
    const ExactTime now = clock.latest();
    together.arrive_and_wait();
    clock.reach(communicator.rank(), now);
    GW_TRY(first);
    GW_TRY(rank.step(timed, &timeline));
    if (communicator.rank() == 0) of_first = timeline;
    return {};
  });
  return of_first;
}

// Bucket after bucket on one port: each begins when its gradient is there and the one before is
// through.
TEST(Overlap, T8_ExposedCommunicationIsWhatBackwardDoesNotCover) {
  const std::vector<std::vector<Layer>> models{
      {{1200, 1e-3}, {2400, 1e-3}, {12, 1e-3}, {6000, 1e-3}},         // backward covers all but one
      {{24000, 1e-5}, {24000, 1e-5}, {24000, 1e-5}, {240000, 1e-5}},  // the wire is the bottleneck
      {{12000, 4e-5}, {36000, 1e-5}, {1200, 3e-5}, {24000, 2e-5}}};
  for (const int ranks : {2, 3, 4}) {
    for (const std::vector<Layer>& layers : models) {
      const Timeline alone = second_step(ranks, layers, false);
      const Timeline overlapped = second_step(ranks, layers, true);
      ExactTime computed = overlapped.start;
      ExactTime end;
      ExactTime all;
      double after_first = 0;
      double largest = 0;
      for (std::size_t i = layers.size(); i-- > 0;) {
        const ExactTime bucket = ring_time(layers[i].elems, ranks);
        computed += exact(layers[i].seconds);
        end = std::max(end, computed) + bucket;
        all += bucket;
        largest = std::max(largest, bucket.seconds());
        if (i + 1 < layers.size()) after_first += layers[i].seconds;
      }
      EXPECT_EQ(alone.exchange_end, alone.start + all);
      EXPECT_EQ(overlapped.backward_end, computed);
      EXPECT_EQ(overlapped.exchange_end, end);
      const double exposed = between(overlapped.backward_end, overlapped.exchange_end);
      EXPECT_NEAR(exposed, std::max(0.0, between(alone.start, alone.exchange_end) - after_first),
                  largest)
          << ranks << " ranks";
      EXPECT_GT(exposed, 0);  // the last bucket is complete when backward ends
    }
  }
}

// The planner's simulator lowers a data-parallel step to the same times, to the nanosecond.
TEST(Overlap, ThePlannersStepOfReplicasIsTheAggregators) {
  constexpr double kNanoseconds = 1e9;
  // Chunks of whole nanoseconds for 2, 3 and 4 ranks.
  const std::vector<std::vector<Layer>> models{
      {{1200, 1e-3}, {2400, 1e-3}, {1200, 1e-3}, {6000, 1e-3}},
      {{24000, 1e-5}, {24000, 1e-5}, {24000, 1e-5}, {240000, 1e-5}},
      {{12000, 4e-5}, {36000, 1e-5}, {1200, 3e-5}, {24000, 2e-5}}};
  for (const int ranks : {2, 3, 4}) {
    for (const std::vector<Layer>& layers : models) {
      std::vector<std::pair<std::int64_t, std::int64_t>> asked;
      for (const Layer& layer : layers) {
        asked.emplace_back(layer.elems, std::llround(layer.seconds * kNanoseconds));
      }
      const Timeline real = second_step(ranks, layers, true);
      const double seconds = between(real.start, real.exchange_end);
      EXPECT_EQ(planned_replicas(ranks, kModelLinks, asked), std::llround(seconds * kNanoseconds))
          << ranks << " ranks";
    }
  }
}

// N Tc / (Tc + Tcomm(N)), without overlap: one bucket, and the shares of a batch that grows with N.
TEST(Overlap, T10_SpeedUpIsWhatTheCommunicationLeaves) {
  constexpr std::int64_t kElems = 2520 * 8;  // whole chunks for 1 to 8 ranks
  const double compute = 2e-3;
  double last = 0;
  for (int n = 1; n <= 8; ++n) {
    const Timeline took = second_step(n, {{kElems, compute}}, true);
    EXPECT_EQ(took.exchange_end, took.start + exact(compute) + ring_time(kElems, n)) << n;
    const double speed_up = n * compute / between(took.start, took.exchange_end);
    const double wire = 2 * (n - 1) * kModelLinks.alpha +
                        2.0 * (n - 1) / n * 4 * static_cast<double>(kElems) * kModelLinks.beta;
    EXPECT_NEAR(speed_up, n * compute / (compute + wire), 1e-9 * n) << n;
    EXPECT_GT(speed_up, last);
    EXPECT_LE(speed_up, n);
    last = speed_up;
  }
}

// Waits for every bucket as soon as it is handed over, so that its exchange is under way while the
// rest of backward is still to come, whatever threads do.
class Waiting final : public StrategyAround {
 public:
  explicit Waiting(DataParallelStrategy& strategy)
      : StrategyAround(strategy), aggregator_(strategy.aggregator()) {}
  Status on_gradient(int index, TensorView grad, const Stream& stream) override {
    GW_TRY(inner().on_gradient(index, grad, stream));
    return aggregator_.arrived(index, true).error();
  }

 private:
  Aggregator& aggregator_;
};

Status train_traced(Communicator& communicator, std::int64_t steps, RankTrace& trace) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = steps;
  options.rank = communicator.rank();
  options.ranks = communicator.size();
  DataParallelOptions parallel;
  parallel.aggregator.bucket_bytes = 1;
  parallel.aggregator.on_span = trace.of_aggregator();
  GW_ASSIGN(Trainer trainer,
            Trainer::create(mlp(), digits(), options, DataParallelStrategy::demands_of(parallel)));
  trainer.tell(trace.of_trainer());
  const auto gradients = trainer.gradients();
  GW_ASSIGN(auto strategy,
            DataParallelStrategy::create(MeshGroups::of_replicas(communicator), Registry::builtin(),
                                         parallel, trainer.parameters(), gradients));
  Waiting waiting(*strategy);
  return trainer.run(waiting, nullptr).error();
}

// Spans of one stream nest or are apart.
void expect_nested(const RankTrace& trace) {
  std::map<int, std::vector<std::pair<std::int64_t, std::int64_t>>> streams;
  for (const TraceSpan& span : trace.spans()) {
    EXPECT_LE(span.begin, span.end);
    streams[span.stream].emplace_back(span.begin, -span.end);
  }
  for (auto& [stream, spans] : streams) {
    std::ranges::sort(spans);
    std::vector<std::int64_t> open;  // ends of those that are not over
    for (const auto& [begin, minus_end] : spans) {
      while (!open.empty() && open.back() <= begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(-minus_end, open.back()) << trace.streams()[static_cast<std::size_t>(stream)];
      }
      open.push_back(-minus_end);
    }
  }
}

TEST(Overlap, T8_TheTraceShowsBucketsUnderWayBeforeBackwardEnds) {
  constexpr std::int64_t kSteps = 3;
  RankTrace traces[] = {{0, kSteps}, {0, kSteps}};
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) {
    return train_traced(*communicator, kSteps, traces[communicator->rank()]);
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  for (const RankTrace& trace : traces) {
    expect_nested(trace);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      std::int64_t backward_end = 0;
      std::map<std::string_view, int> count;
      for (const TraceSpan& span : trace.spans()) {
        if (span.step != step) continue;
        ++count[span.category];
        if (span.category.starts_with("backward")) {
          backward_end = std::max(backward_end, span.end);
        }
      }
      int before = 0;
      for (const TraceSpan& span : trace.spans()) {
        before += span.step == step && span.category == "wire" && span.end < backward_end ? 1 : 0;
      }
      // Three linear layers of two tensors each; the first layer's gradients come last.
      EXPECT_EQ(before, 4) << step;
      EXPECT_EQ(count["wire"], 6);
      EXPECT_EQ(count["encode"], 6);
      EXPECT_EQ(count["decode"], 6);
      EXPECT_EQ(count["backward weights"], 3);
      EXPECT_EQ(count["optimizer"], 1);
      EXPECT_EQ(count["step"], 1);
    }
  }
}

// Of a rank whose optimizer lies in the host's arena.
struct Offloaded {
  std::uint64_t parameters = 0;
  RankTrace trace{0, 1};
};
Status train_offloaded(Communicator& communicator, const std::string& compressor, bool overlap,
                       Offloaded& into) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 5;
  options.rank = communicator.rank();
  options.ranks = communicator.size();
  options.optimizer.name = "adamw";
  options.offload = Offload::kOptimizer;
  options.offload_chunk = 100;
  options.offload_overlap = overlap;
  DataParallelOptions parallel;
  parallel.aggregator.compressor = compressor;
  parallel.aggregator.bucket_bytes = 1000;
  GW_ASSIGN(Trainer trainer,
            Trainer::create(mlp(), digits(), options, DataParallelStrategy::demands_of(parallel)));
  trainer.tell(into.trace.of_trainer());
  const auto gradients = trainer.gradients();
  GW_ASSIGN(auto strategy,
            DataParallelStrategy::create(MeshGroups::of_replicas(communicator), Registry::builtin(),
                                         parallel, trainer.parameters(), gradients));
  GW_TRY(trainer.run(*strategy, nullptr).error());
  into.parameters = trainer.parameter_hash().value();
  return {};
}

// Z10 over real aggregators: means that arrive bucket by bucket are stepped with one by one.
TEST(Overlap, Z10_TheHostsStepBesideTheExchangeHasTheSameBits) {
  for (const char* compressor : {"none", "qsgd:bits=8,ef=ef14", "topk:ratio=0.1,ef=ef14"}) {
    std::map<bool, std::uint64_t> parameters;
    for (const bool overlap : {true, false}) {
      Offloaded ranks[3];
      const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) {
        return train_offloaded(*communicator, compressor, overlap, ranks[communicator->rank()]);
      });
      for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
      for (const Offloaded& rank : ranks) {
        EXPECT_EQ(rank.parameters, ranks[0].parameters);
        expect_nested(rank.trace);
        EXPECT_EQ(std::ranges::count(rank.trace.streams(), "updates"), overlap ? 1 : 0);
      }
      parameters[overlap] = ranks[0].parameters;
    }
    EXPECT_EQ(parameters[true], parameters[false]) << compressor;
  }
}

TEST(Overlap, ATraceEndsAfterItsSteps) {
  RankTrace trace(0, 2);
  const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) {
    return train_traced(*communicator, 5, trace);
  });
  ASSERT_TRUE(statuses[0].ok()) << statuses[0].message();
  std::int64_t last = 0;
  for (const TraceSpan& span : trace.spans()) last = std::max(last, span.step);
  EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace gradwire::testing::overlap_test
