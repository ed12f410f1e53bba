// The trainer over real communicators: N ranks are one process that accumulates N micro-batches.
#include "adapters/trainer/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"
#include "tests/trainer/training_problems.h"
#include "trainer/models.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::testing::data_parallel_test {
namespace {

using ::testing::ElementsAre;

TrainingOptions twenty_steps() {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 20;
  options.seed = 3;
  return options;
}

Flat one_process(TrainingOptions options, int micro_batches) {
  options.accumulate = micro_batches;
  SingleProcess alone;
  auto trainer = Trainer::create(mlp(), digits(), options);
  EXPECT_TRUE(trainer.has_value());
  EXPECT_TRUE(trainer.value().run(alone, [](const StepReport&) { return Status(); }).has_value());
  return flat(trainer.value().parameters());
}

struct RankRun {
  Status status;
  Flat params;
};

// What one rank does between being built and training; may spoil things on purpose.
using Before = Status (*)(DataParallelStrategy& strategy, Trainer& trainer, int rank);
Status nothing(DataParallelStrategy&, Trainer&, int) { return {}; }

std::vector<RankRun> many_ranks(TrainingOptions options, const DataParallelOptions& parallel,
                                int ranks, Before before = nothing) {
  std::vector<RankRun> runs(static_cast<std::size_t>(ranks));
  const auto outcomes = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    TrainingOptions own = options;
    own.rank = communicator->rank();
    own.ranks = ranks;
    GW_ASSIGN(Trainer trainer,
              Trainer::create(mlp(), digits(), own, DataParallelStrategy::demands_of(parallel)));
    const auto gradients = trainer.gradients();
    GW_ASSIGN(auto strategy, DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                                          Registry::builtin(), parallel,
                                                          trainer.parameters(), gradients));
    GW_TRY(before(*strategy, trainer, own.rank));
    const auto accuracy = trainer.run(*strategy, [](const StepReport&) { return Status(); });
    runs[static_cast<std::size_t>(own.rank)].params = flat(trainer.parameters());
    return accuracy.error();
  });
  for (std::size_t r = 0; r < runs.size(); ++r) runs[r].status = outcomes[r];
  return runs;
}

DataParallelOptions dense(const std::string& algorithm, std::int64_t bucket_bytes) {
  DataParallelOptions options;
  options.aggregator.algorithm = algorithm;
  options.aggregator.bucket_bytes = bucket_bytes;
  options.check_every = 1;
  return options;
}

TEST(DataParallel, EqualsMicroBatchesBitForBitInCanonicalOrder) {
  for (const int ranks : {2, 3, 4}) {
    for (const MomentumAt where : {MomentumAt::kServer, MomentumAt::kWorker}) {
      TrainingOptions options = twenty_steps();
      options.momentum_at = where;
      const Flat wanted = one_process(options, ranks);
      for (const std::int64_t bucket_bytes : {1000, 1 << 20}) {
        for (const RankRun& run : many_ranks(options, dense("canonical", bucket_bytes), ranks)) {
          ASSERT_TRUE(run.status.ok()) << run.status.message();
          EXPECT_EQ(run.params, wanted) << ranks << " ranks, buckets of " << bucket_bytes;
        }
      }
    }
  }
}

TEST(DataParallel, EqualsMicroBatchesToRoundingOnARing) {
  const Flat wanted = one_process(twenty_steps(), 4);
  double norm = 0;
  for (const float value : wanted) norm += static_cast<double>(value) * value;
  for (const RankRun& run : many_ranks(twenty_steps(), dense("ring", 4000), 4)) {
    ASSERT_TRUE(run.status.ok()) << run.status.message();
    double error = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const double difference = static_cast<double>(run.params[i]) - wanted[i];
      error += difference * difference;
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6);
  }
}

TEST(DataParallel, CompressedReplicasStayEqual) {
  for (const std::string spec :
       {"cast:bf16", "qsgd:bits=4", "topk:ratio=0.01,ef=ef14", "signsgd:ef=ef14",
        "signsgd:vote=majority", "powersgd:rank=2,ef=ef14"}) {
    DataParallelOptions parallel = dense("ring", 4000);
    parallel.aggregator.compressor = spec + (spec.find(':') == std::string::npos ? ":" : ",");
    parallel.aggregator.compressor += "min_elems=100";
    const auto runs = many_ranks(twenty_steps(), parallel, 3);
    for (const RankRun& run : runs) {
      ASSERT_TRUE(run.status.ok()) << spec << ": " << run.status.message();
      EXPECT_EQ(run.params, runs[0].params) << spec;
    }
  }
}

Status spoil_rank_2(DataParallelStrategy& strategy, Trainer& trainer, int rank) {
  GW_TRY(strategy.start(ReplicaStart::kCompare));
  if (rank == 2) elements<float>(trainer.parameters()[2].tensor)[5] += 1e-3F;
  return {};
}

TEST(DataParallel, ADriftedReplicaStopsTheJobNamingTheTensor) {
  DataParallelOptions parallel = dense("ring", 4000);
  parallel.check_every = 4;
  for (const RankRun& run : many_ranks(twenty_steps(), parallel, 3, spoil_rank_2)) {
    EXPECT_THAT(run.status, fails(Code::kRankMismatch, "step 4", "fc2.weight", "rank 2"));
  }
}

Status differ_then_broadcast(DataParallelStrategy& strategy, Trainer& trainer, int rank) {
  elements<float>(trainer.parameters()[1].tensor)[0] = static_cast<float>(rank);
  const Status compared = strategy.start(ReplicaStart::kCompare);
  EXPECT_THAT(compared, fails(Code::kRankMismatch, "first step", "fc1.bias", "ranks 1, 2"));
  GW_TRY(strategy.start(ReplicaStart::kBroadcast));
  EXPECT_EQ(elements<float>(trainer.parameters()[1].tensor)[0], 0.0F);
  return strategy.start(ReplicaStart::kCompare);
}

TEST(DataParallel, StartComparesOrBroadcasts) {
  for (const RankRun& run :
       many_ranks(twenty_steps(), dense("ring", 4000), 3, differ_then_broadcast)) {
    EXPECT_TRUE(run.status.ok()) << run.status.message();
  }
}

Status average_of_scalars(DataParallelStrategy& strategy, Trainer&, int rank) {
  std::vector<double> values{static_cast<double>(rank), 1e16, rank == 0 ? 1e16 : -1.0};
  GW_TRY(strategy.consensus().mean(values, Scope::kData));
  // The last tells a left fold: 1e16 - 1 rounds to 1e16 in double, twice; -1 - 1 + 1e16 does not.
  EXPECT_THAT(values, ElementsAre(1, 1e16 * 3 * (1.0 / 3), 1e16 * (1.0 / 3)));
  return strategy.consensus().mean({}, Scope::kData);
}

TEST(DataParallel, AveragesScalarsInDouble) {
  TrainingOptions options = twenty_steps();
  options.steps = 0;
  for (const RankRun& run : many_ranks(options, dense("ring", 4000), 3, average_of_scalars)) {
    EXPECT_TRUE(run.status.ok()) << run.status.message();
  }
}

}  // namespace
}  // namespace gradwire::testing::data_parallel_test
