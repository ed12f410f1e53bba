// Pictures of simulated schedules.
#include "trainer/pipeline/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/lower.h"

namespace gradwire::draw_test {
namespace {

using ::testing::HasSubstr;

struct Drawn {
  PipelineSchedule schedule;
  PipelineSimulation run;
};

Drawn drawn(PipelineSchedule schedule, std::int64_t alpha = 0) {
  PipelineCosts costs = even_costs(schedule.stages(), 2, 2, 2);
  for (PipelineStageCost& stage : costs.stages) stage.reduce_gradients = 3;
  costs.link.alpha = alpha;
  auto run = simulate_pipeline(schedule, costs);
  EXPECT_TRUE(run.has_value()) << run.error().message();
  return {std::move(schedule), std::move(run).value()};
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PipelinePictures, TextHasAColumnForEachUnit) {
  const Drawn one = drawn(one_f_one_b_schedule(3, 3));
  EXPECT_EQ(pipeline_picture(one.schedule, one.run),
            "rank 0: F0 F1 F2 .  .  .  .  B0 -  .  B1 -  .  B2 -\n"
            "rank 1: .  F0 F1 .  .  B0 -  F2 B1 -  .  B2 -  .  .\n"
            "rank 2: .  .  F0 B0 -  F1 B1 -  F2 B2 -  .  .  .  .\n");
}

TEST(PipelinePictures, StagesAreNamedWhereRanksHaveSeveral) {
  const Drawn one = drawn(breadth_first_schedule(2, 1, 2));
  EXPECT_EQ(pipeline_picture(one.schedule, one.run),
            "rank 0: 0F0 .   2F0 .   .   .   2B0 -   .   .   0B0 -\n"
            "rank 1: .   1F0 .   3F0 3B0 -   .   .   1B0 -   .   .\n");
  EXPECT_EQ(pipeline_picture(one.schedule, one.run, 3),
            "rank 0: 0F0 .   2F0 ...\n"
            "rank 1: .   1F0 .   ...\n");
}

TEST(PipelinePictures, SvgHasABoxForEachOperationThatTakesTime) {
  const Drawn one = drawn(zero_bubble_h1_schedule(2, 3));
  const std::string svg = pipeline_svg(one.schedule, one.run);
  EXPECT_EQ(count_of(svg, "<rect "), count_ops(one.schedule));
  EXPECT_THAT(svg, HasSubstr("<title>1W2, "));
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
}

TEST(PipelinePictures, TraceHasOperationsMessagesAndReductions) {
  const Drawn one = drawn(with_step_ops(one_f_one_b_schedule(2, 2), {.reduce = true}), 1);
  const std::string trace = pipeline_trace(one.schedule, one.run);
  // 8 operations, 4 messages, 2 reductions; steps take no time.
  EXPECT_EQ(count_of(trace, "\"ph\":\"X\""), 14U);
  EXPECT_THAT(trace, HasSubstr(R"({"ph":"X","name":"0F1","pid":0,"tid":0,"ts":2,"dur":2})"));
  EXPECT_THAT(trace,
              HasSubstr(R"({"ph":"X","name":"0SF0 to rank 1","pid":0,"tid":1,"ts":2,"dur":1})"));
  EXPECT_THAT(trace, HasSubstr(R"("name":"RG","pid":1,"tid":2)"));
  EXPECT_THAT(trace, HasSubstr("[\n{\"ph\":\"M\""));
}

}  // namespace
}  // namespace gradwire::draw_test
