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
  std::int64_t squares = INT64_MAX;  // of those cuts
};

// Every cut of the layers from `begin` on, behind stages of `paid`.
void try_all(const Costs& costs, std::size_t begin, std::vector<std::int64_t>& paid, Best& best) {
  const std::size_t stage = paid.size();
  const std::size_t layers = costs.front().size();
  if (stage == costs.size()) {
    if (begin < layers) return;
    const std::int64_t dearest = std::ranges::max(paid);
    std::int64_t squares = 0;
    for (const std::int64_t one : paid) squares += one * one;
    if (dearest > best.dearest) return;
    best.squares = dearest < best.dearest ? squares : std::min(best.squares, squares);
    best.dearest = dearest;
    return;
  }
  std::int64_t here = 0;
  for (std::size_t end = begin + 1; end <= layers; ++end) {
    here += costs[stage][end - 1];
    paid.push_back(here);
    try_all(costs, end, paid, best);
    paid.pop_back();
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
    std::vector<std::int64_t> paid;
    try_all(costs, 0, paid, best);
    const std::vector<Range> cut = cut_uneven(costs).value();
    ASSERT_EQ(cut.size(), costs.size());
    std::int64_t dearest = 0, squares = 0, next = 0;
    for (std::size_t stage = 0; stage < cut.size(); ++stage) {
      ASSERT_EQ(cut[stage].begin, next);
      ASSERT_LT(cut[stage].begin, cut[stage].end);
      next = cut[stage].end;
      std::int64_t here = 0;
      for (std::int64_t layer = cut[stage].begin; layer < next; ++layer) {
        here += costs[stage][static_cast<std::size_t>(layer)];
      }
      dearest = std::max(dearest, here);
      squares += here * here;
    }
    ASSERT_EQ(next, static_cast<std::int64_t>(layers));
    ASSERT_EQ(dearest, best.dearest) << "round " << round;
    ASSERT_EQ(squares, best.squares) << "round " << round;
  }
}

// Alike stages: as dear as cut_layers() has them, and even where it has long ones first.
TEST(CutUneven, StagesAreEvenWhereThatCostsNothing) {
  const std::vector<std::int64_t> ones(9, 1);
  EXPECT_THAT(lengths_of(Costs(4, ones)), ::testing::UnorderedElementsAre(3, 2, 2, 2));
  const std::vector<Range> alike = cut_layers(ones, 4).value();
  EXPECT_EQ(alike.front().size(), 3);
  EXPECT_EQ(alike.back().size(), 1);
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
