// Losses and running statistics: when they are averaged over ranks, and what that sends.
#include "trainer/step/step_averages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/adapters/training_runs.h"
#include "tests/trainer/test_strategies.h"

namespace gradwire::testing::step_averages_test {
namespace {

struct Step {
  double loss = 0;
  bool averaged = false;
  bool equal = false;  // the replicas, after it
  std::vector<double> earlier;
  std::uint64_t bytes = 0;
  std::uint64_t messages = 0;
};

struct Seen {
  std::vector<std::vector<Step>> steps;     // by rank
  std::vector<std::vector<float>> running;  // by rank, at the end
};

Status train_rank(const Training& training, Communicator& communicator, Seen& seen) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  GW_ASSIGN(Trainer trainer, make_trainer(training, communicator.rank()));
  GW_ASSIGN(const auto strategy,
            make_strategy(training, MeshGroups::of_replicas(communicator), trainer));
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  TransportStats before = communicator.transport_stats();
  const auto on_step = [&](const StepReport& report) -> Status {
    const TransportStats now = communicator.transport_stats();
    seen.steps[rank].push_back({report.loss, report.averaged, strategy->replicas_equal(),
                                report.earlier_losses, now.bytes_sent - before.bytes_sent,
                                now.messages_sent - before.messages_sent});
    before = now;
    return {};
  };
  GW_TRY(trainer.run(*strategy, on_step).error());
  for (const NamedTensor& buffer : trainer.buffers()) {
    const auto values = elements<float>(ConstTensorView(buffer.tensor));
    seen.running[rank].insert(seen.running[rank].end(), values.begin(), values.end());
  }
  return {};
}

Seen train(const Training& training) {
  Seen seen;
  seen.steps.resize(static_cast<std::size_t>(training.ranks));
  seen.running.resize(seen.steps.size());
  const auto statuses = on_ranks(training.ranks, [&](std::unique_ptr<Communicator>& communicator) {
    return train_rank(training, *communicator, seen);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return seen;
}

Training training_of(const std::string& optimizer) {
  Training training;
  training.optimizer = optimizer;
  training.model = &resnet();
  training.ranks = 3;
  training.steps = 13;
  training.lr = 1e-3;
  return training;
}

// Five steps alone are the whole of DiLoCo's saving: one message in each of them would make every
// step wait for the slowest rank. So it is with 0/1 Adam's local steps. A model with batch norm, so
// that running statistics would be sent, too.
class StepsAlone : public ::testing::TestWithParam<const char*> {};

TEST_P(StepsAlone, SendNothing) {
  const Seen seen = train(training_of(GetParam()));
  for (const std::vector<Step>& steps : seen.steps) {
    ASSERT_EQ(steps.size(), 13U);
    int alone = 0;
    for (std::size_t t = 0; t + 1 < steps.size(); ++t) {  // the last one is followed by a test
      EXPECT_EQ(steps[t].bytes == 0, !steps[t].equal) << t << ": " << steps[t].bytes << " bytes";
      EXPECT_EQ(steps[t].messages == 0, !steps[t].equal)
          << t << ": " << steps[t].messages << " messages";
      alone += steps[t].equal ? 0 : 1;
    }
    EXPECT_GE(alone, 4);
  }
}

TEST_P(StepsAlone, HaveTheirLossesAveragedWhenRanksMeet) {
  const Seen seen = train(training_of(GetParam()));
  std::vector<double> wanted;  // means of the steps alone, of what each rank said of them
  std::size_t averaged = 0;
  for (std::size_t t = 0; t < 13; ++t) {
    const Step& step = seen.steps[0][t];
    for (const std::vector<Step>& steps : seen.steps) EXPECT_EQ(steps[t].averaged, step.averaged);
    if (!step.averaged) {
      double sum = 0;
      for (const std::vector<Step>& steps : seen.steps) sum += steps[t].loss;
      wanted.push_back(sum * (1.0 / 3));
      continue;
    }
    ++averaged;
    for (const std::vector<Step>& steps : seen.steps) {
      EXPECT_EQ(steps[t].loss, step.loss) << t;
      ASSERT_EQ(steps[t].earlier.size(), wanted.size()) << t;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(steps[t].earlier[i], wanted[i], 1e-15) << t;
      }
    }
    wanted.clear();
  }
  EXPECT_TRUE(wanted.empty()) << "the last step's loss is averaged";
  EXPECT_LT(averaged, 10U);
  for (const std::vector<float>& running : seen.running) {
    EXPECT_FALSE(running.empty());
    EXPECT_EQ(running, seen.running[0]);
  }
}

// Steps 0 to 4 alone, 5 together, ...; ten together and three alone.
INSTANTIATE_TEST_SUITE_P(
    Methods, StepsAlone,
    ::testing::Values("diloco:inner_steps=6",
                      "zero_one_adam:freeze=3,local_doubles=1,local_most=4"),
    [](const auto& info) {
      return std::string(info.param).substr(0, std::string(info.param).find(':'));
    });

// Where ranks meet in every step its loss is on its way beside the gradients, and nobody waits for
// it before them.
struct Order final : OwnStrategy {
  Status finish(const Stream& /*stream*/) override {
    calls.push_back("gradients");
    return {};
  }
  Status sum(std::span<double> values, Scope scope) override {
    EXPECT_EQ(scope, Scope::kWorld);
    calls.push_back("sum of " + std::to_string(values.size()));
    return {};
  }
  // Of the losses over all ranks, and behind them of statistics over the ranks that share them.
  Status start_sums(std::span<const ScopedValues> sums) override {
    std::string call = "start of";
    for (const ScopedValues& one : sums) {
      EXPECT_EQ(one.scope, &one == sums.data() ? Scope::kWorld : Scope::kData);
      call += " " + std::to_string(one.values.size());
    }
    calls.push_back(call);
    return {};
  }
  Status finish_sums() override {
    calls.push_back("finish");
    return {};
  }
  std::vector<std::string> calls;
};

TEST(StepAverages, AreUnderWayBesideTheGradients) {
  Training training;
  training.ranks = 1;
  training.steps = 2;
  auto trainer = make_trainer(training, 0);
  ASSERT_TRUE(trainer.has_value());
  Order strategy;
  ASSERT_TRUE(trainer.value().run(strategy, nullptr).has_value());
  const std::vector<std::string> step{"start of 1", "gradients", "finish"};
  std::vector<std::string> wanted = step;
  wanted.insert(wanted.end(), step.begin(), step.end());
  wanted.emplace_back("sum of 2");  // the test's count and loss
  EXPECT_EQ(strategy.calls, wanted);
}

// Statistics join the loss: one exchange instead of two.
TEST(StepAverages, TakeRunningStatisticsAlong) {
  Training training;
  training.model = &resnet();
  training.ranks = 1;
  training.steps = 1;
  auto trainer = make_trainer(training, 0);
  ASSERT_TRUE(trainer.has_value());
  Order strategy;
  ASSERT_TRUE(trainer.value().run(strategy, nullptr).has_value());
  const std::vector<std::string> wanted{"start of 1 " + std::to_string(resnet().statistics_elems()),
                                        "gradients", "finish", "sum of 2"};
  EXPECT_EQ(strategy.calls, wanted);
}

}  // namespace
}  // namespace gradwire::testing::step_averages_test
