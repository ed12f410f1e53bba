// Each call's scope names the ranks that take part: groups of a mesh.
#include "adapters/trainer/group_consensus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstdint>
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
    const ScopedValues started{{&heard.started, 1}, scope};
    GW_TRY(consensus.start_sums({&started, 1}));
    GW_TRY(consensus.sum({&heard.sum, 1}, scope));
    GW_TRY(consensus.mean({&heard.mean, 1}, scope));
    GW_TRY(consensus.finish_sums());
    GW_TRY(consensus.finish_sums());  // nothing was started
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
      EXPECT_EQ(heard.started, sum) << rank;
      EXPECT_EQ(heard.five, five) << rank;
    }
  }
}

TEST(GroupConsensus, IsOfTheRanksThatTheScopeNames) {
  expect_groups(Scope::kData, {{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  expect_groups(Scope::kTensor, {{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  expect_groups(Scope::kPipeline, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  expect_groups(Scope::kModel, {{0, 1, 4, 5}, {2, 3, 6, 7}});
  expect_groups(Scope::kEmbedding, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  expect_groups(Scope::kReplica, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  expect_groups(Scope::kWorld, {{0, 1, 2, 3, 4, 5, 6, 7}});
}

// Sums over three scopes at once: each over its own ranks, and those of the same ranks, here the
// two of [pp = 2], are one message.
TEST(GroupConsensus, SumsOfTheSameRanksTravelTogether) {
  const auto statuses = on_ranks(8, [](std::unique_ptr<Communicator>& communicator) -> Status {
    const int rank = communicator->rank();
    GW_ASSIGN(MeshGroups groups, MeshGroups::create(*communicator, kMesh));
    GroupConsensus consensus(std::move(groups));
    for (const Scope scope : {Scope::kWorld, Scope::kPipeline, Scope::kData}) {
      double none = 0;
      GW_TRY(consensus.sum({&none, 1}, scope));  // makes the group
    }
    const std::uint64_t before = communicator->transport_stats().messages_sent;
    double alone = rank;
    GW_TRY(consensus.sum({&alone, 1}, Scope::kPipeline));
    const std::uint64_t one = communicator->transport_stats().messages_sent - before;
    std::array<double, 2> pipeline{1.0 * rank, 10.0 * rank};
    double embedding = 100.0 * rank;
    const std::array<ScopedValues, 2> same{ScopedValues{pipeline, Scope::kPipeline},
                                           ScopedValues{{&embedding, 1}, Scope::kEmbedding}};
    GW_TRY(consensus.start_sums(same));
    GW_TRY(consensus.finish_sums());
    EXPECT_EQ(communicator->transport_stats().messages_sent - before, 2 * one);
    const double both = rank % 4 + (rank % 4 + 4);  // this rank and the one four away
    EXPECT_EQ(pipeline[0], both);
    EXPECT_EQ(pipeline[1], 10 * both);
    EXPECT_EQ(embedding, 100 * both);
    double world = rank;
    double data = rank;
    const std::array<ScopedValues, 3> others{ScopedValues{{&world, 1}, Scope::kWorld},
                                             ScopedValues{{&data, 1}, Scope::kData},
                                             ScopedValues{{}, Scope::kModel}};
    GW_TRY(consensus.start_sums(others));
    GW_TRY(consensus.finish_sums());
    EXPECT_EQ(world, 28);
    EXPECT_EQ(data, rank % 4 < 2 ? 2 * rank + 2 : 2 * rank - 2);  // [dp = 2] is two away
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// One rank of eight is asked to end; all hear of it with the next sum over the world, and with none
// over fewer ranks.
TEST(GroupConsensus, WordOfAnInterruptionTravelsWithSumsOverTheWorld) {
  struct Asked final : EndRequest {
    explicit Asked(int asked) : by(asked) {}
    int signal() const override { return by; }
    void listen() override {}
    void met() override {}
    int by;
  };
  const auto statuses = on_ranks(8, [](std::unique_ptr<Communicator>& communicator) -> Status {
    Asked request(communicator->rank() == 3 ? SIGTERM : 0);
    Interruption interruption(request);
    GW_ASSIGN(MeshGroups groups, MeshGroups::create(*communicator, kMesh));
    GroupConsensus consensus(std::move(groups));
    consensus.heed(&interruption);
    double value = 1;
    GW_TRY(consensus.sum({&value, 1}, Scope::kModel));
    EXPECT_EQ(value, 4);
    EXPECT_EQ(interruption.agreed(), 0);
    value = 1;
    const ScopedValues world{{&value, 1}, Scope::kWorld};
    GW_TRY(consensus.start_sums({&world, 1}));
    GW_TRY(consensus.finish_sums());
    EXPECT_EQ(value, 8);
    EXPECT_EQ(interruption.agreed(), SIGTERM);
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// Ranks that each hold the whole model: one that holds the rest of it is nobody else.
TEST(GroupConsensus, OfReplicasIsTheWorldOrARankAlone) {
  const auto statuses = on_ranks(3, [](std::unique_ptr<Communicator>& communicator) -> Status {
    GroupConsensus consensus(MeshGroups::of_replicas(*communicator));
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
