// Two levels by hand: nodes add up exactly, and what is compressed is what goes between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::two_level_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

JobOutcome average(const std::string& compressor, const std::vector<Flat>& grads,
                   const std::vector<int>& node_of, int steps = 1) {
  Job job;
  job.compressor = compressor;
  job.tensors = {{"w", Shape::matrix(1, static_cast<std::int64_t>(grads[0].size()))}};
  job.ranks = static_cast<int>(grads.size());
  job.steps = steps;
  job.node_of = node_of;
  job.gradient = [&grads](const std::string&, int rank, int, std::int64_t e) {
    return grads[static_cast<std::size_t>(rank)][static_cast<std::size_t>(e)];
  };
  JobOutcome outcome = run_job(job);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.first_difference, -1);
  outcome.means.resize(static_cast<std::size_t>(steps));
  return outcome;
}

// Of what is kept between nodes, from the one rank of each node that owns it.
std::vector<Flat> kept(const JobOutcome& outcome, const std::string& name) {
  std::vector<Flat> all;
  for (const auto& state : outcome.state) {
    const auto entry = state.find(name);
    if (entry != state.end()) all.push_back(entry->second);
  }
  return all;
}

const std::vector<Flat> kFour{{1, -2, 3, -4}, {3, 2, 1, -4}, {8, 0, 0, 2}, {0, 4, 2, 2}};

TEST(TwoLevel, TopkChoosesFromTheMeansOfNodes) {
  const JobOutcome outcome =
      average("topk:k=1,min_elems=0,intra_node=none,ef=ef14", kFour, {0, 0, 1, 1}, 2);
  // Nodes hold (2, 0, 2, -4) and (4, 2, 1, 2); they send -4 and 4.
  EXPECT_THAT(outcome.means[0], ElementsAre(2, 0, 0, -2));
  // Then (4, 0, 4, -4) and (4, 4, 2, 4): the first of the largest.
  EXPECT_THAT(outcome.means[1], ElementsAre(4, 0, 0, 0));
  EXPECT_THAT(kept(outcome, "w.outer.error"),
              ElementsAre(ElementsAre(0, 0, 4, -4), ElementsAre(0, 4, 2, 4)));
}

// A node of one rank beside one of three: its mean counts for a quarter.
TEST(TwoLevel, UnevenNodesCountByTheirRanks) {
  const JobOutcome outcome = average("topk:k=4,min_elems=0,intra_node=none", kFour, {0, 1, 1, 1});
  EXPECT_THAT(outcome.means[0], ElementsAre(FloatEq(3), FloatEq(1), FloatEq(1.5F), FloatEq(-1)));
}

TEST(TwoLevel, PiecesHaveOwnersAndASecondResidual) {
  const JobOutcome outcome = average(
      "signsgd:bucket=tensor,min_elems=0,combine=sra,intra_node=none,ef=ef14", kFour, {0, 0, 1, 1});
  // Pieces (0, 1) and (2, 3): nodes hold (2, 0), (2, -4) and (4, 2), (1, 2).
  // Of a piece node 0 sums the first element, node 1 the second.
  // Element 0: 2 + 4 exactly: 6. Element 1: node 0 sends +0 with scale 0: 0 + 2 = 2.
  // Element 2: 2 + 1 = 3. Element 3: -4 + 2 = -2.
  EXPECT_THAT(outcome.means[0], ElementsAre(3, 1, 1.5F, -1));
  EXPECT_EQ(kept(outcome, "w.outer.error").size(), 4u);
  EXPECT_EQ(kept(outcome, "w.outer.error2").size(), 4u);
}

// All pieces alike, so that draws alone tell them apart, of roundings or of the transform's signs:
// owners of a node's pieces drew the same numbers, and errors of elements half a tensor apart were
// one error.
TEST(TwoLevel, PiecesAreRoundedWithDrawsOfTheirOwn) {
  for (const std::string spec : {"qsgd:bits=2,combine=sra", "qsgd:bits=2,combine=gather",
                                 "absmax:bits=2,rounding=stochastic,combine=gather",
                                 "absmax:bits=2,transform=hadamard,combine=gather",
                                 "minmax:bits=2,transform=hadamard,combine=sra"}) {
    for (const int owners : {2, 4}) {
      const std::size_t n = 4096;
      Flat grad(n, 0.25F);
      for (std::size_t i = 0; i < n; i += 512) grad[i] = 1;
      const std::vector<Flat> grads(static_cast<std::size_t>(2 * owners), grad);
      std::vector<int> nodes;
      for (int rank = 0; rank < 2 * owners; ++rank) nodes.push_back(rank / owners);
      const Flat mean = average(spec + ",intra_node=none", grads, nodes).means[0];
      const std::size_t piece = n / static_cast<std::size_t>(owners);
      for (std::size_t begin = piece; begin < n; begin += piece) {
        std::size_t equal = 0;
        for (std::size_t i = 0; i < piece; ++i) equal += mean[i] == mean[begin + i] ? 1 : 0;
        EXPECT_LT(equal, 3 * piece / 4) << spec << ", the piece from " << begin;
      }
    }
  }
}

TEST(TwoLevel, OneNodeIsExact) {
  const JobOutcome outcome =
      average("topk:k=1,min_elems=0,intra_node=none,ef=ef14", kFour, {0, 0, 0, 0});
  EXPECT_THAT(outcome.means[0], ElementsAre(3, 1, 1.5F, -1));
  EXPECT_TRUE(kept(outcome, "w.outer.error").empty());
}

// Pieces of what is not compressed: sums inside nodes, of those sums, and all of them everywhere.
TEST(TwoLevel, NoneAddsUpNodesAndThenTheirSums) {
  const JobOutcome outcome = average("none:intra_node=none", kFour, {0, 0, 1, 1});
  EXPECT_THAT(outcome.means[0], ElementsAre(3, 1, 1.5F, -1));
  const JobOutcome uneven = average("none:intra_node=none", kFour, {0, 1, 1, 1});
  EXPECT_THAT(uneven.means[0], ElementsAre(FloatEq(3), FloatEq(1), FloatEq(1.5F), FloatEq(-1)));
}

TEST(TwoLevel, UnknownNodesAreRanksAndAWarning) {
  const JobOutcome outcome = average("topk:k=1,min_elems=0,intra_node=none", kFour, {});
  EXPECT_THAT(outcome.means[0], ElementsAre(2, 1, 0, -2));
  EXPECT_THAT(outcome.warnings, ::testing::Contains(HasSubstr("node_of")));
}

// 2 nodes of 2 ranks, 4,096 elements. Inside a node dense halves are scattered and gathered; of
// each half, between nodes, its halves travel packed, twice.
TEST(TwoLevel, BytesAreTheClosedForm) {
  Job job;
  job.compressor = "minmax:bits=4,combine=sra,intra_node=none";
  job.tensors = {{"w", Shape::matrix(64, 64)}};
  job.ranks = 4;
  job.steps = 2;
  job.node_of = {0, 0, 1, 1};
  const JobOutcome outcome = run_job(job);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  const std::uint64_t inside = 2 * 2048 * 4;
  const std::uint64_t between = 2 * (1024 / 2 + 2 * 8);
  for (const AggregateStats& stats : outcome.stats_of_last_step) {
    EXPECT_EQ(stats.wire_bytes, inside + between);
  }
  // Packed: what is sent, twice, and received, and the shard that is summed and decoded.
  for (const AggregateStats& stats : outcome.stats) EXPECT_GE(stats.held_bytes, 2 * between);
}

TEST(TwoLevel, RefusesWhatItCannotServe) {
  const auto refusal = [](const std::string& spec, AggregateForm form = AggregateForm::kAllReduce,
                          Code code = Code::kInvalidArgument) {
    Job job;
    job.compressor = spec;
    job.form = form;
    job.tensors = {{"w", Shape::matrix(64, 64)}};
    job.ranks = 2;
    const JobOutcome outcome = run_job(job);
    EXPECT_EQ(outcome.status.code(), code) << spec;
    return outcome.status;
  };
  EXPECT_THAT(refusal("none:intra_node=cast:bf16"), fails(kInvalid, "intra_node=none"));
  EXPECT_THAT(refusal("topk:k=3,inter_node=nccl"),
              fails(kInvalid, "inter_node", "intra_node=none"));
  EXPECT_THAT(refusal("topk:k=3,intra_node=none,inter_node=ucx"),
              fails(kInvalid, "inter_node", "ucx", "messages", "nccl"));
  EXPECT_THAT(refusal("topk:k=3,intra_node=none,inter_node=nccl", AggregateForm::kAllReduce,
                      Code::kUnsupported),
              fails(Code::kUnsupported, "NCCL", "inter_node=messages"));
  EXPECT_THAT(refusal("topk:k=3,intra_node=topk"),
              fails(kInvalid, "intra_node=topk", "ratio", "k"));
  EXPECT_THAT(refusal("topk:k=3,intra_node=lossless"),
              fails(kInvalid, "lossless", "intra_node=none"));
  EXPECT_THAT(refusal("topk:k=3,intra_node=cast:bf16,ef=ef14"),
              fails(kInvalid, "ef", "intra_node=none"));
  EXPECT_THAT(refusal("qsgd:bits=4,intra_node=none", AggregateForm::kReduceScatter),
              fails(kInvalid, "intra_node", "sharded"));
}

}  // namespace
}  // namespace gradwire::testing::two_level_test
