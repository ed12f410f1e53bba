// Simulated costs against closed forms, for every algorithm that has one; the bound; the choice.
#include "collectives/cost/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string>

#include "collectives/cost/choice.h"
#include "tests/reference/cost_reference.h"

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
  ASSERT_TRUE(cost.has_value()) << cost.error().message();
  const std::string text = text_of(question, algorithm);
  const ExactTime time = cost.value().time;
  EXPECT_GE(time, lower_bound(question)) << text;
  EXPECT_GE(1.000001 * time.seconds(), least_time(question, algorithm).seconds()) << text;
  const std::int64_t cut = cost.value().segment_bytes;
  const std::int64_t bytes = elems_of(question) * question.elem_bytes;
  const auto form =
      cost_reference::form_of(question, algorithm, cut == 0 ? 1 : (bytes + cut - 1) / cut);
  if (!form) return;
  const ExactTime predicted = cost_reference::time_of(form->terms, question.links);
  // A chain's form has all cuts in flight at once. The executor has four, which keep ports busy
  // where a start-up does.
  const bool keeps_up = cut == 0 || question.links.gap == 1;
  if (form->exact && keeps_up) {
    EXPECT_EQ(predicted, time) << text;
    EXPECT_EQ(form->wire_bytes_max, cost.value().wire_bytes_max) << text;
  } else {
    EXPECT_GT(predicted.seconds(), 0.5 * time.seconds()) << text;
    EXPECT_LT(predicted.seconds(), 2.0 * time.seconds()) << text;
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
  EXPECT_EQ(cost_of(question, "ring").value().time, ExactTime());
  EXPECT_EQ(lower_bound(question), ExactTime());
}

// Some of a pipeline's cuts say what all of them take.
TEST(CostModel, APipelineTakesWhatAllOfItsCutsTake) {
  for (const auto& [collective, algorithm] :
       {std::pair{OpKind::kAllReduce, "double_tree"}, std::pair{OpKind::kReduce, "double_tree"},
        std::pair{OpKind::kBroadcast, "double_tree"}, std::pair{OpKind::kBroadcast, "chain"}}) {
    for (const int p : {2, 3, 4, 7, 8, 16, 17, 32, 64}) {
      const CostQuestion question{collective, p, p, 64 << 20, 4, kLinks, 512 << 10};
      const auto cost = cost_of(question, algorithm);
      ASSERT_TRUE(cost.has_value());
      SimulationOptions options;
      options.links = kLinks;
      options.segment_bytes = cost.value().segment_bytes;
      const auto job = compile(
          p,
          [&](int rank) {
            return make_schedule(collective, algorithm, rank, p, elems_of(question));
          },
          {}, true, kMostSteps);
      ASSERT_TRUE(job.has_value());
      const auto all = simulate(job.value(), options);
      ASSERT_TRUE(all.has_value());
      EXPECT_NEAR(cost.value().time.seconds() / all.value().time.seconds(), 1, 0.15)
          << text_of(question, algorithm);
    }
  }
}

// One rank stands for others under every symmetry that a schedule has.
TEST(CostModel, RanksThatDoTheSameAreSimulatedOnce) {
  const auto ranks = [](int p, int nodes, const char* algorithm) {
    return cost_of({OpKind::kAllReduce, p, nodes, 1 << 20, 4, kLinks}, algorithm)
        .value()
        .simulated_ranks;
  };
  for (const char* algorithm : {"ring", "canonical", "direct", "recursive_doubling",
                                "halving_doubling", "two_level", "blueconnect"}) {
    EXPECT_EQ(ranks(64, 64, algorithm), 1) << algorithm;
    EXPECT_LE(ranks(64, 16, algorithm), 4) << algorithm;
  }
  EXPECT_EQ(ranks(64, 64, "tree"), 64);
  EXPECT_EQ(ranks(48, 48, "recursive_doubling"), 48);
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
    at.bytes = found[i].from_bytes / 16 * 15;  // looked at with four binary digits
    at.bytes = std::max(at.bytes, found[i - 1].from_bytes);
    EXPECT_EQ(choose_algorithm(at), found[i - 1].algorithm);
  }
}

}  // namespace
}  // namespace cost_model_test
}  // namespace gradwire
