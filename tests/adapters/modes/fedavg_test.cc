// Federated averaging over real communicators.
#include "adapters/trainer/modes/fedavg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/adapters/modes/small_problem.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/aggregate_job.h"

namespace gradwire::testing::fedavg_test {
namespace {

double relative(const Flat& a, const Flat& b) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(error / norm);
}

TEST(FedAvg, P10_OneLocalStepIsSynchronousTraining) {
  for (const double momentum : {0.0, 0.9}) {
    const Flat wanted = accumulated(3, 20, 0.05, momentum, MomentumAt::kWorker);
    std::vector<Flat> got(3, mlp_start());
    const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) {
      const auto source = share(communicator->rank(), 3);
      return run_fedavg(*communicator, Registry::builtin(), *source,
                        {.steps = 20, .lr = 0.05, .momentum = momentum}, {.local_steps = 1},
                        got[static_cast<std::size_t>(communicator->rank())], {});
    });
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
    for (const Flat& params : got) {
      EXPECT_EQ(params, got[0]);
      EXPECT_LE(relative(params, wanted), 1e-6) << momentum;
    }
  }
}

// Rounds of 3, 3 and 1 steps, workers weighted 1 and 3, by hand.
TEST(FedAvg, AveragesLocalModelsByWeight) {
  Flat wanted = toy_start();
  std::int64_t t = 0;
  for (const std::int64_t end : {3, 6, 7}) {
    std::vector<Flat> local(2, wanted);
    for (; t < end; ++t) {
      for (int w = 0; w < 2; ++w) {
        Flat& own = local[static_cast<std::size_t>(w)];
        Flat g(kToyElems);
        ASSERT_TRUE(ToySource(w).gradient(own, t, g).has_value());
        for (std::size_t i = 0; i < kToyElems; ++i) own[i] -= 0.125F * g[i];
      }
    }
    for (std::size_t i = 0; i < kToyElems; ++i) {
      wanted[i] = 0.25F * local[0][i] + 0.75F * local[1][i];
    }
  }
  std::vector<Flat> got(2, toy_start());
  std::vector<ModeStep> steps;
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) {
    const int rank = communicator->rank();
    ToySource source(rank);
    return run_fedavg(*communicator, Registry::builtin(), source, {.steps = 7, .lr = 0.125},
                      {.local_steps = 3, .weight = rank == 0 ? 5.0 : 15.0},
                      got[static_cast<std::size_t>(rank)], [&](const ModeStep& step) {
                        if (rank == 0) steps.push_back(step);
                        return Status();
                      });
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(got[0], got[1]);
  EXPECT_LE(relative(got[0], wanted), 1e-6);
  ASSERT_EQ(steps.size(), 7U);
  for (std::size_t s = 0; s < 7; ++s) {
    EXPECT_EQ(steps[s].params.empty(), s != 2 && s != 5 && s != 6) << s;
  }
}

TEST(FedAvg, P10_WhoTakesPartIsDrawnAnewEveryRoundAndEvenly) {
  constexpr int kRanks = 7;
  std::vector<int> times(kRanks);
  std::vector<std::vector<int>> rounds;
  for (std::int64_t round = 0; round < 2000; ++round) {
    const std::vector<int> chosen = participants(11, round, kRanks, 0.4);  // 2.8 of them: 3
    ASSERT_EQ(chosen.size(), 3U);
    EXPECT_TRUE(std::ranges::is_sorted(chosen));
    EXPECT_EQ(std::ranges::adjacent_find(chosen), chosen.end());
    for (const int rank : chosen) ++times[static_cast<std::size_t>(rank)];
    rounds.push_back(chosen);
  }
  EXPECT_EQ(participants(11, 5, kRanks, 0.4), rounds[5]);
  EXPECT_NE(rounds[0], rounds[1]);
  // 2000 * 3 / 7 = 857 of each, sd 22: six of them.
  for (const int count : times) EXPECT_NEAR(count, 2000 * 3.0 / 7, 6 * 22.2);
  EXPECT_EQ(participants(1, 0, 4, 0.01).size(), 1U);
  EXPECT_EQ(participants(1, 0, 4, 1).size(), 4U);
}

// Those who are drawn, weighted by their samples; the others' models do not count.
TEST(FedAvg, P10_PartialParticipationAveragesThoseWhoTookPart) {
  constexpr int kRanks = 4;
  const std::vector<double> samples{10, 30, 20, 60};
  Flat wanted = toy_start();
  std::vector<double> losses;
  std::vector<Flat> direction(kRanks, Flat(kToyElems, 0.0F));
  for (std::int64_t round = 0; round < 6; ++round) {
    const std::vector<int> chosen = participants(9, round, kRanks, 0.5);
    ASSERT_EQ(chosen.size(), 2U);
    double all = 0;
    for (const int w : chosen) all += samples[static_cast<std::size_t>(w)];
    std::vector<double> sum(kToyElems);
    std::vector<double> round_losses(2);
    for (const int w : chosen) {
      Flat own = wanted;
      Flat& u = direction[static_cast<std::size_t>(w)];
      for (std::int64_t t = 2 * round; t < 2 * round + 2; ++t) {
        Flat g(kToyElems);
        const auto loss = ToySource(w).gradient(own, t, g);
        ASSERT_TRUE(loss.has_value());
        round_losses[static_cast<std::size_t>(t - 2 * round)] += loss.value() / 2;
        for (std::size_t i = 0; i < kToyElems; ++i) {
          u[i] = 0.5F * u[i] + g[i];
          own[i] -= 0.0625F * u[i];
        }
      }
      for (std::size_t i = 0; i < kToyElems; ++i) {
        sum[i] += samples[static_cast<std::size_t>(w)] / all * own[i];
      }
    }
    for (std::size_t i = 0; i < kToyElems; ++i) wanted[i] = static_cast<float>(sum[i]);
    losses.insert(losses.end(), round_losses.begin(), round_losses.end());
  }
  std::vector<Flat> got(kRanks, toy_start());
  std::vector<double> told;
  const auto statuses = on_ranks(kRanks, [&](std::unique_ptr<Communicator>& communicator) {
    const int rank = communicator->rank();
    ToySource source(rank);
    FedAvgOptions fedavg{.local_steps = 2, .weight = samples[static_cast<std::size_t>(rank)]};
    fedavg.participation = 0.5;
    fedavg.seed = 9;
    return run_fedavg(*communicator, Registry::builtin(), source,
                      {.steps = 12, .lr = 0.0625, .momentum = 0.5}, fedavg,
                      got[static_cast<std::size_t>(rank)], [&](const ModeStep& step) {
                        if (rank == 0) told.push_back(step.loss);
                        return Status();
                      });
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  for (const Flat& params : got) {
    EXPECT_EQ(params, got[0]);
    EXPECT_LE(relative(params, wanted), 1e-6);
  }
  ASSERT_EQ(told.size(), losses.size());
  for (std::size_t t = 0; t < told.size(); ++t) EXPECT_NEAR(told[t], losses[t], 1e-5 * losses[t]);
}

TEST(FedAvg, ChangesTravelUnderAnyCompressor) {
  for (const char* spec : {"topk:ratio=0.3,ef=ef14", "powersgd:rank=4,ef=ef14", "qsgd:bits=8",
                           "cast:bf16", "qsgd:bits=8,combine=sra"}) {
    std::vector<Flat> got(3, toy_start());
    const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) {
      ToySource source(communicator->rank());
      FedAvgOptions fedavg{.local_steps = 4};
      fedavg.aggregator.compressor = spec;
      return run_fedavg(*communicator, Registry::builtin(), source, {.steps = 200, .lr = 0.05},
                        fedavg, got[static_cast<std::size_t>(communicator->rank())], {});
    });
    double squares = 0;
    for (std::size_t i = 0; i < kToyElems; ++i) {
      const double mean =
          (static_cast<double>(toy_target(0, i)) + toy_target(1, i) + toy_target(2, i)) / 3;
      squares += (got[0][i] - mean) * (got[0][i] - mean);
    }
    for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(got[0], got[2]) << spec;
    EXPECT_LT(std::sqrt(squares / kToyElems), 0.1) << spec;
  }
}

TEST(FedAvg, RefusesWhatCannotBe) {
  for (const FedAvgOptions& bad :
       {FedAvgOptions{.local_steps = 0}, FedAvgOptions{.weight = 0},
        FedAvgOptions{.participation = 0}, FedAvgOptions{.participation = 1.5}}) {
    const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) {
      ToySource source(0);
      Flat params = toy_start();
      return run_fedavg(*communicator, Registry::builtin(), source, {.steps = 1}, bad, params, {});
    });
    EXPECT_EQ(statuses[0].code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace gradwire::testing::fedavg_test
