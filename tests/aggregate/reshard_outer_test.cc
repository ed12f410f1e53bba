// State of the level between nodes on other ranks and nodes, from states made by hand.
#include "aggregate/state/reshard_outer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/elements.h"
#include "gradwire/schedule.h"
#include "tests/support/fails.h"

namespace gradwire::reshard_outer_test {
namespace {

using ::testing::ElementsAre;

// What a rank keeps of elements [begin, end) of w: a shift for each, and a factor.
struct Kept {
  std::vector<std::int64_t> range;  // begin, end, nodes, node
  std::vector<float> q;
  std::vector<float> h;
  std::vector<NamedTensor> views() {
    return {{"w.outer.coder.q", view_of(std::span<float>(q))},
            {"w.outer.ef21.h", view_of(std::span<float>(h))},
            {"w.outer.range", view_of(std::span<std::int64_t>(range))}};
  }
};

// Three nodes of two ranks: the first one of each has elements [0, 2), the other [2, 4).
std::vector<Kept> three_nodes() {
  return {{{0, 2, 3, 0}, {1}, {1, 2}}, {{2, 4, 3, 0}, {2}, {3, 4}}, {{0, 2, 3, 1}, {1}, {1, 5}},
          {{2, 4, 3, 1}, {2}, {0, 1}}, {{0, 2, 3, 2}, {1}, {4, 5}}, {{2, 4, 3, 2}, {2}, {3, 7}}};
}

Status carry(Kept& own, std::vector<Kept>& old, int rank, int size) {
  std::vector<std::vector<NamedTensor>> by_old_rank;
  by_old_rank.reserve(old.size());
  for (Kept& entries : old) by_old_rank.push_back(entries.views());
  const std::vector<NamedTensor> all = own.views();
  for (const NamedTensor& entry : all) {
    GW_TRY(carry_outer_state(entry, all, by_old_rank, rank, size, true));
  }
  return {};
}

// Nodes 1 and 2 take each other's ranks: owners of one range have one factor all the same.
TEST(ReshardOuter, FactorsFollowTheirRange) {
  for (int node = 0; node < 3; ++node) {
    for (int place = 0; place < 2; ++place) {
      const int rank = node == 0 ? place : node + 1 + 2 * place;  // nodes {0, 0, 1, 2, 1, 2}
      std::vector<Kept> old = three_nodes();
      Kept own{{2 * place, 2 * place + 2, 3, node}, {9}, {9, 9}};
      ASSERT_TRUE(carry(own, old, rank, 6).ok());
      EXPECT_THAT(own.q, ElementsAre(place + 1)) << rank;
    }
  }
  std::vector<Kept> old = three_nodes();
  Kept own{{2, 4, 2, 1}, {9}, {9, 9}};
  ASSERT_TRUE(carry(own, old, 3, 4).ok());
  EXPECT_THAT(own.q, ElementsAre(2));
  EXPECT_THAT(own.h, ElementsAre(2, 4));  // (3 + 0 + 3) / 3, (4 + 1 + 7) / 3
}

// Shifts are of elements and follow them; factors are of the range.
TEST(ReshardOuter, FactorsOfARangeThatNobodyOwnedStayAsTheyAre) {
  std::vector<Kept> old = three_nodes();
  Kept own{{0, 4, 2, 0}, {8, 9}, {9, 9, 9, 9}};
  ASSERT_TRUE(carry(own, old, 0, 2).ok());
  EXPECT_THAT(own.q, ElementsAre(8, 9));
  EXPECT_THAT(own.h, ElementsAre(2, 4, 2, 4));
}

TEST(ReshardOuter, FactorsThatAreMissingOrOfAnotherShapeAreNamed) {
  std::vector<Kept> old = three_nodes();
  old[1].q = {2, 2};
  Kept own{{2, 4, 2, 1}, {9}, {9, 9}};
  EXPECT_THAT(carry(own, old, 3, 4),
              fails(Code::kInvalidArgument, "w.outer.coder.q", "2 elements", "expected 1"));
  old = three_nodes();
  std::vector<std::vector<NamedTensor>> without;
  for (Kept& entries : old) without.push_back({entries.views().back()});
  const std::vector<NamedTensor> all = own.views();
  EXPECT_THAT(carry_outer_state(all.front(), all, without, 3, 4, true),
              fails(Code::kInvalidArgument, "w.outer.coder.q", "missing"));
}

}  // namespace
}  // namespace gradwire::reshard_outer_test
