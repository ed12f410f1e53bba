// Both executors of schedules without a flush are the simulator, to the tick.
#include "trainer/pipeline/run/stream_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/support/thread_ranks.h"
#include "tests/trainer/pipeline/virtual_ranks.h"
#include "trainer/pipeline/generators/generators.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/message_room.h"
#include "trainer/pipeline/run/executor.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire::stream_executor_test {
namespace {

using Versions = StreamRule::Versions;

struct Ran {
  std::int64_t makespan = 0;
  std::vector<Status> statuses;
  std::vector<std::vector<TimedOp>> computed;
  std::vector<std::vector<TimedOp>> begun;
};

// `steps` > 0: step by step, by the rule; else the schedule's lists.
Ran run_ranks(const StreamRule& rule, int steps, const PipelineSchedule& schedule,
              const PipelineCosts& costs) {
  const auto size = static_cast<std::size_t>(schedule.size());
  VirtualRanks time(schedule.size(), costs);
  Ran all;
  all.computed.resize(size);
  all.begun.resize(size);
  all.statuses = on_threads<Status>(schedule.size(), [&](int rank) {
    VirtualWork work(schedule, costs, rank, time);
    VirtualTransfers transfers(rank, time);
    const auto run = [&]() -> Status {
      if (steps == 0) {
        GW_ASSIGN(PipelineExecutor executor,
                  PipelineExecutor::create(schedule, rank, {costs.links, costs.overlap}, work,
                                           transfers));
        return executor.run();
      }
      const StageRoom room = message_room(schedule, rank).stages[static_cast<std::size_t>(rank)];
      GW_ASSIGN(StreamExecutor executor,
                StreamExecutor::create(rule, rank, room, false, work, transfers));
      for (int step = 0; step < steps; ++step) {
        GW_TRY(executor.run(step, steps));
        GW_TRY(work.run(rule.step(rank, step, steps, 0, 0).back()));
      }
      return executor.drain();
    };
    const Status status = run();
    time.leave();
    all.computed[static_cast<std::size_t>(rank)] = work.done;
    all.begun[static_cast<std::size_t>(rank)] = transfers.begun;
    return status;
  });
  all.makespan = time.now();
  return all;
}

void expect_simulated(const Ran& ran, const PipelineSchedule& schedule,
                      const PipelineSimulation& run, const std::string& where) {
  for (const Status& status : ran.statuses) ASSERT_TRUE(status.ok()) << where << status.message();
  EXPECT_EQ(ran.makespan, run.makespan) << where;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    std::vector<TimedOp> computed;
    std::vector<TimedOp> begun;
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const PipelineOp& op = schedule.ranks[rank][i];
      (is_transfer(op.kind) ? begun : computed).push_back({op, run.spans[rank][i]});
    }
    EXPECT_TRUE(ran.computed[rank] == computed) << where << " rank " << rank;
    EXPECT_TRUE(ran.begun[rank] == begun) << where << " rank " << rank;
  }
}

PipelineCosts random_stream_costs(int stages, std::mt19937& random) {
  const auto draw = [&](unsigned most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  PipelineCosts costs;
  for (int stage = 0; stage < stages; ++stage) {
    costs.stages.push_back({.forward = draw(9),
                            .backward_input = draw(9),
                            .backward_weight = draw(9),
                            .optimizer_step = draw(6),
                            .output_bytes = draw(4),
                            .input_bytes = draw(4)});
  }
  costs.link = {draw(3), draw(2)};
  return costs;
}

TEST(StreamExecution, IsTheSimulatorToTheTick) {
  std::mt19937 random(11);
  for (const Versions versions : {Versions::kNewest, Versions::kInSync, Versions::kDelayed}) {
    for (int draw = 0; draw < 30; ++draw) {
      const int ranks = 1 + draw % 4;
      const bool delayed = versions == Versions::kDelayed;
      const int micros = delayed ? ranks + static_cast<int>(random() % 3) : 1;
      const int steps = 1 + static_cast<int>(random() % 7);
      const StreamRule rule{.ranks = ranks, .micro_batches = micros, .versions = versions};
      const PipelineSchedule whole = stream_schedule(rule, steps);
      PipelineCosts costs = random_stream_costs(ranks, random);
      for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
        costs.links = links;
        const PipelineSchedule lowered = lower_pipeline(whole, links).value();
        const auto run = simulate_pipeline(lowered, costs);
        ASSERT_TRUE(run.has_value()) << run.error().message();
        const std::string where = std::to_string(static_cast<int>(versions)) +
                                  " p=" + std::to_string(ranks) + " m=" + std::to_string(micros) +
                                  " steps=" + std::to_string(steps) + " " +
                                  std::string(to_string(links));
        expect_simulated(run_ranks(rule, 0, lowered, costs), lowered, run.value(), where);
        if (links != PipelineLinks::kTagged) continue;
        expect_simulated(run_ranks(rule, steps, lowered, costs), lowered, run.value(),
                         where + ", step by step");
      }
    }
  }
}

TEST(StreamExecution, WantsARankOfTheRuleAndRoom) {
  const StreamRule rule{.ranks = 2};
  const PipelineSchedule lowered =
      lower_pipeline(stream_schedule(rule, 2), PipelineLinks::kTagged).value();
  PipelineCosts costs = even_costs(2, 1, 1, 1);
  costs.links = PipelineLinks::kTagged;
  VirtualRanks time(2, costs);
  VirtualWork work(lowered, costs, 0, time);
  VirtualTransfers transfers(0, time);
  EXPECT_THAT(StreamExecutor::create(rule, 2, {1, 1, 1, 1}, true, work, transfers).error(),
              fails(Code::kInvalidArgument, "rank 2", "0 to 1"));
  EXPECT_THAT(StreamExecutor::create(rule, 0, {1, 0, 1, 1}, true, work, transfers).error(),
              fails(Code::kInvalidArgument, "no room", "rank 0"));
}

}  // namespace
}  // namespace gradwire::stream_executor_test
