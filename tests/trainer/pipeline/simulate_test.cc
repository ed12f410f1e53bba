// Simulated times against closed forms, exactly.
#include "trainer/pipeline/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/trainer/pipeline/every_schedule.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/text.h"

namespace gradwire::simulate_test {
namespace {

struct Times {
  std::int64_t forward;
  std::int64_t input;
  std::int64_t weight;
  std::int64_t sum() const { return forward + input + weight; }
};
constexpr std::array kTimes{Times{1, 1, 1}, Times{2, 3, 1}, Times{5, 5, 2}, Times{3, 1, 0}};

PipelineSimulation run(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  auto result = simulate_pipeline(schedule, costs);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return std::move(result).value();
}
PipelineSimulation run(const PipelineSchedule& schedule, const Times& times) {
  return run(schedule, even_costs(schedule.stages(), times.forward, times.input, times.weight));
}

TEST(PipelineSimulation, BubbleOfGpipeAndOneFOneB) {
  for (const PipelineKind kind : {PipelineKind::kGpipe, PipelineKind::kOneFOneB}) {
    for (const auto& [p, m] : std::vector<std::pair<int, int>>{
             {1, 5}, {2, 4}, {4, 4}, {4, 8}, {4, 16}, {8, 32}, {3, 5}, {8, 3}, {5, 1}}) {
      for (const Times& times : kTimes) {
        const auto result = run(generate_pipeline({.kind = kind}, p, m).value(), times);
        EXPECT_EQ(result.makespan, (m + p - 1) * times.sum());
        EXPECT_EQ(result.busy_total(), std::int64_t{p} * m * times.sum());
        // Idle over busy is (p - 1) / m, over all (p - 1) / (m + p - 1).
        EXPECT_EQ(result.idle_total() * m, result.busy_total() * (p - 1));
        EXPECT_DOUBLE_EQ(result.bubble_of_busy(), (p - 1.0) / m);
        EXPECT_DOUBLE_EQ(result.bubble_of_all(), (p - 1.0) / (m + p - 1.0));
      }
    }
  }
}

TEST(PipelineSimulation, BubbleShrinksWithMoreMicroBatchesAndFewerRanks) {
  for (const PipelineKind kind : kGeneratedPipelines) {
    // Of even numbers alone; without a flush.
    if (kind == PipelineKind::kChimera || is_asynchronous(kind)) continue;
    for (int p = 2; p <= 6; ++p) {
      double before = 1e9;
      // Multiples of p: interleaved schedules claim no more.
      for (int m = p; m <= 6 * p; m += p) {
        const double bubble =
            run(generate_pipeline({.kind = kind}, p, m).value(), {1, 1, 1}).bubble_of_busy();
        EXPECT_LT(bubble, before) << to_string(kind) << " p=" << p << " m=" << m;
        before = bubble;
      }
    }
    double before = -1;
    for (const int p : {1, 2, 3, 4, 6, 12}) {
      const double bubble =
          run(generate_pipeline({.kind = kind}, p, 12).value(), {1, 1, 1}).bubble_of_busy();
      EXPECT_GT(bubble, before) << to_string(kind) << " p=" << p;
      before = bubble;
    }
  }
}

TEST(PipelineSimulation, UtilisationWithFourAndEightMicroBatchesARank) {
  for (const int p : {4, 8, 16}) {
    for (const int factor : {4, 8}) {
      const int m = factor * p;
      const auto result = run(one_f_one_b_schedule(p, m), {1, 1, 1});
      EXPECT_DOUBLE_EQ(1 - result.bubble_of_all(), static_cast<double>(m) / (m + p - 1));
    }
  }
  EXPECT_NEAR(1 - run(one_f_one_b_schedule(16, 64), {1, 1, 1}).bubble_of_all(), 0.810, 0.0005);
  EXPECT_NEAR(1 - run(one_f_one_b_schedule(16, 128), {1, 1, 1}).bubble_of_all(), 0.895, 0.0005);
}

TEST(PipelineSimulation, LatencyCostsOneFOneBMoreThanGpipe) {
  // A hop takes a tenth of a forward; ticks are such tenths.
  const auto makespan = [](const PipelineSchedule& schedule) {
    PipelineCosts costs = even_costs(schedule.stages(), 10, 10, 10);
    costs.link.alpha = 1;
    return run(schedule, costs).makespan;
  };
  EXPECT_EQ(makespan(one_f_one_b_schedule(4, 16)), 598);
  EXPECT_EQ(makespan(gpipe_schedule(4, 16)), 576);
}

TEST(PipelineSimulation, BubbleOfInterleavedIsDividedByChunks) {
  for (const auto& [p, m, v] : std::vector<std::array<int, 3>>{
           {2, 4, 2}, {4, 8, 2}, {4, 8, 4}, {4, 16, 2}, {8, 16, 2}, {3, 6, 3}, {4, 4, 1}}) {
    for (const Times& times : kTimes) {
      const auto result = run(interleaved_schedule(p, m, v), times);
      EXPECT_EQ(result.idle_total() * m * v, result.busy_total() * (p - 1)) << p << m << v;
    }
  }
}

TEST(PipelineSimulation, BubbleOfBreadthFirstIsDividedByChunks) {
  for (const auto& [p, m, v] :
       std::vector<std::array<int, 3>>{{2, 4, 2}, {4, 8, 2}, {4, 4, 4}, {4, 13, 2}, {3, 5, 3}}) {
    const auto result = run(breadth_first_schedule(p, m, v), {1, 1, 1});
    EXPECT_EQ(result.idle_total() * m * v, result.busy_total() * (p - 1)) << p << m << v;
  }
}

TEST(PipelineSimulation, BoundaryBytesGrowWithChunks) {
  const auto bytes = [](const PipelineSchedule& schedule) {
    PipelineCosts costs = even_costs(schedule.stages(), 1, 1, 1);
    for (PipelineStageCost& stage : costs.stages) stage.output_bytes = stage.input_bytes = 7;
    std::int64_t all = 0;
    for (const PipelineMessage& message : run(schedule, costs).messages) all += message.bytes;
    return all;
  };
  for (const auto& [p, m, v] : std::vector<std::array<int, 3>>{{2, 4, 2}, {4, 8, 3}, {8, 16, 2}}) {
    const std::int64_t once = bytes(one_f_one_b_schedule(p, m));
    EXPECT_EQ(once, 2 * 7 * m * (p - 1));
    // (p v - 1) / (p - 1) times, not v times.
    EXPECT_EQ(bytes(interleaved_schedule(p, m, v)) * (p - 1), once * (p * v - 1));
  }
}

TEST(PipelineSimulation, BubbleOfZeroBubbleH1) {
  for (const Times& times :
       {Times{1, 1, 1}, Times{5, 6, 4}, Times{10, 11, 9}, Times{5, 5, 3}, Times{4, 5, 0}}) {
    ASSERT_LE(times.weight, std::min(times.forward, times.input));
    for (int p = 1; p <= 8; ++p) {
      for (int m = p; m <= 4 * p; ++m) {
        const auto result = run(zero_bubble_h1_schedule(p, m), times);
        EXPECT_EQ(result.makespan,
                  m * times.sum() + (p - 1) * (times.forward + times.input - times.weight))
            << "p=" << p << " m=" << m;
      }
    }
  }
}

// Of the rank that has most: ticks between its first and its last operation in which it has none.
std::int64_t longest_wait(const PipelineSchedule& schedule, const Times& times) {
  const PipelineSimulation result = run(schedule, times);
  std::int64_t longest = 0;
  for (std::size_t rank = 0; rank < result.spans.size(); ++rank) {
    const std::int64_t all = result.spans[rank].back().end - result.spans[rank].front().begin;
    longest = std::max(longest, all - result.busy[rank]);
  }
  return longest;
}

int most_contexts(const PipelineSchedule& schedule) {
  const std::vector<int> contexts = check_pipeline(schedule).contexts;
  return *std::ranges::max_element(contexts);
}

// A stage of two has half of a rank's layers: 1 tick for each operation, and 1F1B's take 2.
TEST(PipelineSimulation, PP14_WaitsAndContextsInV) {
  for (int p = 1; p <= 9; ++p) {
    for (int m = 2 * p; m <= 4 * p + 1; ++m) {
      const std::int64_t waits = longest_wait(one_f_one_b_schedule(p, m), {2, 2, 2});
      ASSERT_EQ(waits, 6 * (p - 1));
      const std::string where = "p=" + std::to_string(p) + " m=" + std::to_string(m);
      const PipelineSchedule whole = zero_bubble_v_schedule(p, m);
      const PipelineSchedule half = zero_bubble_v_half_schedule(p, m);
      const PipelineSchedule least = zero_bubble_v_min_schedule(p, m);
      EXPECT_EQ(longest_wait(whole, {1, 1, 1}), 0) << where;
      EXPECT_LE(2 * longest_wait(half, {1, 1, 1}), waits) << where;
      EXPECT_LE(3 * longest_wait(least, {1, 1, 1}), 2 * waits) << where;
      EXPECT_EQ(most_contexts(whole), 2 * p) << where;
      EXPECT_EQ(most_contexts(half), 2 * ((p + 2) / 2)) << where;
      EXPECT_EQ(most_contexts(least), 2 * ((p + 4) / 3)) << where;
      EXPECT_EQ(run(whole, {1, 1, 1}).makespan, 6 * m + p - 1) << where;
    }
  }
}

// As a run holds them, each stage by itself, they are at most one more.
TEST(PipelineSimulation, MemoryInVIsThatOfItsContexts) {
  for (const int p : {2, 4, 8}) {
    for (const PipelineKind kind : {PipelineKind::kZeroBubbleV, PipelineKind::kZeroBubbleVHalf,
                                    PipelineKind::kZeroBubbleVMin}) {
      const PipelineSchedule schedule = generate_pipeline({.kind = kind}, p, 3 * p).value();
      PipelineCosts costs = even_costs(2 * p, 1, 1, 1);
      for (PipelineStageCost& stage : costs.stages) stage.context_bytes = stage.weight_bytes = 10;
      for (const PipelineMemory& memory : run(schedule, costs).memory) {
        EXPECT_LE(memory.contexts, 10 * (most_contexts(schedule) + 1)) << to_string(kind) << p;
      }
    }
  }
}

TEST(PipelineSimulation, PP11_SpansOfPipesInBothDirections) {
  for (const int p : {2, 4, 6, 8}) {
    EXPECT_EQ(run(chimera_schedule(p, p), Times{1, 1, 0}).makespan, 2 * p + p - 2) << p;
    EXPECT_EQ(run(chimera_schedule(p, p), Times{1, 1, 1}).makespan, 3 * p + 2 * (p - 2)) << p;
  }
  for (const auto& [p, most] : {std::pair(4, 28), std::pair(6, 44), std::pair(8, 60)}) {
    const PipelineSchedule doubled = doubled_chimera_schedule(p);
    EXPECT_LE(run(doubled, Times{1, 1, 1}).makespan, most) << p;
    EXPECT_EQ(most_contexts(doubled), 2 * p);
    EXPECT_EQ(most_contexts(chimera_schedule(p, p)), p);
  }
}

// Costs that differ from stage to stage.
PipelineCosts random_costs(int stages, std::mt19937& random) {
  PipelineCosts costs = even_costs(stages, 0, 0, 0);
  const auto number = [&random](int most) { return static_cast<std::int64_t>(random()) % most; };
  for (PipelineStageCost& stage : costs.stages) {
    stage.forward = number(20);
    stage.backward_input = number(20);
    stage.backward_weight = number(20);
    stage.reduce_gradients = number(30);
    stage.reduce_tied = number(10);
    stage.reduce_replicas = number(10);
    stage.optimizer_step = number(10);
    stage.output_bytes = number(9);
    stage.input_bytes = number(9);
    stage.context_bytes = 20 + number(50);
    stage.weight_bytes = number(20);
  }
  costs.link = {number(4), number(3)};
  return costs;
}

// Of the operations, whatever their order.
std::int64_t sum_of_costs(const PipelineSchedule& schedule, const PipelineCosts& costs) {
  std::int64_t sum = 0;
  const std::int64_t pipes = schedule.pipes();
  for (const PipelineStageCost& stage : costs.stages) {
    sum += schedule.micro_batches * (stage.forward + stage.backward_input + stage.backward_weight) +
           pipes * stage.optimizer_step;
    if (pipes > 1) sum += pipes * stage.reduce_replicas;
    if (!costs.overlap) sum += pipes * stage.reduce_gradients;
  }
  if (schedule.stages() > 1) {
    const bool apart = schedule.rank_of[0].front() != schedule.rank_of[0].back();
    const std::int64_t first = costs.stages.front().reduce_tied;
    const std::int64_t last = costs.stages.back().reduce_tied;
    sum += pipes * (apart ? 2 * std::max(first, last) : first + last);
  }
  return sum;
}

TEST(PipelineSimulation, TimeIsConservedUnderAnyCosts) {
  std::mt19937 random(23);
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule schedule = with_step_ops(one.schedule(), {.reduce = true, .tied = true});
    PipelineCosts costs = random_costs(schedule.stages(), random);
    costs.links = static_cast<PipelineLinks>(random() % 3);
    const auto lowered = lower_pipeline(schedule, costs.links).value();
    const PipelineSimulation result = run(lowered, costs);
    EXPECT_EQ(result.busy_total(), sum_of_costs(schedule, costs)) << one.text();
    for (std::size_t rank = 0; rank < lowered.ranks.size(); ++rank) {
      std::int64_t end = 0;
      std::int64_t busy = 0;
      for (const PipelineSpan& span : result.spans[rank]) {
        EXPECT_GE(span.begin, end) << one.text();
        end = span.end;
        busy += span.ticks();
      }
      EXPECT_EQ(busy, result.busy[rank]) << one.text();
      EXPECT_LE(end, result.makespan) << one.text();
    }
    EXPECT_EQ(result.messages.size(),
              static_cast<std::size_t>(2 * one.micro_batches * crossed_boundaries(schedule)));
  }
}

TEST(PipelineSimulation, FreeLinksMakeAllLoweringsAlike) {
  std::mt19937 random(7);
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule schedule = one.schedule();
    PipelineCosts costs = random_costs(schedule.stages(), random);
    costs.link = {};
    const std::int64_t direct = run(schedule, costs).makespan;
    costs.links = PipelineLinks::kTagged;
    EXPECT_EQ(run(lower_pipeline(schedule, costs.links).value(), costs).makespan, direct)
        << one.text();
    // Under the costs that its list was made with; else a transfer may stand behind another that is
    // late.
    costs = even_costs(schedule.stages(), 1, 1, 1);
    const std::int64_t even = run(schedule, costs).makespan;
    costs.links = PipelineLinks::kOrdered;
    EXPECT_EQ(run(lower_pipeline(schedule, costs.links).value(), costs).makespan, even)
        << one.text();
  }
}

TEST(PipelineSimulation, WithoutOverlapTransfersAndReductionsTakeTheRanksTime) {
  const PipelineSchedule schedule = with_step_ops(one_f_one_b_schedule(2, 1), {.reduce = true});
  PipelineCosts costs = even_costs(2, 10, 10, 10);
  costs.link = {.alpha = 1, .beta = 2};
  for (PipelineStageCost& stage : costs.stages) {
    stage.output_bytes = stage.input_bytes = 3;
    stage.reduce_gradients = 5;
    stage.optimizer_step = 4;
  }
  // F, hop, F, B, hop, B, RG, OPT.
  const std::int64_t makespan = 10 + 7 + 10 + 20 + 7 + 20 + 5 + 4;
  EXPECT_EQ(run(schedule, costs).makespan, makespan);
  costs.overlap = false;
  EXPECT_EQ(run(schedule, costs).makespan, makespan);
  EXPECT_EQ(run(one_f_one_b_schedule(2, 2), costs).makespan,
            // 0F0, hop, 0F1 beside 1F0, hop: 1F1 would start at 34 but 1B0 comes first
            10 + 7 + 10 + 20 + 7 + 10 + 20 + 7 + 20);
  costs.links = PipelineLinks::kOrdered;
  EXPECT_EQ(run(lower_pipeline(schedule, costs.links).value(), costs).makespan, makespan);
}

TEST(PipelineSimulation, WithoutOverlapEveryScheduleComesToItsEnd) {
  std::mt19937 random(5);
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule schedule = one.schedule();
    PipelineCosts costs = random_costs(schedule.stages(), random);
    costs.overlap = false;
    const PipelineSimulation direct = run(schedule, costs);
    costs.links = PipelineLinks::kTagged;
    const PipelineSimulation tagged = run(lower_pipeline(schedule, costs.links).value(), costs);
    EXPECT_EQ(tagged.makespan, direct.makespan) << one.text();
    costs.links = PipelineLinks::kOrdered;
    const PipelineSimulation ordered = run(lower_pipeline(schedule, costs.links).value(), costs);
    EXPECT_EQ(ordered.busy_total(), direct.busy_total()) << one.text();
  }
}

TEST(PipelineSimulation, PortsCarryOneMessageAtATime) {
  // Two forwards of a tick each, whose messages of 5 bytes keep the link for 10 ticks each.
  PipelineCosts costs = even_costs(2, 1, 0, 0);
  costs.link = {.alpha = 3, .beta = 2};
  costs.stages[0].output_bytes = 5;
  const PipelineSimulation result = run(gpipe_schedule(2, 2), costs);
  ASSERT_EQ(result.messages.size(), 4U);
  EXPECT_EQ(result.messages[0].span, (PipelineSpan{1, 14}));
  EXPECT_EQ(result.messages[1].ready, 2);
  EXPECT_EQ(result.messages[1].span, (PipelineSpan{11, 24}));
  // Each pair of ranks may have a link of its own.
  costs.link_of = {{{}, {0, 1}}, {{}, {}}};
  EXPECT_EQ(run(gpipe_schedule(2, 2), costs).messages[1].span, (PipelineSpan{6, 11}));
}

TEST(PipelineSimulation, MemoryIsThatOfContextsAndMessages) {
  PipelineCosts costs;
  const auto contexts = [&](const PipelineSchedule& schedule) {
    costs = even_costs(schedule.stages(), 1, 1, 1);
    for (PipelineStageCost& stage : costs.stages) {
      stage.context_bytes = stage.weight_bytes = 100;
      stage.input_bytes = stage.output_bytes = 10;
    }
    std::vector<std::int64_t> bytes;
    for (const PipelineMemory& memory : run(schedule, costs).memory)
      bytes.push_back(memory.contexts);
    return bytes;
  };
  EXPECT_THAT(contexts(gpipe_schedule(3, 5)), ::testing::ElementsAre(500, 500, 500));
  EXPECT_THAT(contexts(one_f_one_b_schedule(4, 6)), ::testing::ElementsAre(400, 300, 200, 100));
  EXPECT_THAT(contexts(zero_bubble_h1_schedule(3, 6)), ::testing::ElementsAre(300, 300, 300));
  // Each stage keeps room for its most, which the two of a rank have at different times. Rank 0 has
  // 11 open when its first backward begins, 7 of them of the first stage; at the next one all 8 of
  // the first, and 4 is the most of the second. The others likewise: 8 + 4, 7 + 3, 5 + 1.
  EXPECT_THAT(contexts(interleaved_schedule(4, 8, 2)),
              ::testing::ElementsAre(1200, 1200, 1000, 600));
  // All forwards of a stage before its first backward, so both have their most at once.
  EXPECT_THAT(contexts(breadth_first_schedule(2, 4, 2)), ::testing::ElementsAre(800, 800));
  // With recompute a forward keeps its input, and one micro-batch at a time all of its context.
  const auto recomputed = parse_pipeline("0F0,0F1,0F2,0R0,0B0,0R1,0B1,0R2,0B2\n").value();
  EXPECT_THAT(contexts(recomputed), ::testing::ElementsAre(3 * 10 + 90));
  // A message's buffer is there until it has arrived, and at its other end until it has been read.
  costs = even_costs(2, 1, 1, 1);
  costs.stages[0].output_bytes = 10;
  costs.link.alpha = 2;
  const auto memory = run(gpipe_schedule(2, 4), costs).memory;
  EXPECT_EQ(memory[0].sends, 20);
  EXPECT_EQ(memory[1].receives, 30);
  EXPECT_EQ(memory[1].total, 30);
}

TEST(PipelineSimulation, AnIntervalOfStagesMayBeSlow) {
  // The slowest stage sets the pace: m times its ticks, and the others once.
  PipelineCosts costs = even_costs(3, 1, 1, 1);
  costs.stages[1] = {.forward = 4, .backward_input = 4, .backward_weight = 4};
  EXPECT_EQ(run(gpipe_schedule(3, 10), costs).makespan, 10 * 12 + 2 * 3);
}

TEST(PipelineSimulation, WrongCostsAreRefused) {
  const PipelineSchedule schedule = gpipe_schedule(2, 2);
  EXPECT_THAT(simulate_pipeline(schedule, even_costs(3, 1, 1, 1)).error(),
              fails(Code::kInvalidArgument, "3", "2"));
  EXPECT_THAT(simulate_pipeline(schedule, even_costs(2, -1, 1, 1)).error(),
              fails(Code::kInvalidArgument, "forward", "-1"));
  EXPECT_THAT(simulate_pipeline(schedule, even_costs(2, INT64_MAX, 1, 1)).error(),
              fails(Code::kInvalidArgument, "2^62"));
  PipelineCosts costs = even_costs(2, 1, 1, 1);
  costs.link.beta = -3;
  EXPECT_THAT(simulate_pipeline(schedule, costs).error(),
              fails(Code::kInvalidArgument, "beta", "-3"));
  costs.link.beta = 0;
  costs.link_of = {{{}}};
  EXPECT_THAT(simulate_pipeline(schedule, costs).error(), fails(Code::kInvalidArgument, "links"));
  costs.link_of = {};
  costs.links = PipelineLinks::kTagged;
  EXPECT_THAT(simulate_pipeline(schedule, costs).error(), fails(Code::kInvalidArgument, "0SF0"));
}

TEST(PipelineSimulation, LargeSchedulesAreSimulated) {
  const auto schedule = interleaved_schedule(64, 512, 4);
  const auto result = run(schedule, {1, 1, 1});
  EXPECT_EQ(result.idle_total() * 512 * 4, result.busy_total() * 63);
}

}  // namespace
}  // namespace gradwire::simulate_test
