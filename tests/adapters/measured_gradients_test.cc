// Errors of averages, by hand; and that measuring changes nothing.
#include "adapters/trainer/measured_gradients.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/optimizers/method.h"
#include "adapters/trainer/sharded/sharded.h"
#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"
#include "trainer/training.h"

namespace gradwire::testing::measured_gradients_test {
namespace {

using Four = std::array<float, 4>;

// One step of two ranks with these gradients; what rank `asked` measured.
Result<std::optional<GradientErrors>> one_step(const std::string& compressor, const Four& first,
                                               const Four& second, int asked = 0) {
  std::optional<GradientErrors> errors;
  const auto outcomes = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    Four parameter{};
    Four gradient = communicator->rank() == 0 ? first : second;
    const std::vector<NamedTensor> parameters{{"p", view_of(std::span<float>(parameter))}};
    const std::vector<NamedTensor> gradients{{"p", view_of(std::span<float>(gradient))}};
    DataParallelOptions options;
    options.aggregator.compressor = compressor;
    GW_ASSIGN(auto strategy,
              DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                           Registry::builtin(), options, parameters, gradients));
    GW_ASSIGN(const auto measured,
              MeasuredGradients::create(*strategy, *communicator, 1, gradients));
    GW_TRY(measured->before_step(0.1));
    GW_TRY(measured->on_gradient(0, gradients[0].tensor, {}));
    GW_TRY(measured->finish({}));
    if (communicator->rank() == asked) errors = measured->errors();
    return {};
  });
  for (const Status& outcome : outcomes) GW_TRY(outcome);
  return errors;
}

TEST(MeasuredGradients, ErrorsByHand) {
  for (const int asked : {0, 1}) {
    // The largest of each rank: (4, 0, 0, 0) and (0, 0, -6, 0); exact mean (2, 1.5, -3, 0).
    const auto got = one_step("topk:ratio=0.25,ef=ef14,min_elems=0,dense_1d=false", {4, 1, 0, 0},
                              {0, 2, -6, 0}, asked);
    ASSERT_TRUE(got.has_value()) << got.error().message();
    ASSERT_TRUE(got.value().has_value());
    EXPECT_NEAR(got.value()->nmse, 2.25 / 15.25, 1e-7);
    EXPECT_NEAR(got.value()->exact_norm, std::sqrt(15.25), 1e-6);
    ASSERT_TRUE(got.value()->residual_norm.has_value());
    EXPECT_NEAR(*got.value()->residual_norm, std::sqrt((1.0 + 4.0) / 2), 1e-6);
  }
}

TEST(MeasuredGradients, BrainFloatResidualsAreRead) {
  const auto got = one_step("topk:ratio=0.25,ef=ef14,ef_storage=bf16,min_elems=0,dense_1d=false",
                            {4, 1, 0, 0}, {0, 2, -6, 0});
  ASSERT_TRUE(got.has_value()) << got.error().message();
  ASSERT_TRUE(got.value()->residual_norm.has_value());
  EXPECT_NEAR(*got.value()->residual_norm, std::sqrt(2.5), 1e-6);  // 1 and 2 are exact in bf16
}

TEST(MeasuredGradients, AnExactAverageHasNoErrorAndNoResidual) {
  const auto got = one_step("none", {4, 1, 0, 0}, {0, 2, -6, 0});
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got.value()->nmse, 0);  // sums of two small whole numbers are exact in any order
  EXPECT_FALSE(got.value()->residual_norm.has_value());
}

// Ranks that have a part of the average each come to the errors that whole averages have, and train
// on as if nobody measured.
class MeasuredShards : public ::testing::TestWithParam<int> {};

struct Measured {
  std::vector<std::optional<GradientErrors>> errors;  // by step
  std::uint64_t hash = 0;
};

Status measure_rank(Communicator& communicator, int stage, std::int64_t every, Measured& out) {
  static const DataSet data = std::move(load_data_set("digits", {})).value();
  static const Model<float> model =
      std::move(make_model<float>({"mlp", {16}}, data.shape(), 10)).value();
  TrainingOptions options;
  options.batch = 48;
  options.steps = 7;
  options.rank = communicator.rank();
  options.ranks = communicator.size();
  options.clip = 0.5;
  ShardedOptions sharded;
  sharded.stage = stage;
  sharded.parallel.aggregator.compressor = "qsgd:bits=4,min_elems=0,ef=ef14,ef_scale=none";
  sharded.parallel.aggregator.allow_unsafe = true;
  sharded.optimizer.momentum = 0.9;
  const Demands demands = stage == 0 ? DataParallelStrategy::demands_of(sharded.parallel)
                                     : ShardedStrategy::demands_of(sharded);
  GW_ASSIGN(Trainer trainer,
            Trainer::create(model, data, options, MeasuredGradients::demands_of(demands)));
  std::unique_ptr<DistributedStrategy> strategy;
  const auto gradients = trainer.gradients();
  if (stage == 0) {
    // Encoded once, as for a reduce-scatter.
    sharded.parallel.aggregator.compressor += ",combine=gather";
    GW_ASSIGN(strategy, DataParallelStrategy::create(MeshGroups::of_replicas(communicator),
                                                     Registry::builtin(), sharded.parallel,
                                                     trainer.parameters(), gradients));
  } else {
    GW_ASSIGN(strategy, ShardedStrategy::create(MeshGroups::of_replicas(communicator),
                                                Registry::builtin(), sharded, trainer.memory()));
  }
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  GW_ASSIGN(const auto measured,
            MeasuredGradients::create(*strategy, communicator, every, gradients));
  GW_TRY(trainer
             .run(*measured,
                  [&](const StepReport&) {
                    out.errors.push_back(measured->errors());
                    return Status();
                  })
             .error());
  GW_TRY(strategy->keeper().gather());
  GW_ASSIGN(out.hash, trainer.parameter_hash());
  return {};
}

std::vector<Measured> measured_ranks(int stage, std::int64_t every) {
  std::vector<Measured> all(3);
  const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) {
    return measure_rank(*communicator, stage, every,
                        all[static_cast<std::size_t>(communicator->rank())]);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

TEST_P(MeasuredShards, HaveTheErrorsOfWholeAverages) {
  const auto sharded = measured_ranks(GetParam(), 2);
  const auto whole = measured_ranks(0, 2);
  for (const Measured& rank : sharded) {
    ASSERT_EQ(rank.errors.size(), 7U);
    EXPECT_EQ(rank.hash, sharded[0].hash);
    for (std::size_t t = 0; t < 7; ++t) {
      ASSERT_EQ(rank.errors[t].has_value(), t % 2 == 0) << t;
      if (t % 2 == 1) continue;
      EXPECT_GT(rank.errors[t]->nmse, 1e-4) << t;
      EXPECT_EQ(rank.errors[t]->nmse, sharded[0].errors[t]->nmse) << t;
      ASSERT_TRUE(rank.errors[t]->residual_norm.has_value()) << t;
    }
    // The first step's gradients are the same, and so are their exact average and its length; codes
    // and sums are of shards in another order, so that the errors are close.
    EXPECT_EQ(rank.errors[0]->exact_norm, whole[0].errors[0]->exact_norm);
    EXPECT_NEAR(rank.errors[0]->nmse, whole[0].errors[0]->nmse, 0.5 * whole[0].errors[0]->nmse);
  }
  EXPECT_EQ(measured_ranks(GetParam(), 1000)[0].hash, sharded[0].hash);
}

INSTANTIATE_TEST_SUITE_P(Stages, MeasuredShards, ::testing::Values(1, 2, 3));

TEST(MeasuredGradients, ErrorsOfShardsByHand) {
  // The exact mean is (2, 1.5, -3, 0); each of two ranks has two elements of what came of it.
  std::vector<std::optional<GradientErrors>> seen(2);
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    struct Halves final : DistributedStrategy {
      Halves(DataParallelStrategy& of, std::span<const float> mean, int rank)
          : of(of), mean(mean), rank(rank) {}
      GradientExchange& exchange() override { return nothing; }
      ParameterKeeper& keeper() override { return of.keeper(); }
      Consensus& consensus() override { return of.consensus(); }
      MeshGroups& groups() override { return of.groups(); }
      Status start(ReplicaStart) override { return {}; }
      Status check_replicas(const std::string&) override { return {}; }
      void heed(Interruption* /*interruption*/) override {}
      AggregateStats stats() const override { return {}; }
      TrafficBytes traffic_bytes() const override { return {}; }
      std::vector<std::string> warnings() const override { return {}; }
      std::vector<NamedTensor> state() override { return {}; }
      Status load_state(std::span<const std::vector<NamedTensor>>) override { return {}; }
      void continue_from(std::int64_t) override {}
      Aggregator* gradient_averages() override { return of.gradient_averages(); }
      std::optional<GradientPart> average_part(int) override {
        return GradientPart{2 * rank,
                            const_view_of(mean.subspan(static_cast<std::size_t>(2 * rank), 2))};
      }
      DataParallelStrategy& of;
      GradientExchange nothing;
      std::span<const float> mean;
      int rank;
    };
    const int rank = communicator->rank();
    Four parameter{};
    Four gradient = rank == 0 ? Four{4, 1, 0, 0} : Four{0, 2, -6, 0};
    const std::vector<NamedTensor> parameters{{"p", view_of(std::span<float>(parameter))}};
    const std::vector<NamedTensor> gradients{{"p", view_of(std::span<float>(gradient))}};
    GW_ASSIGN(auto exact,
              DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                           Registry::builtin(), {}, parameters, gradients));
    const Four mean{2, 1, -3, 2};  // off by 0.5 on rank 0's half, by 2 on rank 1's
    Halves strategy(*exact, mean, rank);
    GW_ASSIGN(const auto measured,
              MeasuredGradients::create(strategy, *communicator, 1, gradients));
    GW_TRY(measured->on_gradient(0, gradients[0].tensor, {}));
    GW_TRY(measured->finish({}));
    seen[static_cast<std::size_t>(rank)] = measured->errors();
    return {};
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  for (const auto& errors : seen) {
    ASSERT_TRUE(errors.has_value());
    EXPECT_NEAR(errors->nmse, (0.25 + 4) / 15.25, 1e-7);
    EXPECT_NEAR(errors->exact_norm, std::sqrt(15.25), 1e-6);
  }
}

// Momenta and updates are no averages of gradients.
TEST(MeasuredGradients, AreNotOfMethodsThatSendSomethingElse) {
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const ParameterTable table{{"p", Shape::vector(4), 1, 0}};
    Four parameter{};
    Four gradient{};
    const auto gradients = named_tensors(table, gradient);
    GW_ASSIGN(const auto method,
              make_method(MeshGroups::of_replicas(*communicator), Registry::builtin(), {}, table,
                          named_tensors(table, parameter), gradients));
    return MeasuredGradients::create(*method, *communicator, 1, gradients).error();
  });
  for (const Status& status : statuses) EXPECT_EQ(status.code(), Code::kUnsupported);
}

TEST(MeasuredGradients, TrainingComputesTheSameBits) {
  const auto data = load_data_set("digits", {});
  ASSERT_TRUE(data.has_value());
  const auto model = make_model<float>({"mlp", {16}}, data.value().shape(), 10);
  ASSERT_TRUE(model.has_value());
  TrainingOptions options;
  options.batch = 48;
  options.steps = 12;
  const auto train = [&](std::int64_t every) {
    std::array<std::uint64_t, 2> hashes{};
    std::array<int, 2> measurements{};
    const auto outcomes = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) -> Status {
      const auto rank = static_cast<std::size_t>(communicator->rank());
      TrainingOptions own = options;
      own.rank = communicator->rank();
      own.ranks = 2;
      DataParallelOptions parallel;
      parallel.aggregator.compressor = "qsgd:bits=4,min_elems=0";
      const Demands demands =
          MeasuredGradients::demands_of(DataParallelStrategy::demands_of(parallel));
      GW_ASSIGN(Trainer trainer, Trainer::create(model.value(), data.value(), own, demands));
      const auto gradients = trainer.gradients();
      GW_ASSIGN(auto strategy, DataParallelStrategy::create(MeshGroups::of_replicas(*communicator),
                                                            Registry::builtin(), parallel,
                                                            trainer.parameters(), gradients));
      GW_ASSIGN(const auto measured,
                MeasuredGradients::create(*strategy, *communicator, every, gradients));
      GW_ASSIGN(const double accuracy, trainer.run(*measured, [&](const StepReport&) {
        measurements[rank] += measured->errors() ? 1 : 0;
        return Status();
      }));
      (void)accuracy;
      hashes[rank] = trainer.parameter_hash().value();
      return {};
    });
    for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
    EXPECT_EQ(hashes[0], hashes[1]);
    EXPECT_EQ(measurements[0], every > 12 ? 1 : (12 + every - 1) / every);
    return hashes[0];
  };
  const std::uint64_t once = train(1000);
  EXPECT_EQ(train(1), once);
  EXPECT_EQ(train(5), once);
}

}  // namespace
}  // namespace gradwire::testing::measured_gradients_test
