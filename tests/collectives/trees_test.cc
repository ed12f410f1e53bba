// The trees and halves that schedules are built on, as graphs: to 4096 ranks.
#include "collectives/schedules/trees.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "collectives/schedules/checker.h"
#include "collectives/schedules/selection.h"

namespace gradwire::trees_test {
namespace {

int log2_up(int p) {
  int rounds = 0;
  while ((1 << rounds) < p) ++rounds;
  return rounds;
}

// Edges from the top; -1 where parents and children contradict each other or do not span.
int height_of(const std::vector<TreeNode>& nodes, int top) {
  std::vector<int> depth(nodes.size(), -1);
  std::vector<int> front{top};
  if (nodes[static_cast<std::size_t>(top)].parent != -1) return -1;
  depth[static_cast<std::size_t>(top)] = 0;
  std::size_t seen = 1;
  int height = 0;
  while (!front.empty()) {
    std::vector<int> below;
    for (const int rank : front) {
      for (const int child : nodes[static_cast<std::size_t>(rank)].children) {
        const auto c = static_cast<std::size_t>(child);
        if (child < 0 || c >= nodes.size() || depth[c] >= 0 || nodes[c].parent != rank) return -1;
        height = depth[c] = depth[static_cast<std::size_t>(rank)] + 1;
        below.push_back(child);
        ++seen;
      }
    }
    front = std::move(below);
  }
  return seen == nodes.size() ? height : -1;
}

TEST(DoubleTree, SpansIsLowAndLetsEveryRankRestInOneTree) {
  for (int p = 1; p <= 4096; ++p) {
    std::vector<int> interior(static_cast<std::size_t>(p), 0);
    for (int tree = 0; tree < 2; ++tree) {
      std::vector<TreeNode> nodes;
      for (int r = 0; r < p; ++r) nodes.push_back(double_tree_node(tree, r, p));
      const int height = height_of(nodes, double_tree_top(tree, p));
      ASSERT_GE(height, 0) << p << " ranks, tree " << tree;
      ASSERT_LE(height, log2_up(p) + 1) << p << " ranks, tree " << tree;
      for (int r = 0; r < p; ++r) {
        const TreeNode& node = nodes[static_cast<std::size_t>(r)];
        ASSERT_LE(node.children.size(), 2u);
        if (!node.children.empty()) ++interior[static_cast<std::size_t>(r)];
      }
    }
    ASSERT_LE(*std::ranges::max_element(interior), 1) << p << " ranks";
  }
}

TEST(DoubleTree, OfSixByHand) {
  // First: 0 over 4; 4 over 2 and 5; 2 over 1 and 3. Second: the same with 5 - rank.
  const std::vector<TreeNode> first{{-1, {4}}, {2, {}}, {4, {1, 3}}, {2, {}}, {0, {2, 5}}, {4, {}}};
  const std::vector<TreeNode> second{{1, {}},     {5, {3, 0}}, {3, {}},
                                     {1, {4, 2}}, {3, {}},     {-1, {1}}};
  for (int r = 0; r < 6; ++r) {
    const auto at = static_cast<std::size_t>(r);
    EXPECT_EQ(double_tree_node(0, r, 6).parent, first[at].parent) << r;
    EXPECT_EQ(double_tree_node(0, r, 6).children, first[at].children) << r;
    EXPECT_EQ(double_tree_node(1, r, 6).parent, second[at].parent) << r;
    EXPECT_EQ(double_tree_node(1, r, 6).children, second[at].children) << r;
  }
}

TEST(Knomial, SpansFromEveryRoot) {
  for (int p = 1; p <= 70; ++p) {
    for (const int radix : {2, 3, 4, 8}) {
      for (const int root : {0, p / 3, p - 1}) {
        std::vector<TreeNode> nodes;
        for (int r = 0; r < p; ++r) {
          const KnomialNode node = knomial_node(r, p, root, radix);
          nodes.push_back({node.parent, {}});
          for (const auto& level : node.levels) {
            EXPECT_LT(static_cast<int>(level.size()), radix);
            nodes.back().children.insert(nodes.back().children.end(), level.begin(), level.end());
          }
        }
        int levels = 0;
        for (int reach = 1; reach < p; reach *= radix) ++levels;
        const int height = height_of(nodes, root);
        EXPECT_GE(height, 0) << p << " ranks, root " << root << ", radix " << radix;
        EXPECT_LE(height, levels);
      }
    }
  }
}

TEST(Halves, EveryHandOverHasATaker) {
  for (int p = 2; p <= 130; ++p) {
    std::vector<std::vector<Split>> all;
    for (int r = 0; r < p; ++r) all.push_back(splits_of(r, p));
    for (int r = 0; r < p; ++r) {
      const auto& splits = all[static_cast<std::size_t>(r)];
      ASSERT_LE(static_cast<int>(splits.size()), log2_up(p));
      ASSERT_EQ(splits.back().own.last - splits.back().own.first, 1);
      for (std::size_t level = 0; level < splits.size(); ++level) {
        const auto& taker = all[static_cast<std::size_t>(splits[level].send_to)];
        ASSERT_GT(taker.size(), level);
        ASSERT_EQ(std::ranges::count(taker[level].recv_from, r), 1) << p << " ranks, rank " << r;
        ASSERT_LE(splits[level].recv_from.size(), 2u);
      }
      ASSERT_FALSE(splits.back().recv_from.empty());  // every rank's last split brings something
    }
  }
}

// The schedules themselves, where it is cheap.
TEST(DoubleTree, SchedulesAreRightForManyRanks) {
  for (const int p : {511, 1024, 4095, 4096}) {
    for (const OpKind collective : {OpKind::kAllReduce, OpKind::kBroadcast}) {
      ScheduleRequest request{
          .collective = collective, .algorithm = "double_tree", .size = p, .elems = 1001};
      std::vector<Schedule> schedules;
      for (int r = 0; r < p; ++r) {
        request.rank = r;
        schedules.push_back(make_schedule(request));
      }
      const auto costs = check_schedules(schedules, claim_of(request));
      EXPECT_TRUE(costs.has_value()) << p << " ranks: " << costs.error().message();
    }
  }
}

TEST(Knomial, SchedulesAreRightForManyRanks) {
  for (const std::string_view algorithm : {"tree", "knomial", "recursive_doubling"}) {
    ScheduleRequest request{.algorithm = algorithm, .size = 4096, .elems = 1001};
    std::vector<Schedule> schedules;
    for (int r = 0; r < request.size; ++r) {
      request.rank = r;
      schedules.push_back(make_schedule(request));
    }
    const auto costs = check_schedules(schedules, claim_of(request));
    EXPECT_TRUE(costs.has_value()) << algorithm << ": " << costs.error().message();
  }
}

}  // namespace
}  // namespace gradwire::trees_test
