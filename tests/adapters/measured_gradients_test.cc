// Errors of averages, by hand; and that measuring changes nothing.
#include "adapters/trainer/measured_gradients.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"
#include "trainer/training.h"

namespace gradwire::testing {
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
    GW_ASSIGN(auto hook, DataParallelHook::create(*communicator, Registry::builtin(), options,
                                                  parameters, gradients));
    GW_ASSIGN(const auto measured, MeasuredGradients::create(*hook, *communicator, 1, gradients));
    GW_TRY(measured->before_step(0.1));
    GW_TRY(measured->on_gradient(0, gradients[0].tensor, {}));
    GW_TRY(measured->before_optimizer_step({}));
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
      GW_ASSIGN(Trainer trainer, Trainer::create(model.value(), data.value(), own));
      DataParallelOptions parallel;
      parallel.aggregator.compressor = "qsgd:bits=4,min_elems=0";
      const auto gradients = trainer.gradients();
      GW_ASSIGN(auto hook, DataParallelHook::create(*communicator, Registry::builtin(), parallel,
                                                    trainer.parameters(), gradients));
      GW_ASSIGN(const auto measured,
                MeasuredGradients::create(*hook, *communicator, every, gradients));
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
}  // namespace gradwire::testing
