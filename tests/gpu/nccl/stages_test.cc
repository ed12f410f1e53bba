// Stages of a pipeline over NCCL, which a library plays among threads: messages in one order,
// without tags, on the streams that compute.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/nccl/nccl_training.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/support/fails.h"

namespace gradwire {
namespace {

using gpu::StageJob;
using gpu::StageOutcome;

class StagesOverNccl : public gpu::OverFakeNccl {
 protected:
  static std::vector<StageOutcome> train(const StageJob& job) { return gpu::train_over_nccl(job); }

  void expect_whole_bits(StageJob job, const std::vector<int>& stages,
                         const std::vector<PipelineKind>& kinds = {
                             PipelineKind::kOneFOneB, PipelineKind::kGpipe,
                             PipelineKind::kInterleaved, PipelineKind::kZeroBubbleH1}) {
    job.algorithm = "auto";  // NCCL's
    StageJob alone = job;
    alone.stages = 1;
    const StageOutcome whole = train(alone)[0];
    for (const PipelineKind kind : kinds) {
      for (const int p : stages) {
        job.spec.kind = kind;
        job.stages = p;
        for (const StageOutcome& rank : train(job)) {
          EXPECT_EQ(difference(rank, whole), "") << job.spec.text() << " pp=" << p;
        }
      }
    }
  }
};

TEST_F(StagesOverNccl, HaveTheBitsOfAWholeModelThere) {
  expect_whole_bits({.family = gpu::stage_mlp()}, {2, 3});
  expect_whole_bits({.family = gpu::stage_resnet()}, {2});
}

TEST_F(StagesOverNccl, WithTiedEndsAndReplicas) {
  // A played device takes seconds for a run of it.
  expect_whole_bits({.family = gpu::stage_gpt(), .steps = 1, .optimizer = "adamw"}, {3},
                    {PipelineKind::kOneFOneB, PipelineKind::kZeroBubbleH1});
  expect_whole_bits({.family = gpu::stage_mlp(), .replicas = 2}, {2});
}

// 3 steps of 4 micro-batches, each forward and, while training, back; the evaluation's forwards.
TEST_F(StagesOverNccl, SendEveryMessageByIt) {
  fake_.take_log();
  for (const StageOutcome& rank :
       train({.family = gpu::stage_mlp(), .stages = 2, .algorithm = "auto"})) {
    ASSERT_EQ(rank.fault, "");
  }
  const std::string log = fake_.take_log();
  const auto count = [&](const std::string& name) {
    std::size_t found = 0;
    for (std::size_t at = log.find(name); at != std::string::npos; at = log.find(name, at + 1)) {
      ++found;
    }
    return found;
  };
  EXPECT_EQ(count("ncclSend rank 1: "), 3U * 4);
  EXPECT_GE(count("ncclSend rank 0: "), 3U * 4 + 4);
  EXPECT_EQ(count("ncclSend rank 0: "), count("ncclRecv rank 1: "));
}

// Links with tags are not NCCL's.
TEST_F(StagesOverNccl, RefuseTags) {
  const auto schedule = generate_pipeline({}, 2, 2);
  ASSERT_TRUE(schedule.has_value());
  const auto said = gpu::on_nccl_threads(
      2, {}, {GW_FAKE_NCCL}, [&](std::unique_ptr<Communicator> world) -> std::string {
        const gpu::OwnStream own;
        EXPECT_EQ(links_of(*world, own.stream().device), PipelineLinks::kOrdered);
        EXPECT_EQ(links_of(*world, Device{}), PipelineLinks::kTagged);
        return std::string(CommunicatorTransfers::create(*world, schedule.value(),
                                                         PipelineLinks::kTagged, own.stream())
                               .error()
                               .message());
      });
  EXPECT_THAT(said, ::testing::Each(::testing::HasSubstr("NCCL")));
}

}  // namespace
}  // namespace gradwire
