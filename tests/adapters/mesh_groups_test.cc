// Groups of many meshes: each adds up what its members, and no others, gave it.
#include "adapters/trainer/mesh/mesh_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/names.h"

namespace gradwire::testing::mesh_groups_test {
namespace {

using ::testing::Values;

// Ranks' shares are powers of two: the sum tells who gave.
std::int64_t share_of(int rank) { return std::int64_t{1} << rank; }

Status check_sum(Communicator& group, const std::vector<int>& members, int rank,
                 const std::string& where) {
  std::int64_t wanted = 0;
  for (const int member : members) wanted += share_of(member);
  std::vector<std::int64_t> values(3, share_of(rank));
  GW_ASSIGN(Work work, group.all_reduce(view_of(std::span<std::int64_t>(values)), ReduceOp::kSum));
  GW_TRY(work.wait());
  for (const std::int64_t value : values) {
    EXPECT_EQ(value, wanted) << where << ", rank " << rank;
  }
  return {};
}

// Every scope twice, the second time without making anything.
Status check_scopes(Communicator& world, const MeshSizes& sizes) {
  const int rank = world.rank();
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(world, sizes));
  EXPECT_EQ(groups.coordinates(), coordinates_of(sizes, rank));
  std::vector<Communicator*> first;
  for (int round = 0; round < 2; ++round) {
    for (const MeshScope scope : kMeshScopes) {
      const std::string where = to_string(sizes) + " " + std::string(to_string(scope));
      const std::vector<int> members = group_ranks(sizes, scope, rank);
      auto made = groups.group(scope);
      if (members.empty()) {
        EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, "no group", to_string(scope)));
        continue;
      }
      if (!made.has_value()) return made.error();
      Communicator& group = *made.value();
      EXPECT_EQ(group.size(), static_cast<int>(members.size())) << where;
      EXPECT_EQ(members[static_cast<std::size_t>(group.rank())], rank) << where;
      EXPECT_EQ(&group == &world, static_cast<int>(members.size()) == world.size()) << where;
      GW_TRY(check_sum(group, members, rank, where));
      const auto at = static_cast<std::size_t>(scope);
      first.resize(std::max(first.size(), at + 1));
      if (round == 0) first[at] = &group;
      EXPECT_EQ(first[at], &group) << where << ": made twice";
    }
  }
  return {};
}

class Meshes : public ::testing::TestWithParam<MeshSizes> {};

TEST_P(Meshes, EveryGroupAddsItsMembersUp) {
  const MeshSizes sizes = GetParam();
  const auto ended =
      on_ranks(static_cast<int>(sizes.ranks()),
               [&](std::unique_ptr<Communicator>& world) { return check_scopes(*world, sizes); });
  for (const Status& status : ended) EXPECT_TRUE(status.ok()) << status.message();
}

INSTANTIATE_TEST_SUITE_P(Sizes, Meshes,
                         Values(MeshSizes{1, 1, 1}, MeshSizes{1, 4, 1}, MeshSizes{1, 1, 3},
                                MeshSizes{5, 1, 1}, MeshSizes{2, 2, 1}, MeshSizes{2, 1, 2},
                                MeshSizes{1, 2, 2}, MeshSizes{3, 2, 1}, MeshSizes{4, 1, 2},
                                MeshSizes{2, 2, 2}, MeshSizes{3, 2, 2}));

TEST(MeshGroups, SizesThatDoNotFitTheWorldAreRefused) {
  const auto ended = on_ranks(2, [](std::unique_ptr<Communicator>& world) {
    EXPECT_THAT(MeshGroups::create(*world, {2, 2, 1}).error(),
                fails(Code::kInvalidArgument, "pp=2 x dp=2 x tp=1 = 4 ranks", "has 2"));
    return Status();
  });
  for (const Status& status : ended) EXPECT_TRUE(status.ok()) << status.message();
}

// Replicas alone use the job's communicator: what they send, and when, stays as it was.
TEST(MeshGroups, ReplicasAloneAreTheWorld) {
  const auto ended = on_ranks(3, [](std::unique_ptr<Communicator>& world) -> Status {
    const std::uint64_t before = world->transport_stats().messages_sent;
    GW_ASSIGN(MeshGroups groups, MeshGroups::create(*world, {1, 3, 1}));
    GW_ASSIGN(Communicator* const dp, groups.group(MeshScope::kDp));
    EXPECT_EQ(dp, world.get());
    EXPECT_EQ(world->transport_stats().messages_sent, before);
    return {};
  });
  for (const Status& status : ended) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gradwire::testing::mesh_groups_test
