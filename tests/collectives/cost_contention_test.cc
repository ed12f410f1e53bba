// What algorithms cost where ranks take turns, by hand.
#include <gtest/gtest.h>

#include "collectives/cost/choice.h"

namespace gradwire::cost_contention_test {
namespace {

constexpr std::int64_t kBytes = 4096;

CostQuestion question(LinkModel links, int ranks = 4, int nodes = 4) {
  return {OpKind::kAllReduce, ranks, nodes, kBytes, 4, links, 0};
}

double micros(const CostQuestion& asked, std::string_view algorithm) {
  return expected_seconds(asked, cost_of(asked, algorithm).value()) * 1e6;
}

TEST(CostContention, TrafficIsThatOfAllRanks) {
  const auto expect = [](const char* algorithm, std::int64_t messages, std::int64_t sent,
                         std::int64_t reduced) {
    const AlgorithmCost cost = cost_of(question({}), algorithm).value();
    EXPECT_EQ(cost.all_messages, messages) << algorithm;
    EXPECT_EQ(cost.all_sent, sent * kBytes) << algorithm;
    EXPECT_EQ(cost.all_reduced, reduced * kBytes) << algorithm;
  };
  expect("recursive_doubling", 8, 8, 8);
  expect("tree", 6, 6, 3);
  expect("direct", 12, 12, 12);
  // 2 * 3 rounds of a quarter from each rank; in 3 of them it is added.
  expect("ring", 24, 6, 3);
}

TEST(CostContention, WithoutItTheLongestChainCounts) {
  for (const std::string_view algorithm : algorithms_of(OpKind::kAllReduce)) {
    for (const int nodes : {1, 2, 4}) {
      const CostQuestion asked = question({}, 4, nodes);
      const AlgorithmCost cost = cost_of(asked, algorithm).value();
      EXPECT_EQ(expected_seconds(asked, cost), cost.time.seconds()) << algorithm << " on " << nodes;
    }
  }
}

TEST(CostContention, TheWorkOfAllRanksTakesItsTime) {
  LinkModel links{.alpha = 10e-6, .beta = 1e-9, .gamma = 0};
  links.contention = 3;
  // 8 messages of 30 us, 4 at a time, and half of 8 * 4096 bytes of 1 ns, 4 at a time. The tree's 6
  // take 45 us and half of 6.144, its chain of 4 takes longer.
  EXPECT_NEAR(micros(question(links), "recursive_doubling"), 60 + 4.096, 1e-6);
  EXPECT_NEAR(micros(question(links), "tree"), 40 + 4 * 4.096, 1e-6);
  links.contention = 6;
  EXPECT_NEAR(micros(question(links), "tree"), 90 + 3.072, 1e-6);
  links.contention = 2;
  links.contention_beta = 3;  // 8 times 4096 bytes at a third of the speed
  EXPECT_NEAR(micros(question(links), "recursive_doubling"), 40 + 3 * 4.096, 1e-6);
  links.gamma = 1e-9;  // as many are added
  EXPECT_NEAR(micros(question(links), "recursive_doubling"), 40 + 4 * 4.096, 1e-6);
  links.contention_beta = 10;  // now bytes are the larger part: 81.92 us and 8.192
  EXPECT_NEAR(micros(question(links), "recursive_doubling"), 81.92 + 8.192 + 20, 1e-6);
}

TEST(CostContention, OfEqualCostsFewerRoundsAreBetterWhereTurnsAreMostOfIt) {
  LinkModel links{.alpha = 10e-6, .beta = 1e-9, .gamma = 0};
  CostQuestion asked{OpKind::kAllToAll, 4, 4, 0, 4, links, 0};
  const auto chosen_at = [&](std::int64_t bytes) {
    asked.bytes = bytes;
    return choose_algorithm(asked);
  };
  EXPECT_EQ(chosen_at(64 << 10), "pairwise");
  asked.links.contention = 2;
  // 12 messages at a time 4 take 60 us; of 64 KiB each rank sends 48, which take 49 us, of 192 KiB
  // 147 us: more than twice as long.
  EXPECT_TRUE(mostly_turns(asked, cost_of(asked, "pairwise").value()));
  EXPECT_EQ(chosen_at(64 << 10), "direct");
  EXPECT_EQ(chosen_at(192 << 10), "pairwise");
  EXPECT_FALSE(mostly_turns(asked, cost_of(asked, "pairwise").value()));
}

TEST(CostContention, RanksOfOneNodeContendForItsLinks) {
  LinkModel links{.alpha = 1, .beta = 1, .gamma = 0, .alpha_intra = 10e-6, .beta_intra = 0};
  links.contention = 3;
  EXPECT_NEAR(micros(question(links, 4, 1), "recursive_doubling"), 60, 1e-6);
}

TEST(CostContention, FewerMessagesWinWhereRanksTakeTurns) {
  LinkModel links{.alpha = 10e-6, .beta = 0.2e-9, .gamma = 0.04e-9};
  EXPECT_EQ(choose_algorithm(question(links)), "recursive_doubling");
  links.contention = 3;
  EXPECT_EQ(choose_algorithm(question(links)), "tree");
}

}  // namespace
}  // namespace gradwire::cost_contention_test
