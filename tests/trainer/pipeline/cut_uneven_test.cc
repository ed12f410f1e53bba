// Cuts of layers that do not cost the same on each stage.
#include "trainer/pipeline/cut_uneven.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/fails.h"
#include "trainer/pipeline/cut_layers.h"

namespace gradwire::cut_uneven_test {
namespace {

using Costs = std::vector<std::vector<std::int64_t>>;
using Lengths = std::vector<std::int64_t>;

Lengths lengths_of(const Costs& costs) {
  Lengths lengths;
  const std::vector<Range> cut = cut_uneven(costs).value();
  for (const Range& stage : cut) lengths.push_back(stage.size());
  return lengths;
}

struct Best {
  std::int64_t dearest = INT64_MAX;
  Lengths lengths = {};  // the longest first stages
};

// Every cut of the layers from `begin` on, behind stages of `lengths` that cost `dearest` at most.
void try_all(const Costs& costs, std::size_t begin, std::int64_t dearest, Lengths& lengths,
             Best& best) {
  const std::size_t stage = lengths.size();
  const std::size_t layers = costs.front().size();
  if (stage == costs.size()) {
    if (begin < layers) return;
    const bool better =
        dearest < best.dearest || (dearest == best.dearest && lengths > best.lengths);
    if (better) best = {dearest, lengths};
    return;
  }
  std::int64_t here = 0;
  for (std::size_t end = begin + 1; end <= layers; ++end) {
    here += costs[stage][end - 1];
    lengths.push_back(static_cast<std::int64_t>(end - begin));
    try_all(costs, end, std::max(dearest, here), lengths, best);
    lengths.pop_back();
  }
}

TEST(CutUneven, IsTheBestOfAllCuts) {
  std::mt19937 random(29);
  for (int round = 0; round < 500; ++round) {
    const std::size_t layers = 1 + random() % 8;
    Costs costs(1 + random() % layers, std::vector<std::int64_t>(layers));
    for (auto& stage : costs) {
      for (std::int64_t& cost : stage) cost = random() % 10;
    }
    Best best;
    Lengths lengths;
    try_all(costs, 0, 0, lengths, best);
    ASSERT_EQ(lengths_of(costs), best.lengths) << "round " << round;
  }
}

TEST(CutUneven, IsCutLayersWhereStagesAreAlike) {
  std::mt19937 random(31);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> costs(1 + random() % 12);
    for (std::int64_t& cost : costs) cost = random() % 10;
    const int stages = 1 + static_cast<int>(random() % costs.size());
    Lengths alike;
    const std::vector<Range> cut = cut_layers(costs, stages).value();
    for (const Range& stage : cut) alike.push_back(stage.size());
    EXPECT_EQ(lengths_of(Costs(static_cast<std::size_t>(stages), costs)), alike);
  }
}

// The first stage could have both cheap layers; the second one would then have the dear one.
TEST(CutUneven, ALayerIsKeptFromAStageThatIsSlowAtIt) {
  EXPECT_THAT(lengths_of({{1, 1, 2, 1}, {2, 2, 9, 2}, {1, 1, 2, 1}}),
              ::testing::ElementsAre(1, 1, 2));
}

TEST(CutUneven, WrongNumbersAreRefused) {
  EXPECT_THAT(cut_uneven({}).error(), fails(Code::kInvalidArgument, "0 pipeline stages"));
  EXPECT_THAT(cut_uneven({{1}, {1}}).error(), fails(Code::kInvalidArgument, "2", "1 layers"));
  EXPECT_THAT(cut_uneven({{1, 2}, {1}}).error(), fails(Code::kInvalidArgument, "stage 1", "2"));
  EXPECT_THAT(cut_uneven({{1, 2}, {1, -2}}).error(),
              fails(Code::kInvalidArgument, "-2", "layer 1", "stage 1"));
  EXPECT_THAT(cut_uneven({{INT64_MAX / 3, INT64_MAX / 3}}).error(),
              fails(Code::kInvalidArgument, "2^62"));
}

}  // namespace
}  // namespace gradwire::cut_uneven_test
