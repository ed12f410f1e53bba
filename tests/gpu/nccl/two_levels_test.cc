// Aggregators over NCCL, on two levels above all: what goes by it, what by messages, and how they
// end. Over the library that plays NCCL, on the device that the host plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/nccl/hanging_device.h"
#include "tests/gpu/nccl/level_jobs.h"
#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/support/names.h"

namespace gradwire::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// The job over NCCL, its gradients on the device.
Job over_nccl(Job job) {
  job = there(std::move(job));
  job.join = [](GroupCommunicator& world) -> Status {
    GW_ASSIGN(auto path, make_nccl_path(world.members(), {GW_FAKE_NCCL}, 0, 60));
    world.add_path(std::move(path));
    return Status();
  };
  return job;
}

class NcclLevels : public gpu::OverFakeNccl {
 protected:
  // The job's log: what NCCL was called for.
  std::string expect_host_bits(const std::string& spec, const std::vector<int>& node_of) {
    const Job here = host_job(spec, node_of);
    Job device = over_nccl(here);
    device.compressor = spec;
    expect_equal(here, device);
    return fake_.take_log();
  }
};

class NcclLevelsOf : public NcclLevels, public ::testing::WithParamInterface<std::string> {};

TEST_P(NcclLevelsOf, HaveTheHostsBits) {
  const std::string log = expect_host_bits(GetParam() + ",intra_node=none", {0, 0, 1, 1});
  EXPECT_THAT(log, AllOf(HasSubstr("ncclReduce "), HasSubstr("ncclBroadcast ")));
}
TEST_P(NcclLevelsOf, OfUnequalNodesHaveTheHostsBits) {
  (void)expect_host_bits(GetParam() + ",intra_node=none", {0, 1, 1});
}
TEST_P(NcclLevelsOf, JoinedByNcclHaveTheHostsBits) {
  const Job here = host_job(GetParam() + ",intra_node=none", {0, 0, 1, 1});
  Job device = over_nccl(here);
  device.compressor = "bias=none:intra_node=none,inter_node=nccl;*=" + GetParam() +
                      ",intra_node=none,inter_node=nccl";
  expect_equal(here, device);
}
INSTANTIATE_TEST_SUITE_P(Specs, NcclLevelsOf,
                         ::testing::Values("none:min_elems=0", "cast:bf16", "qsgd:bits=4",
                                           "qsgd:bits=2,ef=ef14", "topk:ratio=0.05,ef=ef14",
                                           "threshold:0.4,ef=ef14", "powersgd:rank=2,ef=ef14",
                                           "topk:ratio=0.05,combine=oktopk,ef=ef14"));

// Shards of sra are sent to their owners, which inside a node nothing is.
TEST_F(NcclLevels, NodesAreJoinedByMessagesUnlessNcclIsAskedFor) {
  const auto log_of = [&](const std::string& between) {
    Job job = over_nccl(host_job("qsgd:bits=4,intra_node=none", {0, 0, 1, 1}));
    job.compressor = "qsgd:bits=4,intra_node=none" + between;
    const JobOutcome outcome = run_job(job);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    return std::string(fake_.take_log());
  };
  EXPECT_THAT(log_of(""), AllOf(HasSubstr("ncclReduce "), Not(HasSubstr("ncclSend "))));
  EXPECT_THAT(log_of(",inter_node=nccl"), AllOf(HasSubstr("ncclReduce "), HasSubstr("ncclSend ")));
}

// On one level, too: what is chosen lies on the device, its pairs on the host.
TEST_F(NcclLevels, PairsOfOkTopkTravelAsMessages) {
  const Job here = job_of("topk:ratio=0.05,combine=oktopk,ef=ef14,min_elems=0,dense_1d=false", 3);
  expect_equal(here, over_nccl(here));
  EXPECT_THAT(std::string(fake_.take_log()), Not(HasSubstr(": count")));
}

struct SharedScales {
  std::string spec;
  std::ptrdiff_t scaled_together;  // elements from the first on that have the first one's scale
};

// Scales of ranks are shared as a maximum: a rank's NaN is everybody's, and so are the elements
// that were scaled by it, as docs/wire_formats.md says.
class NcclSharedScales : public NcclLevels, public ::testing::WithParamInterface<SharedScales> {};

// Of rank 1 in the second step.
Job job_with_a_nan(const std::string& spec) {
  Job made = job_of(spec, 2);
  made.tensors = {{"first", Shape::matrix(70, 61)}};
  made.steps = 2;
  made.algorithm = "auto";
  made.gradient = [](const std::string& tensor, int rank, int step, std::int64_t e) {
    const bool bad = rank == 1 && step == 1 && e == 3;
    return bad ? std::numeric_limits<float>::quiet_NaN() : default_gradient(tensor, rank, step, e);
  };
  return made;
}

TEST_P(NcclSharedScales, ANanOfOneRankIsInAllRanksMeans) {
  const Job here = job_with_a_nan(GetParam().spec);
  const JobOutcome messages = run_job(here);
  const JobOutcome outcome = run_job(over_nccl(here));
  ASSERT_TRUE(messages.status.ok()) << messages.status.message();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_THAT(std::string(fake_.take_log()), HasSubstr(" type 2 op 2 in place"));
  EXPECT_EQ(outcome.first_difference, -1);
  ASSERT_EQ(outcome.means.size(), 2U);
  EXPECT_TRUE(outcome.means[0] == messages.means[0]);
  const auto is_nan = [](float x) { return std::isnan(x); };
  const Flat& means = outcome.means[1];
  const auto first_number = std::ranges::find_if_not(means, is_nan);
  EXPECT_EQ(first_number - means.begin(), GetParam().scaled_together);
  EXPECT_TRUE(std::none_of(first_number, means.end(), is_nan));
  EXPECT_TRUE(std::equal(first_number, means.end(),
                         messages.means[1].begin() + GetParam().scaled_together));
}
TEST_F(NcclLevels, ANanOfOneRankIsAnErrorWhereResidualsAreKept) {
  const JobOutcome outcome = run_job(over_nccl(job_with_a_nan("terngrad:ef=ef14")));
  ASSERT_EQ(outcome.statuses.size(), 2U);
  for (const Status& status : outcome.statuses) {
    EXPECT_TRUE(names_all(status.message(), "step 1", "bucket 0", "phase 0", "finite"))
        << code_and_message(status);
  }
}
INSTANTIATE_TEST_SUITE_P(Specs, NcclSharedScales,
                         ::testing::Values(SharedScales{"terngrad", 70 * 61},
                                           SharedScales{"global_qsgd:bits=4,bucket=128", 128},
                                           SharedScales{"thc:block=64", 64}));

// Before: over one level, by NCCL between nodes.
TEST_F(NcclLevels, WhatIsNotCompressedIsJoinedByMessagesToo) {
  Job job = over_nccl(host_job("topk:ratio=0.05,intra_node=none", {0, 1}));
  job.compressor = "topk:ratio=0.05,intra_node=none,warmup_steps=1";
  const JobOutcome outcome = run_job(job);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  // Nodes of one rank: whatever NCCL is called for is among one rank.
  EXPECT_THAT(std::string(fake_.take_log()), Not(HasSubstr("rank 1: count")));
}

// Every rank has its gradients, and has enqueued what comes before NCCL, when the device hangs.
TEST_F(NcclLevels, ADeviceThatHangsInsideANodeEndsAllRanksAtTheDeadline) {
  constexpr int kRanks = 4;
  std::atomic<int> encoded = 0;
  const CommunicatorOptions options{.deadline_seconds = 0.5, .node_of = {0, 0, 1, 1}};
  const auto texts = gpu::on_nccl_threads(
      kRanks, options, {GW_FAKE_NCCL}, [&](std::unique_ptr<Communicator> world) -> std::string {
        auto gradients = GradientsAt::make(kFirstDevice, {Shape::matrix(50, 50)});
        if (!gradients.has_value()) return std::string(gradients.error().message());
        AggregatorOptions own{.compressor = "qsgd:bits=4,intra_node=none"};
        own.on_span = [&](const AggregateSpan& span) {
          if (span.kind != AggregateSpan::Kind::kEncode || span.phase > 0) return;
          gpu::hang_when_all_are(encoded, kRanks);
        };
        auto aggregator = Aggregator::create(*world, Registry::builtin(), own);
        if (!aggregator.has_value()) return std::string(aggregator.error().message());
        GradientsAt& mine = *gradients.value();
        if (!mine.add_to(*aggregator.value()).ok()) return "not added";
        const Status ended = mine.average(*aggregator.value(), world->rank(), 0);
        return code_and_message(ended);
      });
  gpu::device_hangs = false;
  EXPECT_THAT(texts,
              Each(tells("step 0", "bucket 0", "phase 0", "reduce_scatter_v", "operation", "0.5")));
}

// Found between nodes, by the owner of the shard: the first rank of the first node.
TEST_F(NcclLevels, ARankThatFailsBetweenNodesEndsAllAndIsNamed) {
  Job job = over_nccl(host_job("qsgd:bits=2,ef=ef14,intra_node=none", {0, 0, 1, 1}));
  job.compressor = "qsgd:bits=2,ef=ef14,intra_node=none";
  job.tensors = {{"large", Shape::matrix(101, 701)}};
  job.bucket_bytes = 1 << 20;
  job.gradient = [](const std::string&, int rank, int step, std::int64_t e) {
    return rank == 1 && step == 1 && e == 0 ? std::numeric_limits<float>::quiet_NaN() : 1.0F;
  };
  const JobOutcome outcome = run_job(job);
  for (std::size_t rank = 0; rank < outcome.statuses.size(); ++rank) {
    const Status& status = outcome.statuses[rank];
    EXPECT_TRUE(names_all(status.message(), "step 1", "bucket 0", "finite", "'large.outer'"))
        << status.message();
    EXPECT_EQ(rank > 0, status.code() == Code::kPeerLost && names(status.message(), "rank 0"))
        << code_and_message(status);
  }
}

}  // namespace
}  // namespace gradwire::testing
