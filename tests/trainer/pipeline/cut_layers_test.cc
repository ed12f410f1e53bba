// Layers cut into stages, against all cuts there are.
#include "trainer/pipeline/cut_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "tests/support/fails.h"

namespace gradwire::cut_layers_test {
namespace {

using Costs = std::vector<std::int64_t>;

std::vector<std::int64_t> lengths_of(const Costs& costs, int stages) {
  std::vector<std::int64_t> lengths;
  const std::vector<Range> cut = cut_layers(costs, stages).value();
  for (const Range& stage : cut) lengths.push_back(stage.size());
  return lengths;
}

std::int64_t cost_of(const Costs& costs, std::int64_t begin, std::int64_t end) {
  return std::accumulate(costs.begin() + begin, costs.begin() + end, std::int64_t{0});
}

// The least cost of the dearest stage, over all cuts of layers from `begin` on.
std::int64_t least_of_all(const Costs& costs, std::int64_t begin, int stages) {
  const auto layers = static_cast<std::int64_t>(costs.size());
  if (stages == 1) return cost_of(costs, begin, layers);
  std::int64_t least = INT64_MAX;
  for (std::int64_t end = begin + 1; end <= layers - (stages - 1); ++end) {
    least =
        std::min(least, std::max(cost_of(costs, begin, end), least_of_all(costs, end, stages - 1)));
  }
  return least;
}

TEST(CutLayers, StagesAreAsEvenAsTheyCanBe) {
  EXPECT_THAT(lengths_of({1, 1, 1, 1, 1, 1}, 3), ::testing::ElementsAre(2, 2, 2));
  // What is uneven makes the first stages longest.
  EXPECT_THAT(lengths_of({1, 1, 1, 1, 1}, 3), ::testing::ElementsAre(2, 2, 1));
  EXPECT_THAT(lengths_of({9, 1, 1, 1, 9}, 3), ::testing::ElementsAre(1, 3, 1));
  EXPECT_THAT(lengths_of({5}, 1), ::testing::ElementsAre(1));
  // Layers that cost nothing still fill a stage each.
  EXPECT_THAT(lengths_of({0, 0, 0, 0}, 3), ::testing::ElementsAre(2, 1, 1));
}

TEST(CutLayers, NoCutHasACheaperDearestStage) {
  std::mt19937 random(23);
  for (int round = 0; round < 500; ++round) {
    Costs costs(1 + random() % 8);
    for (std::int64_t& cost : costs) cost = random() % 10;
    for (int stages = 1; stages <= static_cast<int>(costs.size()); ++stages) {
      const std::vector<Range> cut = cut_layers(costs, stages).value();
      ASSERT_EQ(cut.size(), static_cast<std::size_t>(stages));
      std::int64_t dearest = 0;
      std::int64_t next = 0;
      for (const Range& stage : cut) {
        EXPECT_EQ(stage.begin, next);
        EXPECT_LT(stage.begin, stage.end);
        next = stage.end;
        dearest = std::max(dearest, cost_of(costs, stage.begin, stage.end));
      }
      EXPECT_EQ(next, static_cast<std::int64_t>(costs.size()));
      EXPECT_EQ(dearest, least_of_all(costs, 0, stages));
    }
  }
}

TEST(CutLayers, WrongNumbersAreRefused) {
  EXPECT_THAT(cut_layers(Costs{1, 2}, 3).error(), fails(Code::kInvalidArgument, "3", "2"));
  EXPECT_THAT(cut_layers(Costs{1, 2}, 0).error(), fails(Code::kInvalidArgument, "0"));
  EXPECT_THAT(cut_layers(Costs{1, -2}, 1).error(), fails(Code::kInvalidArgument, "-2", "1"));
  EXPECT_THAT(cut_layers(Costs{INT64_MAX / 3, INT64_MAX / 3}, 1).error(),
              fails(Code::kInvalidArgument, "2^62"));
}

}  // namespace
}  // namespace gradwire::cut_layers_test
