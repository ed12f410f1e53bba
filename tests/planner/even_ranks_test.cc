// Ends of stages that move until ranks are even, against every division of small problems.
#include "planner/mesh/even_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace gradwire::even_ranks_test {
namespace {

using Cuts = std::vector<Range>;

Cuts cuts_of(const std::vector<std::int64_t>& ends) {
  Cuts cuts;
  for (const std::int64_t end : ends) cuts.push_back({cuts.empty() ? 0 : cuts.back().end, end});
  return cuts;
}

int stage_count(const StagedRanks& ranks) {
  int most = 0;
  for (const auto& stages : ranks.stages) most = std::max(most, std::ranges::max(stages));
  return most + 1;
}

// Each with its slowest rank, by the plain definition.
std::int64_t plainly_slowest(const StagedRanks& ranks, const Cuts& cuts) {
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < ranks.stages.size(); ++rank) {
    std::int64_t sum = 0;
    for (std::size_t place = 0; place < ranks.stages[rank].size(); ++place) {
      const Range cut = cuts[static_cast<std::size_t>(ranks.stages[rank][place])];
      for (std::int64_t run = cut.begin; run < cut.end; ++run) {
        sum += ranks.ticks[rank][place][static_cast<std::size_t>(run)];
      }
    }
    most = std::max(most, sum);
  }
  return most;
}

std::int64_t least_of_all(const StagedRanks& ranks, std::vector<std::int64_t>& ends) {
  const auto runs = static_cast<std::int64_t>(ranks.ticks.front().front().size());
  const auto left =
      static_cast<std::int64_t>(stage_count(ranks)) - static_cast<std::int64_t>(ends.size());
  if (left == 0) return plainly_slowest(ranks, cuts_of(ends));
  std::int64_t least = INT64_MAX;
  const std::int64_t begin = ends.empty() ? 0 : ends.back();
  for (std::int64_t end = left == 1 ? runs : begin + 1; end <= runs - (left - 1); ++end) {
    ends.push_back(end);
    least = std::min(least, least_of_all(ranks, ends));
    ends.pop_back();
  }
  return least;
}

// Ranks with two stages, in turn or in a V, on devices of several speeds; of half of them a run
// takes twice as long in a rank's first stage as in its second one.
StagedRanks drawn(std::mt19937& random) {
  StagedRanks ranks;
  const int count = 2 + static_cast<int>(random() % 2);
  const bool v = random() % 2 == 0;
  const std::int64_t first = random() % 2 == 0 ? 1 : 2;
  const int stages = 2 * count;
  const std::size_t runs = static_cast<std::size_t>(stages) + random() % 6;
  std::vector<std::int64_t> products(runs);
  for (std::int64_t& one : products) one = 1 + static_cast<std::int64_t>(random() % 20);
  for (int rank = 0; rank < count; ++rank) {
    const auto slowness = static_cast<std::int64_t>(1 + random() % 3);
    auto& ticks = ranks.ticks.emplace_back(2, products);
    for (std::int64_t& one : ticks[0]) one *= slowness * first;
    for (std::int64_t& one : ticks[1]) one *= slowness;
    ranks.stages.push_back({rank, v ? stages - 1 - rank : count + rank});
  }
  return ranks;
}

TEST(EvenRanks, AreNearTheBestOfAllDivisionsAndNeverWorseThanBefore) {
  std::mt19937 random(37);
  double sum = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    const StagedRanks ranks = drawn(random);
    const auto stages = static_cast<std::size_t>(stage_count(ranks));
    const Cuts before = even_stages(ranks, stages).value();
    const Cuts after = even_ranks(ranks, before);
    ASSERT_EQ(after.size(), before.size());
    std::int64_t next = 0;
    for (const Range& stage : after) {
      EXPECT_EQ(stage.begin, next);
      EXPECT_LT(stage.begin, stage.end);
      next = stage.end;
    }
    EXPECT_EQ(next, static_cast<std::int64_t>(ranks.ticks.front().front().size()));
    const std::int64_t found = plainly_slowest(ranks, after);
    EXPECT_EQ(slowest_rank(ranks, after), found);
    EXPECT_LE(found, plainly_slowest(ranks, before));
    // Either start.
    Cuts own(stages);
    for (std::size_t stage = 0; stage < stages; ++stage) {
      const auto begin = static_cast<std::int64_t>(stage);
      own[stage] = {begin, stage + 1 == stages ? next : begin + 1};
    }
    const Cuts either = even_division(ranks, own).value();
    EXPECT_LE(slowest_rank(ranks, either),
              std::min(found, slowest_rank(ranks, even_ranks(ranks, own))));
    std::vector<std::int64_t> none;
    const std::int64_t best = least_of_all(ranks, none);
    const double ratio = static_cast<double>(found) / static_cast<double>(best);
    EXPECT_LE(ratio, 1.4) << "round " << round;
    sum += ratio;
  }
  EXPECT_LE(sum / kRounds, 1.03);
}

// Of equal ranks the stages are even, too, as far as runs are.
TEST(EvenRanks, StagesOfARankAreEven) {
  const std::vector two_stages(2, std::vector<std::int64_t>(12, 5));
  const StagedRanks ranks{.stages = {{0, 3}, {1, 2}}, .ticks = {two_stages, two_stages}};
  const Cuts after = even_ranks(ranks, cuts_of({1, 2, 3, 12}));
  for (const Range& stage : after) EXPECT_EQ(stage.size(), 3);
  EXPECT_EQ(slowest_rank(ranks, after), 30);
}

}  // namespace
}  // namespace gradwire::even_ranks_test
