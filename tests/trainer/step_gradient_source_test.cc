// A trainer whose gradients come from elsewhere: what it asks of the source, and makes of it.
#include "trainer/step/step_gradient_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/fails.h"
#include "tests/trainer/training_problems.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::step_gradient_source_test {
namespace {

using ::testing::ElementsAre;

class NoStatistics final : public RunningStatistics {
 public:
  std::vector<NamedTensor> buffers() override { return {}; }
  std::span<float> buffer_values() override { return {}; }
  Status take_statistics() override { return {}; }
  std::span<double> statistics() override { return {}; }
  void commit() override {}
  void discard_statistics() override {}
};

// What the trainer asked for.
struct Asked {
  std::vector<StepPlace> places;
  std::vector<std::pair<Range, std::int64_t>> shares;
  const TrainingOptions* options = nullptr;
};

// As a pipeline does: all micro-batches begin before the first ends, and they end in the other
// order. Every gradient of micro-batch m is m + 1.
class AllAtOnce final : public StepGradientSource {
 public:
  AllAtOnce(const SourceParts& parts, Asked& asked)
      : fold_(parts.fold),
        parameters_(static_cast<int>(parts.model.parameters().size())),
        accumulate_(parts.options.accumulate),
        asked_(asked) {}

  void read_through(LayerGate* gate) override { EXPECT_EQ(gate, nullptr); }
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) override {
    asked_.places.push_back(place);
    for (int micro = 0; micro < accumulate_; ++micro) {
      GW_ASSIGN(const std::span<float> grads, fold_.begin(micro));
      std::ranges::fill(grads, static_cast<float>(micro + 1));
    }
    for (int micro = accumulate_; micro-- > 0;) {
      for (int index = parameters_; index-- > 0;) {
        GW_ASSIGN(const bool done, fold_.ready(index, micro));
        EXPECT_EQ(done, micro == 0);  // the last one to end
        if (done) GW_TRY(ready(index, index));
      }
      GW_TRY(fold_.micro_batch_done(micro, place.loss_scale));
      GW_TRY(over(accumulate_ - micro));
    }
    return 0.25;
  }
  Result<Judgement> judge(Range share, std::int64_t most, LayerGate* /*gate*/) override {
    asked_.shares.emplace_back(share, most);
    return Judgement{.labels = 4, .correct = 9, .loss = 45};
  }
  std::vector<std::size_t> openings(Way way) const override {
    return way == Way::kForward ? std::vector<std::size_t>{0, 2} : std::vector<std::size_t>{2, 0};
  }
  RunningStatistics& running() override { return none_; }
  void tell(const OnTrainerSpan* /*told*/) override {}

 private:
  GradientFold& fold_;
  int parameters_;
  int accumulate_;
  Asked& asked_;
  NoStatistics none_;
};

SourceChoice all_at_once(Asked& asked, int at_a_time) {
  return {[&asked](const SourceParts& parts) -> Result<std::unique_ptr<StepGradientSource>> {
            EXPECT_EQ(parts.options.accumulate, 3);
            return std::unique_ptr<StepGradientSource>(std::make_unique<AllAtOnce>(parts, asked));
          },
          at_a_time};
}

TrainingOptions three_micro_batches() {
  TrainingOptions options;
  options.batch = 30;
  options.accumulate = 3;
  options.steps = 2;
  options.lr = 0.5;
  options.momentum = 0;
  return options;
}

TEST(StepGradientSource, IsWhereATrainersGradientsComeFrom) {
  Asked asked;
  auto made = Trainer::create(mlp(), digits(), three_micro_batches(), {}, all_at_once(asked, 2));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  Trainer& trainer = made.value();
  const std::vector<float> before = flat(trainer.parameters());
  std::vector<double> losses;
  SingleProcess alone;
  const auto accuracy = trainer.run(alone, [&](const StepReport& report) -> Status {
    losses.push_back(report.loss);
    return {};
  });
  ASSERT_TRUE(accuracy.has_value()) << accuracy.error().message();
  EXPECT_THAT(losses, ElementsAre(0.25, 0.25));
  // The mean of 1, 2 and 3 is 2; two steps of rate 0.5 are exact in the table's small values.
  const std::vector<float> after = flat(trainer.parameters());
  for (std::size_t i = 0; i < after.size(); ++i) {
    const float once = before[i] - 0.5F * 2.0F;
    ASSERT_NEAR(after[i], once - 0.5F * 2.0F, 1e-6) << i;
  }
  ASSERT_EQ(asked.places.size(), 2U);
  EXPECT_EQ(asked.places[0].step, 0);
  EXPECT_EQ(asked.places[1].step, 1);
  EXPECT_EQ(asked.places[1].loss_scale, 1);
  // One evaluation, of the whole test set; what it found is what the run returns.
  const auto samples = static_cast<std::int64_t>(digits().evaluation().size());
  ASSERT_EQ(asked.shares.size(), 1U);
  EXPECT_EQ(asked.shares[0].first.begin, 0);
  EXPECT_EQ(asked.shares[0].first.end, samples);
  EXPECT_EQ(asked.shares[0].second, samples);
  EXPECT_EQ(accuracy.value(), 9.0 / static_cast<double>(samples));
  EXPECT_EQ(trainer.test_loss(), 45.0 / static_cast<double>(samples));
  EXPECT_EQ(trainer.memory().forward.at(1).layer, 2U);
  EXPECT_EQ(trainer.memory().back.at(0).layer, 2U);
}

// The fold has memory for as many as the choice said.
TEST(StepGradientSource, SaysHowManyMicroBatchesAreUnderWay) {
  Asked asked;
  auto made = Trainer::create(mlp(), digits(), three_micro_batches(), {}, all_at_once(asked, 1));
  ASSERT_TRUE(made.has_value());
  SingleProcess alone;
  EXPECT_THAT(made.value().run(alone, nullptr).error(), fails(Code::kInternal, "micro-batch 2"));
}

TEST(StepGradientSource, ThatCannotBeMadeLeavesNoTrainer) {
  const SourceChoice none{[](const SourceParts&) -> Result<std::unique_ptr<StepGradientSource>> {
    return Status(Code::kUnsupported, "no stages here");
  }};
  EXPECT_THAT(Trainer::create(mlp(), digits(), three_micro_batches(), {}, none).error(),
              fails(Code::kUnsupported, "no stages here"));
}

}  // namespace
}  // namespace gradwire::step_gradient_source_test
