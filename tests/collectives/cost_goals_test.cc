// What the model says at scale: the goals D2 to D6 for 100 MB gradients on 1 and 10 Gbit/s and for
// small messages, as properties of the simulation. Links: 13 us to start a message, what TCP/IP
// leaves of the wire, 25 GB/s of reduction, 35 GB/s of codec.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "apps/sim/compressed_cost.h"
#include "collectives/cost/choice.h"

namespace gradwire::cost_goals_test {
namespace {

constexpr std::int64_t kGradient = 100'000'000;  // bytes: 25 million fp32

LinkModel links(double gbit, double gap) {
  const double beta = 8 / (0.956 * gbit * 1e9);
  return {.alpha = 13e-6,
          .beta = beta,
          .gamma = 1 / 25e9,
          .alpha_intra = 13e-6,
          .beta_intra = beta,
          .gap = gap};
}

CostQuestion all_reduce(int p, std::int64_t bytes, double gbit, double gap = 1) {
  return {OpKind::kAllReduce, p, p, bytes, 4, links(gbit, gap), 0};
}

double seconds(const CostQuestion& question, std::string_view algorithm) {
  return cost_of(question, algorithm).value().time.seconds();
}

double chosen(const CostQuestion& question) {
  return seconds(question, choose_algorithm(question));
}

double compressed(const CostQuestion& question, CompressedExchange exchange, std::int64_t payload) {
  return compressed_cost({.raw = question, .exchange = exchange, .payload_bytes = {payload}})
      .value()
      .seconds;
}

void expect_near_best_simulated(const CostQuestion& question) {
  double best = INFINITY;
  double taken = 0;
  for (const std::string_view algorithm : algorithms_of(question.collective)) {
    const auto simulation = cost_of(question, algorithm);
    ASSERT_TRUE(simulation.has_value()) << simulation.error().message();
    const double time = simulation.value().time.seconds();
    best = std::min(best, time);
    if (algorithm == choose_algorithm(question)) taken = time;
  }
  EXPECT_LE(taken, 1.05 * best) << question.ranks << " " << question.bytes << " "
                                << question.links.gap << " " << choose_algorithm(question);
}

TEST(CostGoals, D2_AutoIsNearTheBestSimulated) {
  for (const int p : {2, 3, 4, 8, 16, 24}) {
    for (const std::int64_t bytes : {p * 1024, p * 65536, p * 1048576}) {
      for (const double gap : {0.0, 1.0}) {
        expect_near_best_simulated(all_reduce(p, bytes, 10, gap));
      }
    }
  }
}

// Bursts of unequal chunks fall out of step, which no textbook's form says.
TEST(CostGoals, D2_AutoIsNearTheBestSimulatedWhereRanksDoNotDivide) {
  for (const int p : {3, 7, 24, 50, 100, 150}) {
    const std::int64_t over = 4 * (p / 2);  // bytes
    for (const std::int64_t bytes : {p * std::int64_t{1024}, p * std::int64_t{1048576}}) {
      expect_near_best_simulated(all_reduce(p, bytes + over, 10, 0));
    }
  }
}

// What a simulation takes is its steps; seconds are the machine's.
TEST(CostGoals, D7_AThousandRanksTakeFewSteps) {
  const std::int64_t odd = std::int64_t{100} << 20;  // that 1000 ranks do not divide
  for (const std::int64_t bytes : {kGradient, odd}) {
    std::int64_t steps = 0;
    for (const std::string_view algorithm : algorithms_of(OpKind::kAllReduce)) {
      const auto simulation = cost_of(all_reduce(1000, bytes, 10, 0), algorithm);
      ASSERT_TRUE(simulation.has_value()) << algorithm;
      EXPECT_FALSE(simulation.value().is_estimate) << algorithm;
      steps += simulation.value().steps;
    }
    EXPECT_GT(steps, 0);
    EXPECT_LE(steps, kMostStepsOfAlgorithm) << bytes;  // of all algorithms together
  }
}

// Unlike nodes have nothing to stand for, and 4100 ranks too many messages.
TEST(CostGoals, D7_UnlikeNodesAreTakenAsAlike) {
  CostQuestion question = all_reduce(4100, kGradient, 10);
  question.nodes = 500;
  const auto ring = cost_of(question, "ring");
  ASSERT_TRUE(ring.has_value());
  EXPECT_TRUE(ring.value().is_estimate);
  question.ranks = 4500;
  EXPECT_NEAR(ring.value().time.seconds(), seconds(question, "ring"), 1e-3);
}

TEST(CostGoals, D3_DenseIsNearTheBoundAt4096Ranks) {
  for (const double gap : {0.0, 1.0}) {
    const CostQuestion question = all_reduce(4096, kGradient, 10, gap);
    const double bound = std::max(12 * 13e-6, 2 * 4095.0 / 4096 * kGradient * question.links.beta);
    EXPECT_NEAR(lower_bound(question).seconds(), bound, 1e-6 * bound);
    EXPECT_LE(chosen(question), 1.06 * bound);
    EXPECT_GE(seconds(question, "ring"), 1.5 * bound);
  }
  // The plain ring is left before 256 ranks.
  EXPECT_NE(choose_algorithm(all_reduce(256, kGradient, 10)), "ring");
}

TEST(CostGoals, D4_SmallMessagesAreFiftyTimesFasterThanTheRing) {
  for (const double gap : {0.0, 1.0}) {
    const CostQuestion question = all_reduce(1024, 64 << 10, 10, gap);
    EXPECT_GE(seconds(question, "ring") / chosen(question), 50);
  }
}

// Where the messages of a hop share their start-up, as both hops send to everybody at once.
TEST(CostGoals, D5_TwoHopQuantisersBeatTheBestDense) {
  for (const auto& [bits, gain] : {std::pair{8, 3.8}, std::pair{4, 7.0}}) {
    const std::int64_t payload = kGradient / 32 * bits;
    for (const int p : {64, 256, 1024, 4096}) {
      const CostQuestion question = all_reduce(p, kGradient, 10, 0);
      EXPECT_GE(chosen(question) / compressed(question, CompressedExchange::kTwoHop, payload), gain)
          << bits << " bits, " << p << " ranks";
    }
    const double at64 =
        compressed(all_reduce(64, kGradient, 10, 0), CompressedExchange::kTwoHop, payload);
    const double at4096 =
        compressed(all_reduce(4096, kGradient, 10, 0), CompressedExchange::kTwoHop, payload);
    EXPECT_LE(at4096 / at64, 1.03);
  }
}

TEST(CostGoals, D6_SparseSplittingIsFlatAndGatheringIsNot) {
  const std::int64_t payload = 2 * kGradient / 100;  // 1 %, values and indices
  for (const double gbit : {1.0, 10.0}) {
    const auto split = [&](int p) {
      return compressed(all_reduce(p, kGradient, gbit, 0), CompressedExchange::kReselect, payload);
    };
    for (int p = 8; p <= 4096; p *= 2) EXPECT_LE(split(p), 1.35 * split(4)) << p << " " << gbit;
  }
  // Gathering wins only while p * density <= 2.
  const auto gather = [&](int p) {
    return compressed(all_reduce(p, kGradient, 10, 0), CompressedExchange::kGather, payload);
  };
  EXPECT_LT(gather(64), chosen(all_reduce(64, kGradient, 10, 0)));
  EXPECT_GT(gather(256), chosen(all_reduce(256, kGradient, 10, 0)));
  EXPECT_NEAR(gather(1024), 1023 * payload * links(10, 0).beta, 0.02);
}

TEST(CostGoals, LowRankFactorsGoThroughTheDenseAllReduce) {
  // Rank 4 of a 5000 x 5000 matrix: two factors of 5000 x 4, one after the other.
  const CostQuestion question = all_reduce(64, kGradient, 10, 0);
  const CompressedCost cost = compressed_cost({.raw = question,
                                               .exchange = CompressedExchange::kSum,
                                               .payload_bytes = {80'000, 80'000}})
                                  .value();
  const double wire = 2 * chosen(all_reduce(64, 80'000, 10, 0));
  EXPECT_DOUBLE_EQ(cost.wire_seconds, wire);
  EXPECT_DOUBLE_EQ(cost.seconds, wire + 3.0 * kGradient / 35e9);
}

}  // namespace
}  // namespace gradwire::cost_goals_test
