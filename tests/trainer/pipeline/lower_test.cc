// Where transfers and the operations of a step's end go.
#include "trainer/pipeline/lower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/trainer/pipeline/every_schedule.h"
#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/text.h"

namespace gradwire::lower_test {
namespace {

// The lines of the ranks.
std::string lists_of(const PipelineSchedule& schedule) {
  const std::string text = pipeline_text(schedule);
  return text.substr(text.find("rank 0:"));
}

std::vector<PipelineOp> without_transfers(std::vector<PipelineOp> ops) {
  std::erase_if(ops, [](const PipelineOp& op) { return is_transfer(op.kind); });
  return ops;
}

TEST(PipelineLowering, TaggedReceivesArePostedOneComputationAhead) {
  EXPECT_EQ(lists_of(lower_pipeline(one_f_one_b_schedule(2, 3), PipelineLinks::kTagged).value()),
            "rank 0: 0F0 0SF0 0RB0 0F1 0SF1 0B0 0RB1 0F2 0SF2 0RB2 0B1 0B2\n"
            "rank 1: 1RF0 1F0 1RF1 1B0 1SB0 1F1 1RF2 1B1 1SB1 1F2 1B2 1SB2\n");
}

TEST(PipelineLowering, OrderedTransfersFollowTheListOfAllMessages) {
  // Ends of what makes them: 0F0 1, 0F1 2, 1B0 4, 0F2 7, ...: each before what starts then or
  // later.
  EXPECT_EQ(lists_of(lower_pipeline(one_f_one_b_schedule(2, 3), PipelineLinks::kOrdered).value()),
            "rank 0: 0F0 0SF0 0F1 0SF1 0RB0 0B0 0F2 0RB1 0SF2 0B1 0RB2 0B2\n"
            "rank 1: 1RF0 1F0 1RF1 1B0 1SB0 1F1 1B1 1SB1 1RF2 1F2 1B2 1SB2\n");
}

TEST(PipelineLowering, EveryBoundaryIsCrossedOnceEachWayAndComputationsStayInOrder) {
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule schedule = with_step_ops(one.schedule(), {.reduce = true, .tied = true});
    for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
      const PipelineSchedule lowered = lower_pipeline(schedule, links).value();
      std::ptrdiff_t transfers = 0;
      for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
        EXPECT_EQ(without_transfers(lowered.ranks[rank]), schedule.ranks[rank]) << one.text();
        transfers += std::ranges::count_if(
            lowered.ranks[rank], [](const PipelineOp& op) { return is_transfer(op.kind); });
      }
      // Two ends, two directions; one rank's stages need none.
      EXPECT_EQ(transfers, 4 * crossed_boundaries(schedule) * one.micro_batches) << one.text();
    }
  }
}

TEST(PipelineLowering, AnInvalidScheduleIsRefused) {
  const auto schedule = parse_pipeline("0F0,0B0\n1F0,1F1,1B0\n").value();
  for (const PipelineLinks links :
       {PipelineLinks::kDirect, PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
    EXPECT_THAT(lower_pipeline(schedule, links).error(), fails(Code::kInvalidArgument, "0F1"));
  }
}

TEST(PipelineForwardPart, HasTheForwardsAndTheirTransfersAlone) {
  const PipelineSchedule lowered =
      lower_pipeline(with_step_ops(one_f_one_b_schedule(2, 2), {.reduce = true, .tied = true}),
                     PipelineLinks::kOrdered)
          .value();
  EXPECT_EQ(lists_of(forward_part(lowered)),
            "rank 0: 0F0 0SF0 0F1 0SF1\n"
            "rank 1: 1RF0 1F0 1RF1 1F1\n");
  EXPECT_EQ(
      lists_of(forward_part(with_step_ops(breadth_first_schedule(1, 2, 2), {.sharded = true}))),
      "rank 0: 0UNSHARD 0F0 0F1 0RESHARD 1UNSHARD 1F0 1F1 1RESHARD\n");
}

TEST(PipelineForwardPart, ComesToItsEndUnderEveryLinks) {
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule whole = with_step_ops(one.schedule(), {.tied = true, .sharded = true});
    for (const PipelineLinks links :
         {PipelineLinks::kDirect, PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
      const PipelineSchedule part = forward_part(lower_pipeline(whole, links).value());
      EXPECT_THAT(blocked_frontier(part, links), ::testing::IsEmpty()) << one.text();
      const auto forwards = [](const PipelineSchedule& schedule) {
        std::ptrdiff_t count = 0;
        for (const auto& ops : schedule.ranks) {
          count += std::ranges::count(ops, PipelineOpKind::kForward, &PipelineOp::kind);
        }
        return count;
      };
      EXPECT_EQ(forwards(part), forwards(whole)) << one.text();
    }
  }
}

TEST(PipelineStepOps, TiedReductionsComeLastAndBeforeTheAverage) {
  const PipelineSchedule schedule = breadth_first_schedule(2, 1, 2);
  EXPECT_EQ(lists_of(with_step_ops(schedule, {})),
            "rank 0: 0F0 2F0 2B0 0B0 2OPT 0OPT\n"
            "rank 1: 1F0 3F0 3B0 1B0 3OPT 1OPT\n");
  EXPECT_EQ(lists_of(with_step_ops(schedule, {.reduce = true, .tied = true})),
            "rank 0: 0F0 2F0 2B0 2RG 0B0 0RT 0RG 2OPT 0OPT\n"
            "rank 1: 1F0 3F0 3B0 1B0 1RG 3RT 3RG 3OPT 1OPT\n");
  EXPECT_EQ(lists_of(with_step_ops(gpipe_schedule(1, 1), {.reduce = true, .tied = true})),
            "rank 0: 0F0 0B0 0RG 0OPT\n");
}

TEST(PipelineStepOps, ShardedParametersAreGatheredOnceForEachRunOfAStage) {
  EXPECT_EQ(lists_of(with_step_ops(breadth_first_schedule(1, 2, 2), {.sharded = true})),
            "rank 0: 0UNSHARD 0F0 0F1 0RESHARD 1UNSHARD 1F0 1F1 1B0 1B1 1RESHARD 0UNSHARD 0B0 0B1 "
            "0RESHARD 1OPT 0OPT\n");
}

}  // namespace
}  // namespace gradwire::lower_test
