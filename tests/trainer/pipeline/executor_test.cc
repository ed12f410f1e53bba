// The executor under virtual time is the simulator, to the tick.
#include "trainer/pipeline/run/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fails.h"
#include "tests/support/thread_ranks.h"
#include "tests/trainer/pipeline/every_schedule.h"
#include "tests/trainer/pipeline/virtual_ranks.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/message_room.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire::executor_test {
namespace {

using ::testing::ElementsAreArray;

// One execution by all ranks.
struct Executed {
  std::int64_t makespan = 0;
  std::vector<Status> statuses;
  std::vector<std::vector<TimedOp>> computed;  // by rank: all but transfers
  std::vector<std::vector<TimedOp>> begun;     // by rank: transfers
  std::vector<std::vector<bool>> waits;        // by rank: for each, whether it had to
  int left_over = 0;                           // messages whose memory was never given back
  int freed_early = 0;
};

// The wait that does not happen.
struct Drop {
  int rank = -1;
  int wait = -1;
};

// `order`: what ranks execute, if it is not what `schedule` says.
Executed execute(const PipelineSchedule& schedule, const PipelineCosts& costs, Drop drop = {},
                 const PipelineSchedule* order = nullptr, bool bounded = false) {
  const auto size = static_cast<std::size_t>(schedule.size());
  VirtualRanks time(schedule.size(), costs);
  Executed all;
  all.computed.resize(size);
  all.begun.resize(size);
  all.waits.resize(size);
  std::vector<std::pair<int, int>> memory(size);
  all.statuses = on_threads<Status>(schedule.size(), [&](int rank) {
    const auto place = static_cast<std::size_t>(rank);
    VirtualWork work(schedule, costs, rank, time);
    VirtualTransfers transfers(rank, time, rank == drop.rank ? drop.wait : -1);
    PipelineExecution how{costs.links, costs.overlap};
    if (bounded) how.room = message_room(schedule, rank).stages;
    auto executor =
        PipelineExecutor::create(order == nullptr ? schedule : *order, rank, how, work, transfers);
    const Status status = executor.has_value() ? executor.value().run() : executor.error();
    time.leave();
    all.computed[place] = work.done;
    all.begun[place] = transfers.begun;
    all.waits[place] = transfers.waits;
    memory[place] = {static_cast<int>(work.unsent.size()), work.freed_early};
    return status;
  });
  all.makespan = time.now();
  for (const auto& [left_over, freed_early] : memory) {
    all.left_over += left_over;
    all.freed_early += freed_early;
  }
  return all;
}

// What a simulation says of a rank, transfers apart or alone.
std::vector<TimedOp> simulated(const PipelineSchedule& schedule, const PipelineSimulation& run,
                               std::size_t rank, bool transfers) {
  std::vector<TimedOp> ops;
  for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
    const PipelineOp& op = schedule.ranks[rank][i];
    if (is_transfer(op.kind) != transfers) continue;
    ops.push_back({op, run.spans[rank][i]});
  }
  return ops;
}

// Whether an execution is what the simulator says, in every operation of every rank.
bool agrees(const PipelineSchedule& schedule, const PipelineSimulation& run,
            const Executed& executed) {
  bool same =
      executed.makespan == run.makespan && executed.left_over == 0 && executed.freed_early == 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    same = same && executed.statuses[rank].ok() &&
           executed.computed[rank] == simulated(schedule, run, rank, false) &&
           executed.begun[rank] == simulated(schedule, run, rank, true);
  }
  return same;
}

// Costs from 0 to a few ticks, so that many things happen at a time.
PipelineCosts random_costs(int stages, int ranks, std::mt19937& random) {
  const auto draw = [&](int most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most + 1));
  };
  PipelineCosts costs;
  for (int stage = 0; stage < stages; ++stage) {
    costs.stages.push_back({.forward = draw(9),
                            .backward_input = draw(9),
                            .backward_weight = draw(9),
                            .reduce_gradients = draw(20),
                            .reduce_tied = draw(5),
                            .reduce_replicas = draw(5),
                            .unshard = draw(3),
                            .reshard = draw(1),
                            .optimizer_step = draw(6),
                            .output_bytes = draw(4),
                            .input_bytes = draw(4)});
  }
  costs.link = {draw(3), draw(2)};
  if (random() % 2 == 0) return costs;
  for (int from = 0; from < ranks; ++from) {
    std::vector<PipelineLink>& row = costs.link_of.emplace_back();
    for (int to = 0; to < ranks; ++to) row.push_back({draw(3), draw(2)});
  }
  return costs;
}

std::vector<PipelineSpec> every_spec() {
  return {{.kind = PipelineKind::kGpipe},
          {.kind = PipelineKind::kOneFOneB},
          {.kind = PipelineKind::kInterleaved, .chunks = 2},
          {.kind = PipelineKind::kInterleaved, .chunks = 3},
          {.kind = PipelineKind::kZeroBubbleH1},
          {.kind = PipelineKind::kZeroBubbleV},
          {.kind = PipelineKind::kZeroBubbleVHalf},
          {.kind = PipelineKind::kZeroBubbleVMin},
          {.kind = PipelineKind::kBreadthFirst, .chunks = 2},
          {.kind = PipelineKind::kChimera},
          {.kind = PipelineKind::kChimera, .doubling = true}};
}

PipelineSchedule lowered(const PipelineSpec& spec, int ranks, int micro_batches,
                         PipelineLinks links, const PipelineStepOps& ops) {
  const PipelineSchedule made = generate_pipeline(spec, ranks, micro_batches).value();
  return lower_pipeline(with_step_ops(made, ops), links).value();
}

constexpr std::array kLowered{PipelineLinks::kTagged, PipelineLinks::kOrdered};

class ExecutorOf : public ::testing::TestWithParam<PipelineSpec> {};

TEST_P(ExecutorOf, IsTheSimulatorToTheTick) {
  std::mt19937 random(7);
  for (int draw = 0; draw < 30; ++draw) {
    const bool both_ways = GetParam().kind == PipelineKind::kChimera;
    const int ranks = both_ways ? 2 + draw % 2 * 2 : 1 + draw % 4;
    const int drawn = std::array{1, 2, 4, 6, 8, 13}[random() % 6];
    const int micro_batches = GetParam().doubling ? 2 * ranks
                              : both_ways         ? drawn / 2 * 2 + 2
                                                  : drawn;
    const PipelineStepOps ops{
        .reduce = random() % 2 == 0, .tied = random() % 2 == 0, .sharded = random() % 4 == 0};
    for (const PipelineLinks links : kLowered) {
      const PipelineSchedule schedule = lowered(GetParam(), ranks, micro_batches, links, ops);
      PipelineCosts costs = random_costs(schedule.stages(), ranks, random);
      costs.links = links;
      for (const bool overlap : {true, false}) {
        costs.overlap = overlap;
        const auto run = simulate_pipeline(schedule, costs);
        ASSERT_TRUE(run.has_value()) << run.error().message();
        const Executed executed = execute(schedule, costs);
        const std::string where = GetParam().text() + " p=" + std::to_string(ranks) +
                                  " m=" + std::to_string(micro_batches) + " " +
                                  std::string(to_string(links)) +
                                  (overlap ? " with overlap" : " without overlap");
        for (const Status& status : executed.statuses) {
          ASSERT_TRUE(status.ok()) << where << ": " << status.message();
        }
        ASSERT_EQ(executed.makespan, run.value().makespan) << where;
        ASSERT_TRUE(agrees(schedule, run.value(), executed)) << where;
        // As training has it: with room for so many messages, none of which has to be waited for.
        ASSERT_TRUE(agrees(schedule, run.value(), execute(schedule, costs, {}, nullptr, true)))
            << where << ", in bounded room";
      }
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<PipelineSpec>& spec) {
  std::string name;
  for (const char c : spec.param.text()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Every, ExecutorOf, ::testing::ValuesIn(every_spec()), name_of);

// Costs without a 0, none of which divides another one.
PipelineCosts odd_costs(const PipelineSchedule& schedule, PipelineLinks links, bool overlap) {
  PipelineCosts costs = even_costs(schedule.stages(), 7, 11, 5);
  for (PipelineStageCost& stage : costs.stages) {
    stage.reduce_gradients = 13;
    stage.optimizer_step = 3;
    stage.output_bytes = stage.input_bytes = 2;
  }
  costs.link = {.alpha = 2, .beta = 1};
  costs.links = links;
  costs.overlap = overlap;
  return costs;
}

// Layers on p ranks without micro-batches: one rank works at a time, and each idles (p - 1)/p.
TEST(Executor, M1_M2_OneMicroBatchKeepsOneOfAllRanksBusy) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const PipelineKind kind : {PipelineKind::kGpipe, PipelineKind::kOneFOneB}) {
      const PipelineSpec spec{.kind = kind};
      const PipelineSchedule schedule = lowered(spec, ranks, 1, PipelineLinks::kTagged, {});
      PipelineCosts costs = even_costs(schedule.stages(), 3, 4, 5);
      costs.links = PipelineLinks::kTagged;
      const Executed executed = execute(schedule, costs);
      EXPECT_EQ(executed.makespan, 12 * ranks) << spec.text();
      std::vector<PipelineSpan> spans;
      for (const std::vector<TimedOp>& rank : executed.computed) {
        std::int64_t busy = 0;
        for (const TimedOp& op : rank) {
          busy += op.span.ticks();
          if (op.span.ticks() > 0) spans.push_back(op.span);
        }
        EXPECT_EQ(busy * ranks, executed.makespan) << spec.text();
      }
      std::ranges::sort(spans, {}, &PipelineSpan::begin);
      for (std::size_t i = 1; i < spans.size(); ++i) {
        EXPECT_GE(spans[i].begin, spans[i - 1].end) << spec.text() << ", " << ranks << " ranks";
      }
    }
  }
}

// A wait that had to wait is seen when it is gone: by what is read, by what is freed, or by a time.
TEST(Executor, EveryDroppedWaitIsSeen) {
  for (const PipelineLinks links : kLowered) {
    for (const bool overlap : {true, false}) {
      const PipelineSchedule schedule =
          lowered({.kind = PipelineKind::kOneFOneB}, 3, 4, links, {.reduce = true});
      const PipelineCosts costs = odd_costs(schedule, links, overlap);
      const PipelineSimulation run = simulate_pipeline(schedule, costs).value();
      const Executed whole = execute(schedule, costs);
      ASSERT_TRUE(agrees(schedule, run, whole));
      for (int rank = 0; rank < schedule.size(); ++rank) {
        const std::vector<bool>& waits = whole.waits[static_cast<std::size_t>(rank)];
        int seen = 0;
        for (int wait = 0; wait < static_cast<int>(waits.size()); ++wait) {
          if (!waits[static_cast<std::size_t>(wait)]) continue;
          ++seen;
          EXPECT_FALSE(agrees(schedule, run, execute(schedule, costs, {rank, wait})))
              << to_string(links) << " rank " << rank << " wait " << wait;
        }
        EXPECT_GE(seen, 3) << to_string(links) << " rank " << rank;
      }
    }
  }
}

// Nor does any other order of a rank's computations have the same times.
TEST(Executor, EveryReorderedComputationIsSeen) {
  const PipelineSchedule schedule = lowered({.kind = PipelineKind::kZeroBubbleH1}, 3, 4,
                                            PipelineLinks::kTagged, {.reduce = true});
  const PipelineCosts costs = odd_costs(schedule, PipelineLinks::kTagged, true);
  const PipelineSimulation run = simulate_pipeline(schedule, costs).value();
  int swaps = 0;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (std::size_t i = 0; i + 1 < schedule.ranks[rank].size(); ++i) {
      PipelineSchedule other = schedule;
      std::swap(other.ranks[rank][i], other.ranks[rank][i + 1]);
      ++swaps;
      EXPECT_FALSE(agrees(schedule, run, execute(schedule, costs, {}, &other)))
          << "rank " << rank << ": " << to_string(schedule.ranks[rank][i]) << " behind "
          << to_string(schedule.ranks[rank][i + 1]);
    }
  }
  EXPECT_GT(swaps, 60);
}

// A link that fails at one operation.
class BrokenTransfers final : public PipelineTransfers {
 public:
  explicit BrokenTransfers(PipelineOp at) : at_(at) {}
  Status prepare(std::size_t count) override {
    ops_.resize(count);
    return {};
  }
  Status send(std::size_t number, const PipelineOp& op, int, std::span<const std::byte>) override {
    ops_[number] = op;
    return {};
  }
  Status receive(std::size_t number, const PipelineOp& op, int, std::span<std::byte>) override {
    ops_[number] = op;
    return {};
  }
  Result<bool> done(std::size_t) override { return false; }
  Status wait(std::size_t number) override {
    ++waits;
    return ops_[number] == at_ ? Status(Code::kTimedOut, "nothing came in 2 s") : Status();
  }
  Status finish() override { return finished; }
  void stop() override { ++stops; }
  int waits = 0;
  int stops = 0;
  Status finished;

 private:
  PipelineOp at_;
  std::vector<PipelineOp> ops_;
};

class NoWork final : public PipelineWork {
 public:
  Status run(const PipelineOp& op) override {
    ran.push_back(to_string(op));
    return op == fails_at ? Status(Code::kInternal, "no such layer") : Status();
  }
  Status finish(const PipelineOp&) override { return {}; }
  Result<std::span<std::byte>> room_for(const PipelineOp&) override {
    return std::span<std::byte>();
  }
  Result<std::span<const std::byte>> message(const PipelineOp&) override {
    return std::span<const std::byte>();
  }
  void sent(const PipelineOp&) override {}
  std::vector<std::string> ran;
  std::optional<PipelineOp> fails_at;
};

TEST(Executor, ErrorsNameTheOperationAndThePeerAndStick) {
  const PipelineSchedule schedule =
      lowered({.kind = PipelineKind::kOneFOneB}, 3, 4, PipelineLinks::kTagged, {});
  BrokenTransfers transfers(*pipeline_op("1RB2"));
  NoWork work;
  auto executor =
      PipelineExecutor::create(schedule, 1, {PipelineLinks::kTagged, true}, work, transfers);
  ASSERT_TRUE(executor.has_value());
  const Status status = executor.value().run();
  EXPECT_THAT(status, fails(Code::kTimedOut, "rank 1", "1B2", "stage 1", "micro-batch 2", "1RB2",
                            "from rank 2", "2 s"));
  EXPECT_EQ(transfers.stops, 1);
  EXPECT_EQ(work.ran.back(), "1F3");
  const int waits = transfers.waits;
  EXPECT_EQ(executor.value().run().message(), status.message());
  EXPECT_EQ(transfers.waits, waits);
}

TEST(Executor, ErrorsOfWorkNameTheOperation) {
  const PipelineSchedule schedule =
      lowered({.kind = PipelineKind::kGpipe}, 2, 2, PipelineLinks::kTagged, {});
  BrokenTransfers transfers(*pipeline_op("9F9"));
  NoWork work;
  work.fails_at = pipeline_op("0B1");
  auto executor =
      PipelineExecutor::create(schedule, 0, {PipelineLinks::kTagged, true}, work, transfers);
  ASSERT_TRUE(executor.has_value());
  EXPECT_THAT(executor.value().run(),
              fails(Code::kInternal, "rank 0", "0B1", "stage 0", "micro-batch 1", "no such layer"));
  EXPECT_EQ(transfers.stops, 1);
}

TEST(Executor, TellsWhatRanWhen) {
  const PipelineSchedule schedule =
      lowered({.kind = PipelineKind::kOneFOneB}, 3, 4, PipelineLinks::kTagged, {});
  BrokenTransfers transfers(*pipeline_op("9F9"));  // nowhere here
  NoWork work;
  auto executor =
      PipelineExecutor::create(schedule, 1, {PipelineLinks::kTagged, true}, work, transfers);
  ASSERT_TRUE(executor.has_value());
  std::vector<std::string> computed;
  std::vector<std::string> messages;
  auto computed_until = std::chrono::steady_clock::now();
  const OnPipelineOp told = [&](const PipelineOpTime& time) {
    EXPECT_LE(time.begin, time.end);
    if (time.to >= 0) {
      messages.push_back(message_text(time.op, time.to));
      return;
    }
    EXPECT_GE(time.begin, computed_until);
    computed_until = time.end;
    computed.push_back(to_string(time.op));
  };
  executor.value().tell(&told);
  ASSERT_TRUE(executor.value().run().ok());
  EXPECT_EQ(computed, work.ran);
  EXPECT_THAT(messages,
              ::testing::UnorderedElementsAre("1SF0 to rank 2", "1SF1 to rank 2", "1SF2 to rank 2",
                                              "1SF3 to rank 2", "1SB0 to rank 0", "1SB1 to rank 0",
                                              "1SB2 to rank 0", "1SB3 to rank 0"));
  const std::size_t told_of = computed.size();
  executor.value().tell(nullptr);
  ASSERT_TRUE(executor.value().run().ok());
  EXPECT_EQ(work.ran.size(), 2 * told_of);
  EXPECT_EQ(computed.size(), told_of);
}

// Of transfers that streams alone have waited for.
TEST(Executor, WhatIsFoundBehindTheListIsItsError) {
  const PipelineSchedule schedule =
      lowered({.kind = PipelineKind::kGpipe}, 2, 2, PipelineLinks::kTagged, {});
  BrokenTransfers transfers(*pipeline_op("9F9"));
  transfers.finished = Status(Code::kPeerLost, "rank 0 is gone");
  NoWork work;
  auto executor =
      PipelineExecutor::create(schedule, 1, {PipelineLinks::kTagged, true}, work, transfers);
  ASSERT_TRUE(executor.has_value());
  EXPECT_THAT(executor.value().run(), fails(Code::kPeerLost, "pipeline rank 1", "rank 0 is gone"));
  EXPECT_EQ(work.ran.back(), "1OPT");
  EXPECT_EQ(transfers.stops, 1);
}

TEST(Executor, RefusesListsThatDoNotMeet) {
  BrokenTransfers transfers(*pipeline_op("9F9"));
  NoWork work;
  const auto refused = [&](const PipelineSchedule& schedule, int rank, PipelineLinks links) {
    return PipelineExecutor::create(schedule, rank, {links, true}, work, transfers).error();
  };
  PipelineSchedule schedule =
      lowered({.kind = PipelineKind::kGpipe}, 2, 1, PipelineLinks::kTagged, {});
  EXPECT_THAT(refused(schedule, 2, PipelineLinks::kTagged),
              fails(Code::kInvalidArgument, "rank 2", "0 to 1"));
  EXPECT_THAT(refused(schedule, 0, PipelineLinks::kDirect),
              fails(Code::kInvalidArgument, "direct", "2 ranks"));
  EXPECT_THAT(
      PipelineExecutor::create(schedule, 0, {PipelineLinks::kTagged, true, {{}}}, work, transfers)
          .error(),
      fails(Code::kInvalidArgument, "room of 1", "2"));
  std::erase(schedule.ranks[1], *pipeline_op("1RF0"));
  EXPECT_THAT(refused(schedule, 1, PipelineLinks::kTagged),
              fails(Code::kInvalidArgument, "rank 1", "1F0", "1RF0"));
  schedule.ranks[1].insert(schedule.ranks[1].begin(), *pipeline_op("1RF0"));
  std::erase(schedule.ranks[1], *pipeline_op("1F0"));
  EXPECT_THAT(refused(schedule, 1, PipelineLinks::kTagged),
              fails(Code::kInvalidArgument, "rank 1", "1RF0"));
}

}  // namespace
}  // namespace gradwire::executor_test
