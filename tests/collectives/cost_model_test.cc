// Closed forms against the simulator, for every algorithm that has one; the bound; the choice.
#include "collectives/cost/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <string>

#include "collectives/cost/simulation.h"

namespace gradwire {

void PrintTo(ExactTime time, std::ostream* out) { *out << time.seconds() << " s"; }

namespace cost_model_test {
namespace {

constexpr LinkModel kLinks{.alpha = 13.7e-6,
                           .beta = 0.83e-9,
                           .gamma = 0.041e-9,
                           .alpha_intra = 1.9e-6,
                           .beta_intra = 0.17e-9};

constexpr std::array kCollectives{
    OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kAllToAll,
    OpKind::kBroadcast, OpKind::kBarrier,       OpKind::kReduce,    OpKind::kGather,
    OpKind::kScatter,   OpKind::kExclusiveScan, OpKind::kSend};

std::string text_of(const CostQuestion& question, std::string_view algorithm) {
  return std::string(schedule_name(question.collective)) + " by " + std::string(algorithm) + ", " +
         std::to_string(question.ranks) + " ranks on " + std::to_string(question.nodes) +
         " nodes, " + std::to_string(question.bytes) + " bytes, gap " +
         std::to_string(question.links.gap);
}

// Exact forms meet the simulator with ==, the others come near.
void compare(const CostQuestion& question, std::string_view algorithm) {
  const auto cost = cost_of(question, algorithm);
  if (!cost) return;
  const auto simulated = simulate_algorithm(question, algorithm);
  ASSERT_TRUE(simulated.has_value()) << simulated.error().message();
  const ExactTime predicted = time_of(cost->terms, question.links);
  const std::string text = text_of(question, algorithm);
  EXPECT_GE(simulated.value().time, lower_bound(question)) << text;
  if (cost->exact) {
    EXPECT_EQ(predicted, simulated.value().time) << text;
    EXPECT_EQ(cost->wire_bytes_max, simulated.value().wire_bytes_max) << text;
  } else {
    EXPECT_GT(predicted.seconds(), 0.5 * simulated.value().time.seconds()) << text;
    EXPECT_LT(predicted.seconds(), 2.0 * simulated.value().time.seconds()) << text;
  }
}

void compare_all(const CostQuestion& question) {
  for (const std::string_view algorithm : algorithms_of(question.collective)) {
    compare(question, algorithm);
  }
}

TEST(CostModel, R9_ClosedFormsMeetTheSimulatorOnOneLevel) {
  for (const OpKind collective : kCollectives) {
    for (int p = 1; p <= 17; ++p) {
      for (const std::int64_t bytes : {p * 4, p * 4096, 4 * 1009}) {
        for (const double gap : {0.0, 1.0}) {
          CostQuestion question{collective, p, p, bytes, 4, kLinks};
          question.links.gap = gap;
          compare_all(question);
          question.nodes = 1;
          compare_all(question);
        }
      }
    }
  }
}

TEST(CostModel, R9_ClosedFormsMeetTheSimulatorOnNodes) {
  for (const OpKind collective : kCollectives) {
    for (const auto& [p, nodes] : {std::pair{8, 2}, {8, 4}, {12, 3}, {16, 4}, {32, 4}, {9, 2}}) {
      for (const std::int64_t bytes : {p * 64, p * 65536}) {
        compare_all({collective, p, nodes, bytes, 4, kLinks});
      }
    }
  }
}

TEST(CostModel, TheBoundIsTheLogarithmOrThePort) {
  const ExactTime alpha = ExactTime::from_seconds(kLinks.alpha);
  const ExactTime beta = ExactTime::from_seconds(kLinks.beta);
  CostQuestion question{OpKind::kAllReduce, 8, 8, 8, 4, kLinks};
  EXPECT_EQ(lower_bound(question), 3 * alpha);
  question.ranks = question.nodes = 9;
  EXPECT_EQ(lower_bound(question), 4 * alpha);
  question.bytes = 900'000'000;
  EXPECT_EQ(lower_bound(question), 1'600'000'000 * beta);
  question.collective = OpKind::kBroadcast;
  EXPECT_EQ(lower_bound(question), 900'000'000 * beta);
  question.collective = OpKind::kAllGather;
  EXPECT_EQ(lower_bound(question), 800'000'000 * beta);
  // Start-ups that overlap: everybody is told at once.
  question.collective = OpKind::kBarrier;
  question.links.gap = 0;
  EXPECT_EQ(lower_bound(question), alpha);
}

TEST(CostModel, OneRankCostsNothing) {
  const CostQuestion question{OpKind::kAllReduce, 1, 1, 4096, 4, kLinks};
  EXPECT_EQ(time_of(cost_of(question, "ring")->terms, kLinks), ExactTime());
  EXPECT_EQ(lower_bound(question), ExactTime());
}

TEST(CostModel, UnknownAlgorithmsHaveNoClosedForm) {
  EXPECT_FALSE(cost_of({OpKind::kAllReduce, 8, 8, 64, 4, kLinks}, "star").has_value());
}

TEST(CostModel, CrossoversAreWhereTheChoiceChanges) {
  const CostQuestion question{OpKind::kAllReduce, 16, 16, 0, 4, kLinks};
  const auto found = crossovers(question, 64, 64 << 20);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().from_bytes, 64);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CostQuestion at = question;
    at.bytes = found[i].from_bytes;
    EXPECT_EQ(choose_algorithm(at), found[i].algorithm);
    if (i == 0) continue;
    EXPECT_LT(found[i - 1].from_bytes, found[i].from_bytes);
    EXPECT_NE(found[i - 1].algorithm, found[i].algorithm);
    at.bytes = found[i].from_bytes - 16 * 4;  // as near as is looked
    EXPECT_EQ(choose_algorithm(at), found[i - 1].algorithm);
  }
}

}  // namespace
}  // namespace cost_model_test
}  // namespace gradwire
