// Each call's scope names the ranks that take part: groups of a mesh.
#include "adapters/trainer/group_consensus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/aggregate_job.h"

namespace gradwire::testing::group_consensus_test {
namespace {

// Ranks 0 to 7 of [pp = 2][dp = 2][tp = 2].
constexpr MeshSizes kMesh{.pp = 2, .dp = 2, .tp = 2};

// What every rank hears when it gives its own number: the sum, the mean, and whether rank 5 is
// among the group.
struct Heard {
  int ranks = 0;
  double sum = 0;
  double mean = 0;
  double started = 0;
  bool five = false;
};

std::vector<Heard> hear(Scope scope) {
  std::vector<Heard> all(8);
  const auto statuses = on_ranks(8, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const int rank = communicator->rank();
    Heard& heard = all[static_cast<std::size_t>(rank)];
    GW_ASSIGN(MeshGroups groups, MeshGroups::create(*communicator, kMesh));
    GroupConsensus consensus(std::move(groups));
    heard.ranks = consensus.ranks(scope);
    heard.sum = heard.mean = heard.started = rank;
    GW_TRY(consensus.start_mean({&heard.started, 1}, scope));
    GW_TRY(consensus.sum({&heard.sum, 1}, scope));
    GW_TRY(consensus.mean({&heard.mean, 1}, scope));
    GW_TRY(consensus.finish_mean());
    GW_TRY(consensus.finish_mean());  // nothing was started
    GW_ASSIGN(heard.five, consensus.any(rank == 5, scope));
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return all;
}

void expect_groups(Scope scope, const std::vector<std::vector<int>>& groups) {
  const std::vector<Heard> all = hear(scope);
  for (const std::vector<int>& group : groups) {
    double sum = 0;
    bool five = false;
    for (const int rank : group) {
      sum += rank;
      five = five || rank == 5;
    }
    for (const int rank : group) {
      const Heard& heard = all[static_cast<std::size_t>(rank)];
      EXPECT_EQ(heard.ranks, static_cast<int>(group.size())) << rank;
      EXPECT_EQ(heard.sum, sum) << rank;
      EXPECT_EQ(heard.mean, sum / static_cast<double>(group.size())) << rank;
      EXPECT_EQ(heard.started, heard.mean) << rank;
      EXPECT_EQ(heard.five, five) << rank;
    }
  }
}

TEST(GroupConsensus, IsOfTheRanksThatTheScopeNames) {
  expect_groups(Scope::kData, {{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  expect_groups(Scope::kTensor, {{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  expect_groups(Scope::kPipeline, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  expect_groups(Scope::kModel, {{0, 1, 4, 5}, {2, 3, 6, 7}});
  expect_groups(Scope::kWorld, {{0, 1, 2, 3, 4, 5, 6, 7}});
}

// Ranks that each hold the whole model: one that holds the rest of it is nobody else.
TEST(GroupConsensus, OfReplicasIsTheWorldOrARankAlone) {
  const auto statuses = on_ranks(3, [](std::unique_ptr<Communicator>& communicator) -> Status {
    GW_ASSIGN(GroupConsensus consensus, GroupConsensus::of_replicas(*communicator));
    EXPECT_EQ(consensus.ranks(Scope::kData), 3);
    EXPECT_EQ(consensus.ranks(Scope::kModel), 1);
    const double mine = communicator->rank() + 1;
    double values[2] = {mine, mine};
    GW_TRY(consensus.sum({values, 1}, Scope::kModel));
    GW_TRY(consensus.sum({values + 1, 1}, Scope::kData));
    EXPECT_EQ(values[0], mine);
    EXPECT_EQ(values[1], 6);
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gradwire::testing::group_consensus_test
