// What data parallelism and compression promise a training run, by row of the acceptance table: T3
// to T5 and T8 over real communicators, C1 to C6 by exact examples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/trainer/test_strategies.h"
#include "tests/trainer/training_problems.h"
#include "trainer/models.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::testing::rows_test {
namespace {

using ::testing::ElementsAre;

TrainingOptions options_for(const std::string& optimizer, std::int64_t steps) {
  TrainingOptions options;
  options.batch = 96;
  options.steps = steps;
  options.seed = 3;
  options.optimizer.name = optimizer;
  options.optimizer.weight_decay = optimizer == "adamw" ? 0.1 : 0;
  options.lr = optimizer == "adamw" ? 0.003 : 0.05;
  return options;
}

// What is trained.
struct Problem {
  const Model<float>& model;
  const DataSet& data;
};
Problem digits_mlp() { return {mlp(), digits()}; }
// A transformer of one block on a made-up text.
Problem small_gpt() {
  static const DataSet kText = [] {
    DataOptions options;
    options.text.context = 16;
    return std::move(load_data_set("grammar", {}, options)).value();
  }();
  static const Model<float> kModel = [] {
    ModelOptions options{"gpt"};
    options.width = 16;
    options.layers = 1;
    options.heads = 2;
    return std::move(make_model<float>(options, kText.shape(), kText.classes())).value();
  }();
  return {kModel, kText};
}

Flat one_worker(TrainingOptions options, int micro_batches, const Problem& on = digits_mlp()) {
  options.accumulate = micro_batches;
  SingleProcess alone;
  auto trainer = Trainer::create(on.model, on.data, options);
  EXPECT_TRUE(trainer.value().run(alone, nullptr).has_value());
  return flat(trainer.value().parameters());
}

// Every rank's parameters after the run.
std::vector<Flat> ranks_of(TrainingOptions options, int ranks, const std::string& algorithm,
                           const std::string& compressor = "none",
                           const Problem& on = digits_mlp()) {
  std::vector<Flat> params(static_cast<std::size_t>(ranks));
  const auto statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    TrainingOptions own = options;
    own.rank = communicator->rank();
    own.ranks = ranks;
    DataParallelOptions parallel;
    parallel.aggregator.algorithm = algorithm;
    parallel.aggregator.compressor = compressor;
    parallel.aggregator.bucket_bytes = 4000;
    parallel.aggregator.allow_unsafe = true;
    parallel.check_every = 1;
    GW_ASSIGN(Trainer trainer,
              Trainer::create(on.model, on.data, own, DataParallelStrategy::demands_of(parallel)));
    const auto gradients = trainer.gradients();
    GW_ASSIGN(auto strategy, DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                                          Registry::builtin(), parallel,
                                                          trainer.parameters(), gradients));
    const auto ran = trainer.run(*strategy, nullptr);
    params[static_cast<std::size_t>(own.rank)] = flat(trainer.parameters());
    return ran.error();
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(status.ok()) << compressor << ": " << status.message();
  }
  return params;
}

double relative(const Flat& a, const Flat& b) {
  double error = 0;
  double length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += difference * difference;
    length += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return std::sqrt(error / length);
}

TEST(Rows, T3_DataParallelEqualsAccumulation) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    for (const int ranks : {2, 4, 8}) {
      const TrainingOptions options = options_for(optimizer, 20);
      const Flat wanted = one_worker(options, ranks);
      for (const Flat& params : ranks_of(options, ranks, "canonical")) {
        EXPECT_EQ(params, wanted) << optimizer << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(Rows, T3_DataParallelEqualsAccumulationOfATransformer) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    for (const int ranks : {2, 4, 8}) {
      TrainingOptions options = options_for(optimizer, 20);
      options.batch = 32;
      options.shuffle = Shuffle::kUniform;
      const Flat wanted = one_worker(options, ranks, small_gpt());
      for (const Flat& params : ranks_of(options, ranks, "canonical", "none", small_gpt())) {
        EXPECT_EQ(params, wanted) << optimizer << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(Rows, T3_ARingIsWithinAMillionth) {
  const TrainingOptions options = options_for("sgd", 20);
  for (const int ranks : {4, 8}) {
    EXPECT_LE(relative(one_worker(options, ranks), ranks_of(options, ranks, "ring")[0]), 1e-6);
  }
}

TEST(Rows, T3_TwoRanksAreBitwiseUnderEveryAlgorithm) {
  const TrainingOptions options = options_for("sgd", 20);
  const Flat wanted = one_worker(options, 2);
  for (const std::string algorithm : {"auto", "ring", "canonical"}) {
    for (const Flat& params : ranks_of(options, 2, algorithm)) EXPECT_EQ(params, wanted);
  }
}

TEST(Rows, T3_OneFullBatchIsTheSameToRounding) {
  EXPECT_LE(relative(one_worker(options_for("sgd", 1), 1), one_worker(options_for("sgd", 1), 4)),
            1e-6);
  EXPECT_LE(
      relative(one_worker(options_for("sgd", 100), 1), one_worker(options_for("sgd", 100), 4)),
      1e-4);
}

// With the keys without which some methods are refused, and small tensors too.
std::string spec_of(const std::string& method) {
  if (method == "none") return method;
  if (method == "dgc" || method == "signum") return method + ":seed=1";  // take every tensor
  const bool chooses = method == "topk" || method == "randomk" || method == "cltk";
  const std::string keys = chooses                 ? "ratio=0.05,"
                           : method == "threshold" ? "tau=0.001,"
                           : method == "cast"      ? "type=bf16,"
                           : method == "qsgd"      ? "bits=4,"
                                                   : "";
  return method + ":" + keys + "min_elems=100";
}

// The strategy compares all parameters after every step, and names the tensor that differs.
TEST(Rows, T4_ReplicasAreEqualAfterEveryStepUnderEveryCompressor) {
  int ran = 0;
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    const auto params = ranks_of(options_for("sgd", 4), 3, "ring", spec_of(method.name));
    for (const Flat& each : params) EXPECT_EQ(each, params[0]) << method.name;
    ++ran;
  }
  EXPECT_GE(ran, 20);
}

// Watches what its rank has sent between a step's start and its first gradient.
class FirstGradient : public StrategyAround {
 public:
  FirstGradient(Communicator& communicator, DataParallelStrategy& strategy)
      : StrategyAround(strategy), communicator_(communicator) {}
  Status before_step(double rate) override {
    GW_TRY(inner().before_step(rate));
    at_start_ = communicator_.transport_stats().bytes_sent;
    seen_ = false;
    return {};
  }
  Status on_gradient(int index, TensorView grad, const Stream& stream) override {
    if (!seen_) before_first_ += communicator_.transport_stats().bytes_sent - at_start_;
    seen_ = true;
    return inner().on_gradient(index, grad, stream);
  }
  Status finish(const Stream& stream) override {
    GW_TRY(inner().finish(stream));
    in_all_ += communicator_.transport_stats().bytes_sent - at_start_;
    return {};
  }
  std::uint64_t before_first() const { return before_first_; }
  std::uint64_t in_all() const { return in_all_; }

 private:
  Communicator& communicator_;
  std::uint64_t at_start_ = 0;
  std::uint64_t before_first_ = 0;
  std::uint64_t in_all_ = 0;
  bool seen_ = false;
};

TEST(Rows, T5_NothingIsSentBeforeTheFirstGradient) {
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    TrainingOptions own = options_for("sgd", 5);
    own.rank = communicator->rank();
    own.ranks = 2;
    DataParallelOptions parallel;
    parallel.aggregator.algorithm = "ring";
    parallel.check_every = 0;
    GW_ASSIGN(Trainer trainer,
              Trainer::create(mlp(), digits(), own, DataParallelStrategy::demands_of(parallel)));
    const auto gradients = trainer.gradients();
    GW_ASSIGN(auto strategy, DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                                          Registry::builtin(), parallel,
                                                          trainer.parameters(), gradients));
    FirstGradient watch(*communicator, *strategy);
    const auto ran = trainer.run(watch, nullptr);
    EXPECT_EQ(watch.before_first(), 0u);
    EXPECT_GE(watch.in_all(), 5 * flat(trainer.parameters()).size() * sizeof(float));
    return ran.error();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// T8, first half: bits do not depend on what travels while backward runs. One bucket of everything
// can only start when backward has ended.
TEST(Rows, T8_OverlapChangesNoBit) {
  const auto run = [](std::int64_t bucket_bytes) {
    std::vector<Flat> params(3);
    const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) -> Status {
      TrainingOptions own = options_for("sgd", 10);
      own.rank = communicator->rank();
      own.ranks = 3;
      DataParallelOptions parallel;
      parallel.aggregator.algorithm = "canonical";
      parallel.aggregator.bucket_bytes = bucket_bytes;
      GW_ASSIGN(Trainer trainer,
                Trainer::create(mlp(), digits(), own, DataParallelStrategy::demands_of(parallel)));
      const auto gradients = trainer.gradients();
      GW_ASSIGN(auto strategy, DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                                            Registry::builtin(), parallel,
                                                            trainer.parameters(), gradients));
      const auto ran = trainer.run(*strategy, nullptr);
      params[static_cast<std::size_t>(own.rank)] = flat(trainer.parameters());
      return ran.error();
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
    return params;
  };
  EXPECT_EQ(run(512), run(1 << 24));
}

// One tensor on one rank for one step; the job's gradient is a formula of the element.
Job alone(const std::string& compressor, Shape shape, float (*value)(std::int64_t)) {
  Job job;
  job.compressor = compressor + ",min_elems=0,dense_1d=false";
  job.tensors = {{"w", shape}};
  job.allow_unsafe = true;
  job.gradient = [value](const std::string&, int, int, std::int64_t e) { return value(e); };
  return job;
}

TEST(Rows, C1_QuantisationTakesItsBitsAndAHundredthMore) {
  for (const int bits : {2, 4, 8}) {
    for (const std::string method : {"absmax", "minmax", "qsgd"}) {
      const auto made =
          Registry::builtin().make(method + ":bucket=4096,bits=" + std::to_string(bits));
      ASSERT_TRUE(made.has_value()) << made.error().message();
      constexpr std::int64_t kElems = 64 * 1024;
      const auto bytes = static_cast<double>(
          made.value()->max_payload_bytes(Shape::vector(kElems), DType::kF32, 0));
      const double codes = static_cast<double>(kElems) * bits / 8;
      EXPECT_GE(bytes, codes) << method << " " << bits;
      EXPECT_LE(bytes, 1.01 * codes) << method << " " << bits;
    }
  }
}

TEST(Rows, C2_TopTwoOfFour) {
  const JobOutcome outcome = run_job(alone("topk:k=2", Shape::vector(4), [](std::int64_t e) {
    constexpr float kValues[] = {2, -3, 1, -4};
    return kValues[e];
  }));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_THAT(outcome.means[0], ElementsAre(0, -3, 0, -4));
}

TEST(Rows, C3_SignsOfFour) {
  const JobOutcome outcome =
      run_job(alone("signsgd:scale=none", Shape::vector(4), [](std::int64_t e) {
        constexpr float kValues[] = {-0.2F, 0.1F, 0.3F, -1.8F};
        return kValues[e];
      }));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_THAT(outcome.means[0], ElementsAre(-1, 1, 1, -1));
  EXPECT_EQ(outcome.stats[0].payload_bytes, 1u);
}

// Rank two: e / 18 is the row, e % 18 the column.
float rank_two(std::int64_t e) {
  const auto row = static_cast<float>(e / 18);
  const auto column = static_cast<float>(e % 18);
  return std::cos(row) * (1 + 0.1F * column) + std::sin(2 * row) * (column - 8.5F) * 0.2F;
}

TEST(Rows, C4_LowRankMatricesComeBackAndPayloadsAreThinFactors) {
  const JobOutcome outcome = run_job(alone("powersgd:rank=2", Shape::matrix(24, 18), rank_two));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  Flat wanted;
  for (std::int64_t e = 0; e < 24L * 18; ++e) wanted.push_back(rank_two(e));
  EXPECT_LE(relative(wanted, outcome.means[0]), 1e-5);
  EXPECT_EQ(outcome.stats[0].payload_bytes, 2u * (24 + 18) * sizeof(float));
}

TEST(Rows, C5_WhatWasAppliedAndWhatIsLeftIsAllThatThereWas) {
  for (const std::string spec :
       {"topk:ratio=0.01,ef=ef14", "signsgd:ef=ef14", "signsgd:ef=ef14,combine=sra",
        "powersgd:rank=2,ef=ef14", "qsgd:bits=4,ef=ef14"}) {
    Job job;
    job.compressor = spec + ",min_elems=0,dense_1d=false";
    job.tensors = {{"a", Shape::matrix(40, 30)}, {"b", Shape::vector(17)}};
    job.ranks = 3;
    job.steps = 25;
    job.allow_unsafe = true;
    const JobOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.status.ok()) << spec << ": " << outcome.status.message();
    const std::vector<double> left = average_residual(job, outcome);
    double error = 0;
    double length = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double all = outcome.sum_of_averages[i];
      const double seen = outcome.sum_of_means[i] + left[i];
      error += (all - seen) * (all - seen);
      length += all * all;
    }
    EXPECT_LE(std::sqrt(error / length), 1e-5) << spec;
  }
}

// C6: T4 over more ranks than two, and a single rank's compressor still compresses.
TEST(Rows, C6_OneRankIsCompressedToo) {
  const TrainingOptions options = options_for("sgd", 4);
  const std::string spec = "topk:ratio=0.05,min_elems=100";
  EXPECT_NE(ranks_of(options, 1, "ring", spec)[0], ranks_of(options, 1, "ring")[0]);
  const auto params = ranks_of(options, 4, "ring", spec);
  for (const Flat& each : params) EXPECT_EQ(each, params[0]);
}

}  // namespace
}  // namespace gradwire::testing::rows_test
