// Ranks, coordinates and groups, for every mesh of up to 5 x 4 x 4.
#include "base/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/support/names.h"

namespace gradwire::mesh_test {
namespace {

std::vector<MeshSizes> many_sizes() {
  std::vector<MeshSizes> all;
  for (int pp = 1; pp <= 5; ++pp) {
    for (int dp = 1; dp <= 4; ++dp) {
      for (int tp = 1; tp <= 4; ++tp) all.push_back({pp, dp, tp});
    }
  }
  all.push_back({1, 97, 1});
  all.push_back({7, 1, 1});
  all.push_back({2, 3, 8});
  return all;
}

int ranks_of(const MeshSizes& sizes) { return static_cast<int>(sizes.ranks()); }

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  for (const MeshSizes& sizes : many_sizes()) {
    int rank = 0;
    for (int pp = 0; pp < sizes.pp; ++pp) {
      for (int dp = 0; dp < sizes.dp; ++dp) {
        for (int tp = 0; tp < sizes.tp; ++tp, ++rank) {  // tp is the fastest
          const MeshCoordinates at{pp, dp, tp};
          EXPECT_EQ(coordinates_of(sizes, rank), at) << to_string(sizes) << " rank " << rank;
          EXPECT_EQ(rank_at(sizes, at), rank) << to_string(sizes);
        }
      }
    }
    EXPECT_EQ(rank, sizes.ranks());
  }
}

TEST(Mesh, GroupsDivideTheWorld) {
  for (const MeshSizes& sizes : many_sizes()) {
    for (const MeshScope scope : kMeshScopes) {
      const std::string where = to_string(sizes) + " " + std::string(to_string(scope));
      std::vector<std::vector<int>> by_index(static_cast<std::size_t>(group_count(sizes, scope)));
      int members = 0;
      for (int rank = 0; rank < ranks_of(sizes); ++rank) {
        const std::vector<int> group = group_ranks(sizes, scope, rank);
        const int index = group_index(sizes, scope, rank);
        ASSERT_EQ(group.empty(), index < 0) << where << " rank " << rank;
        if (group.empty()) {
          const int stage = coordinates_of(sizes, rank).pp;
          EXPECT_EQ(scope, MeshScope::kEmbed) << where;
          EXPECT_TRUE(0 < stage && stage < sizes.pp - 1) << where << " rank " << rank;
          continue;
        }
        ++members;
        ASSERT_LT(index, static_cast<int>(by_index.size())) << where << " rank " << rank;
        EXPECT_TRUE(std::ranges::is_sorted(group)) << where;
        EXPECT_EQ(std::ranges::adjacent_find(group), group.end()) << where << " a rank twice";
        EXPECT_TRUE(std::ranges::binary_search(group, rank)) << where << " rank " << rank;
        std::vector<int>& known = by_index[static_cast<std::size_t>(index)];
        if (known.empty()) known = group;
        EXPECT_EQ(known, group) << where << ": members of group " << index << " differ";
      }
      std::set<int> seen;
      int listed = 0;
      for (const std::vector<int>& group : by_index) {
        EXPECT_FALSE(group.empty()) << where << ": a number without a group";
        seen.insert(group.begin(), group.end());
        listed += static_cast<int>(group.size());
      }
      EXPECT_EQ(listed, static_cast<int>(seen.size())) << where << ": groups overlap";
      EXPECT_EQ(listed, members) << where;
      if (scope != MeshScope::kEmbed) {
        EXPECT_EQ(listed, ranks_of(sizes)) << where;
      }
    }
  }
}

TEST(Mesh, SizesOfGroupsAreTheirAxes) {
  for (const MeshSizes& sizes : many_sizes()) {
    const auto size = [&](MeshScope scope) {
      return static_cast<int>(group_ranks(sizes, scope, ranks_of(sizes) - 1).size());
    };
    EXPECT_EQ(size(MeshScope::kDp), sizes.dp);
    EXPECT_EQ(size(MeshScope::kTp), sizes.tp);
    EXPECT_EQ(size(MeshScope::kPp), sizes.pp);
    EXPECT_EQ(size(MeshScope::kModel), sizes.pp * sizes.tp);
    EXPECT_EQ(size(MeshScope::kEmbed), sizes.pp > 1 ? 2 : 1);
    EXPECT_EQ(size(MeshScope::kReplica), sizes.pp > 1 ? 2 : 1);
    EXPECT_EQ(size(MeshScope::kWorld), ranks_of(sizes));
  }
}

TEST(Mesh, MembersDifferInTheirAxesAlone) {
  for (const MeshSizes& sizes : many_sizes()) {
    for (int rank = 0; rank < ranks_of(sizes); ++rank) {
      const MeshCoordinates mine = coordinates_of(sizes, rank);
      for (const MeshScope scope : kMeshScopes) {
        for (const int other : group_ranks(sizes, scope, rank)) {
          const MeshCoordinates at = coordinates_of(sizes, other);
          const bool dp = scope == MeshScope::kDp || scope == MeshScope::kWorld;
          const bool tp =
              scope == MeshScope::kTp || scope == MeshScope::kModel || scope == MeshScope::kWorld;
          if (!dp) {
            EXPECT_EQ(at.dp, mine.dp) << to_string(scope);
          }
          if (!tp) {
            EXPECT_EQ(at.tp, mine.tp) << to_string(scope);
          }
          if (scope == MeshScope::kDp || scope == MeshScope::kTp) {
            EXPECT_EQ(at.pp, mine.pp);
          }
          if (scope == MeshScope::kEmbed) {
            EXPECT_TRUE(at.pp == 0 || at.pp == sizes.pp - 1);
          }
          if (scope == MeshScope::kReplica) {
            EXPECT_TRUE(at.pp == mine.pp || at.pp == sizes.pp - 1 - mine.pp);
          }
        }
      }
    }
  }
}

TEST(Mesh, AKnownMesh) {
  constexpr MeshSizes kSizes{4, 2, 3};  // rank 16 is stage 2, replica 1, share 1
  EXPECT_EQ(coordinates_of(kSizes, 16), (MeshCoordinates{2, 1, 1}));
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kDp, 16), (std::vector{13, 16}));
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kTp, 16), (std::vector{15, 16, 17}));
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kPp, 16), (std::vector{4, 10, 16, 22}));
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kModel, 16),
            (std::vector{3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23}));
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kEmbed, 16), std::vector<int>{});
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kEmbed, 22), (std::vector{4, 22}));
  EXPECT_EQ(group_ranks(kSizes, MeshScope::kReplica, 16), (std::vector{10, 16}));
  EXPECT_EQ(group_index(kSizes, MeshScope::kDp, 16), 7);
  EXPECT_EQ(group_index(kSizes, MeshScope::kEmbed, 16), -1);
}

TEST(Mesh, SizesThatDoNotFitAreRefusedWithTheirProduct) {
  EXPECT_TRUE(check_mesh({2, 3, 1}, 6).ok());
  EXPECT_TRUE(check_mesh({1, 1, 1}, 1).ok());
  EXPECT_EQ(with_all_replicas({2, 1, 3}, 24).value(), (MeshSizes{2, 4, 3}));
  EXPECT_EQ(with_all_replicas({1, 7, 1}, 1).value(), (MeshSizes{1, 1, 1}));
  EXPECT_EQ(with_all_replicas({2, 1, 3}, 8).error().message(),
            "pp=2 x tp=3 = 6 ranks, and the job's 8 are no multiple of them");
  EXPECT_EQ(check_mesh({2, 3, 1}, 4).message(), "pp=2 x dp=3 x tp=1 = 6 ranks, but the job has 4");
  EXPECT_EQ(check_mesh({1, 1, 1}, 4).message(), "pp=1 x dp=1 x tp=1 = 1 rank, but the job has 4");
  EXPECT_EQ(check_mesh({1, 0, 1}, 0).message(), "dp=0 (expected 1 to 1048576 ranks on an axis)");
  EXPECT_THAT(check_mesh({1 << 20, 1 << 20, 1 << 20}, 1),
              fails(Code::kInvalidArgument, "1152921504606846976 ranks", "has 1"));
  EXPECT_THAT(check_mesh({1, 1, (1 << 20) + 1}, 1),
              fails(Code::kInvalidArgument, "tp=1048577", "1048576"));
}

TEST(Mesh, MicroBatchesDoNotDependOnTheDivision) {
  for (const BatchShares shares :
       {BatchShares{1, 12}, BatchShares{2, 6}, BatchShares{3, 4}, BatchShares{12, 1}}) {
    EXPECT_EQ(shares.micro_batches(), 12);
    EXPECT_EQ(shares.samples(48), 4);
    int wanted = 0;
    for (int d = 0; d < shares.dp; ++d) {
      for (int micro = 0; micro < shares.accumulate; ++micro, ++wanted) {
        EXPECT_EQ(shares.number(d, micro), wanted);
        EXPECT_EQ(shares.samples_of(48, wanted), (Range{4 * wanted, 4 * wanted + 4}));
      }
    }
  }
  EXPECT_EQ((BatchShares{1 << 20, 4096}).micro_batches(), std::int64_t{1} << 32);
}

TEST(Mesh, EvenPartsCoverEverything) {
  for (const std::int64_t elems : {0, 1, 5, 12, 1000003}) {
    for (const int parts : {1, 2, 3, 7}) {
      std::int64_t end = 0;
      for (int i = 0; i < parts; ++i) {
        const Range part = even_part(elems, parts, i);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.size(), elems / parts);
        EXPECT_LE(part.size(), longest_part(elems, parts));
        end = part.end;
      }
      EXPECT_EQ(end, elems);
    }
  }
}

TEST(Mesh, EqualPartsOverlapAtTheEnd) {
  for (const std::int64_t elems : {1, 3, 4, 12, 13}) {
    for (const int parts : {1, 2, 3, 4, 7}) {
      std::int64_t end = 0;
      for (int i = 0; i < parts; ++i) {
        const Range part = equal_part(elems, parts, i);
        EXPECT_EQ(part.size(), longest_part(elems, parts));
        EXPECT_LE(part.begin, end);  // nothing is left out
        if (divides_evenly(elems, parts)) {
          EXPECT_EQ(part, even_part(elems, parts, i));
        }
        end = part.end;
      }
      EXPECT_EQ(end, elems);
    }
  }
  EXPECT_EQ(equal_part(4, 3, 2), (Range{2, 4}));
  EXPECT_EQ(equal_part(4, 3, 1), (Range{2, 4}));
}

TEST(Mesh, PartsBehindOneAnother) {
  EXPECT_EQ(part_begin(0, 3, 2, 5), 10);
  EXPECT_EQ(part_begin(4, 3, 2, 5), parts_elems(5, 3) * 4 + 10);
}

// Four ranks a pipeline, two pipelines: the job's ranks are [4][2], as without it.
TEST(Mesh, OfBothWaysCountsTwoRanksOfAPipelineAsReplicas) {
  const MeshSizes sizes{.pp = 2, .dp = 4, .tp = 1, .both_ways = true};
  ASSERT_TRUE(check_mesh(sizes, 8).ok());
  const auto group = [&](MeshScope scope, int rank) { return group_ranks(sizes, scope, rank); };
  using Ranks = std::vector<int>;
  for (const int rank : {0, 2, 4, 6}) EXPECT_EQ(group(MeshScope::kPp, rank), (Ranks{0, 2, 4, 6}));
  for (const int rank : {0, 6, 1, 7}) {
    EXPECT_EQ(coordinates_of(sizes, rank).pp, 0);
    // Down and up of pipeline 0, then of pipeline 1.
    EXPECT_EQ(group(MeshScope::kDp, rank), (Ranks{0, 6, 1, 7}));
  }
  EXPECT_EQ(group(MeshScope::kDp, 5), (Ranks{2, 4, 3, 5}));
  EXPECT_EQ(group(MeshScope::kReplica, 5), (Ranks{3, 5}));
  EXPECT_EQ(group(MeshScope::kModel, 1), (Ranks{1, 3}));
  EXPECT_EQ(group(MeshScope::kModel, 5), (Ranks{7, 5}));
  EXPECT_EQ(group(MeshScope::kWorld, 5), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Mesh, GroupsOfBothWaysDivideTheWorld) {
  for (const MeshSizes& whole : many_sizes()) {
    const MeshSizes sizes{whole.pp, 2 * whole.dp, whole.tp, true};
    for (int rank = 0; rank < ranks_of(sizes); ++rank) {
      EXPECT_EQ(rank_at(sizes, coordinates_of(sizes, rank)), rank) << to_string(sizes);
    }
    for (const MeshScope scope : kMeshScopes) {
      const std::string where = to_string(sizes) + " " + std::string(to_string(scope));
      std::vector<std::vector<int>> by_index(static_cast<std::size_t>(group_count(sizes, scope)));
      std::set<int> seen;
      for (int rank = 0; rank < ranks_of(sizes); ++rank) {
        const std::vector<int> group = group_ranks(sizes, scope, rank);
        const int index = group_index(sizes, scope, rank);
        ASSERT_EQ(group.empty(), index < 0) << where;
        if (group.empty()) continue;
        EXPECT_EQ(std::ranges::count(group, rank), 1) << where << " rank " << rank;
        std::vector<int>& known = by_index.at(static_cast<std::size_t>(index));
        if (known.empty()) {
          for (const int member : group) EXPECT_TRUE(seen.insert(member).second) << where;
          known = group;
        }
        EXPECT_EQ(known, group) << where << ": members of group " << index << " differ";
      }
      for (const std::vector<int>& group : by_index) EXPECT_FALSE(group.empty()) << where;
    }
  }
}

}  // namespace
}  // namespace gradwire::mesh_test
