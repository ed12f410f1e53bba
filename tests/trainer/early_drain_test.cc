// Ranks at different steps: what they send beside, when they read it, and where they drain.
#include "trainer/step/early_drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trainer/strategy/single_process.h"

namespace gradwire::early_drain_test {
namespace {

using ::testing::ElementsAre;

// Two replicas of equal losses, one of which may be asked to end.
class Pair final : public Consensus {
 public:
  int ranks(Scope) const override { return 2; }
  Status start_asking(std::span<double> values) override {
    EXPECT_FALSE(under_way) << "asked twice";
    under_way = true;
    ++questions;
    values_ = values;
    said_ = asked_to_end;
    return {};
  }
  Result<bool> heard() override {
    if (!under_way) return false;
    under_way = false;
    for (double& value : values_) value *= 2;
    return said_;
  }

  bool asked_to_end = false;
  bool under_way = false;
  int questions = 0;

 private:
  std::span<double> values_;
  bool said_ = false;
};

class NoStatistics final : public RunningStatistics {
 public:
  std::vector<NamedTensor> buffers() override { return {}; }
  std::span<float> buffer_values() override { return {}; }
  Status take_statistics() override { return {}; }
  std::span<double> statistics() override { return {}; }
  void commit() override {}
  void discard_statistics() override {}
};

// One rank's steps: step i has loss i.
class Steps {
 public:
  // Returns steps until the next drain.
  std::int64_t next(std::int64_t known, std::int64_t to_drain, double loss) {
    const auto left = early.steps_left(averages, pair, known, to_drain);
    EXPECT_TRUE(left.has_value());
    for (const double late : averages.take_late()) known_losses.push_back(late);
    EXPECT_TRUE(averages.begin(strategy_, statistics_, loss, false, false).ok());
    return left.value();
  }

  Pair pair;
  EarlyDrain early;
  StepAverages averages;
  std::vector<double> known_losses;

 private:
  SingleProcess strategy_;
  NoStatistics statistics_;
};

TEST(EarlyDrain, RanksThatMeetInEachStepAskNothing) {
  Steps steps;
  for (std::int64_t known = 30; known > 0; --known) EXPECT_EQ(steps.next(known, 0, 1), known);
  EXPECT_EQ(steps.pair.questions, 0);
}

TEST(EarlyDrain, LossesAreHeardAPeriodAfterTheyWereSent) {
  Steps steps;
  constexpr std::int64_t kToDrain = 2;
  const std::int64_t period = EarlyDrain::period(kToDrain);
  for (std::int64_t step = 0; step < 3 * period + 1; ++step) {
    EXPECT_EQ(steps.next(1000 - step, kToDrain, static_cast<double>(step)), 1000 - step);
  }
  // Those of the first period were sent behind it.
  ASSERT_EQ(steps.known_losses.size(), static_cast<std::size_t>(2 * period));
  for (std::size_t step = 0; step < steps.known_losses.size(); ++step) {
    EXPECT_EQ(steps.known_losses[step], static_cast<double>(step));
  }
  EXPECT_EQ(steps.pair.questions, 4);
}

TEST(EarlyDrain, ARankThatIsAskedToEndBringsTheDrainForward) {
  Steps steps;
  constexpr std::int64_t kToDrain = 3;
  const std::int64_t period = EarlyDrain::period(kToDrain);
  std::int64_t step = 0;
  for (; step < period; ++step) {
    steps.pair.asked_to_end = step > 0;  // behind the first question
    EXPECT_EQ(steps.next(500 - step, kToDrain, 0), 500 - step);
  }
  for (; step < 2 * period; ++step) EXPECT_EQ(steps.next(500 - step, kToDrain, 0), 500 - step);
  for (std::int64_t left = kToDrain; left > 0; --left, ++step) {
    EXPECT_EQ(steps.next(500 - step, kToDrain, 0), left);
  }
  EXPECT_FALSE(steps.pair.under_way);
}

TEST(EarlyDrain, ALossThatIsNotFiniteDoesSoToo) {
  Steps steps;
  const std::int64_t period = EarlyDrain::period(1);
  for (std::int64_t step = 0; step < 2 * period; ++step) {
    EXPECT_EQ(steps.next(500 - step, 1, step == 1 ? NAN : 1), 500 - step);
  }
  EXPECT_EQ(steps.next(500 - 2 * period, 1, 1), 1);
}

TEST(EarlyDrain, ADrainThatIsKnownComesFirstAndLeavesNothingUnderWay) {
  Steps steps;
  std::vector<std::int64_t> left;
  for (const std::int64_t known : {3, 2, 1, 3, 2, 1}) left.push_back(steps.next(known, 2, 1));
  EXPECT_THAT(left, ElementsAre(3, 2, 1, 3, 2, 1));
  EXPECT_FALSE(steps.pair.under_way);
  EXPECT_EQ(steps.pair.questions, 2);
  EXPECT_EQ(steps.next(2, 2, 1), 2);  // too near to be brought forward
  EXPECT_EQ(steps.pair.questions, 2);
}

}  // namespace
}  // namespace gradwire::early_drain_test
