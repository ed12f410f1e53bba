// Schedules without a flush: what their versions are, that the period closes, and that faults are
// named (rows PP8 and PP9 of the trainer's acceptance table).
#include "trainer/pipeline/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire::stream_test {
namespace {

const PipelineSpec kPipeDream{.kind = PipelineKind::kPipeDream};
const PipelineSpec kInSync{.kind = PipelineKind::kPipeDream, .vertical_sync = true};
const PipelineSpec kTwoVersions{.kind = PipelineKind::kPipeDream2BW};

std::vector<PipelineSpec> every_stream() { return {kPipeDream, kInSync, kTwoVersions}; }

std::string ops_of(const std::vector<PipelineOp>& ops) {
  std::string all;
  for (const PipelineOp& op : ops) all += (all.empty() ? "" : " ") + to_string(op);
  return all;
}

TEST(PipelineStreams, ListsAreThoseOfTheirSources) {
  const PipelineSchedule own = generate_pipeline(kPipeDream, 2, 3).value();
  EXPECT_EQ(ops_of(own.ranks[0]),
            "0F0 0F1 0B0 0STASH 0OPT 0F2#1 0B1 0DROP 0STASH#1 0OPT#1 "
            "0B2#1 0DROP#1 0OPT#2");
  EXPECT_EQ(ops_of(own.ranks[1]), "1F0 1B0 1OPT 1F1#1 1B1#1 1OPT#1 1F2#2 1B2#2 1OPT#2");
  const PipelineSchedule both = generate_pipeline(kTwoVersions, 2, 2, 3).value();
  EXPECT_EQ(ops_of(both.ranks[1]),
            "1F0 1B0 1F1 1B1 1STASH 1OPT 1F2 1B2 1F3 1B3 1DROP 1STASH#1 1OPT#1 1F4#1 1B4#1 1F5#1 "
            "1B5#1 1DROP#1 1OPT#2");
}

// Of micro-batch i since the start, forward and backward alike.
TEST(PipelineStreams, PP8_PP9_VersionsAreThoseOfTheFormulas) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int n : {1, 2, 5, 16, 40}) {
      for (const PipelineSpec& spec : {kPipeDream, kInSync}) {
        const PipelineSchedule schedule = generate_pipeline(spec, p, n).value();
        const PipelineCheck check = check_pipeline(schedule);
        ASSERT_TRUE(check.ok()) << check.status().message();
        for (int stage = 0; stage < p; ++stage) {
          const int delay = p - 1 - (spec.vertical_sync ? 0 : stage);
          const auto at = static_cast<std::size_t>(stage);
          for (const PipelineOp& op : schedule.ranks[at]) {
            if (!is_compute(op.kind)) continue;
            EXPECT_EQ(op.version, std::max(0, op.micro - delay)) << to_string(op) << " of " << p;
          }
          if (n <= 2 * p) continue;
          EXPECT_EQ(check.versions[at], delay + 1) << spec.text() << " " << p << " " << stage;
        }
      }
      if (n < p) continue;
      const PipelineSchedule schedule = generate_pipeline(kTwoVersions, p, n, 5).value();
      const PipelineCheck check = check_pipeline(schedule);
      ASSERT_TRUE(check.ok()) << check.status().message();
      EXPECT_THAT(check.versions, ::testing::Each(2));
      for (const auto& ops : schedule.ranks) {
        for (const PipelineOp& op : ops) {
          if (!is_compute(op.kind)) continue;
          EXPECT_EQ(op.version, std::max(0, op.micro / n - 1));
        }
      }
    }
  }
}

// Exactly N / (N + p - 1).
TEST(PipelineStreams, PP8_RanksWorkAllButTheStartAndTheDrain) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int n : {1, 16, 256}) {
      for (const PipelineSpec& spec : every_stream()) {
        if (n < p && spec.kind == PipelineKind::kPipeDream2BW) continue;
        const PipelineSchedule schedule = generate_pipeline(spec, p, n).value();
        const PipelineSimulation run = simulate_pipeline(schedule, even_costs(p, 1, 1, 1)).value();
        EXPECT_EQ(run.busy_total() * (n + p - 1), std::int64_t{p} * run.makespan * n)
            << spec.text() << " " << p << " " << n;
      }
    }
  }
}

TEST(PipelineStreams, LowerAndRunInEveryOrder) {
  for (const PipelineSpec& spec : every_stream()) {
    for (const int p : {1, 2, 3, 4}) {
      const PipelineSchedule schedule = generate_pipeline(spec, p, 6, 3).value();
      for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
        const auto lowered = lower_pipeline(schedule, links);
        ASSERT_TRUE(lowered.has_value()) << lowered.error().message();
        EXPECT_TRUE(check_pipeline(lowered.value(), {.links = links}).ok());
      }
    }
  }
}

// Steps of a rank's lowered list, each with its OPT last and its numbers counted from its own.
std::vector<std::vector<PipelineOp>> steps_of(const std::vector<PipelineOp>& ops,
                                              int micro_batches) {
  std::vector<std::vector<PipelineOp>> steps(1);
  for (PipelineOp op : ops) {
    const auto step = static_cast<int>(steps.size()) - 1;
    const int version = has_micro_batch(op.kind) && is_transfer(op.kind) ? 0 : step;
    if (op.micro != PipelineOp::kNoMicro) {
      op.micro = static_cast<std::uint16_t>(op.micro - step * micro_batches);
    }
    op.version = static_cast<std::uint16_t>(op.version - version);
    steps.back().push_back(op);
    if (op.kind == PipelineOpKind::kOptimizerStep) steps.emplace_back();
  }
  return steps;
}

// Transfers in one order of all ranks, too.
TEST(PipelineStreams, LoweredListsRepeatWithThePeriod) {
  for (const PipelineSpec& spec : every_stream()) {
    for (const int p : {2, 3, 4, 8}) {
      const bool each = spec.kind == PipelineKind::kPipeDream;
      const int m = each ? 1 : p + 1;
      const int steps = 8 * p;
      const PipelineSchedule schedule = each ? generate_pipeline(spec, p, steps).value()
                                             : generate_pipeline(spec, p, m, steps).value();
      for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
        const PipelineSchedule lowered = lower_pipeline(schedule, links).value();
        for (const std::vector<PipelineOp>& ops : lowered.ranks) {
          const auto all = steps_of(ops, m);
          ASSERT_GE(all.size(), static_cast<std::size_t>(steps));
          const std::vector<PipelineOp>& period = all[static_cast<std::size_t>(2 * p)];
          for (int step = 2 * p; step < steps - 2 * p; ++step) {
            EXPECT_EQ(ops_of(all[static_cast<std::size_t>(step)]), ops_of(period))
                << spec.text() << " " << p << " " << to_string(links) << " step " << step;
          }
        }
      }
    }
  }
}

TEST(PipelineStreams, ThePeriodClosesAndRepeats) {
  for (const PipelineSpec& spec : every_stream()) {
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int m : {8, 9, 13}) {
        const bool each = spec.kind == PipelineKind::kPipeDream;
        const std::string where = spec.text() + " p=" + std::to_string(p);
        const auto made = generate_stream(spec, p, m);
        ASSERT_TRUE(made.has_value()) << made.error().message();
        const PipelineStream& stream = made.value();
        const Status closes = check_stream(stream);
        EXPECT_TRUE(closes.ok()) << where << ": " << closes.message();
        // As it is without wrapping, whatever the number of periods.
        for (const int periods : {0, 1, 7}) {
          const auto whole = unroll_stream(stream, periods);
          ASSERT_TRUE(whole.has_value()) << where << ": " << whole.error().message();
          const int steps = periods + (each ? 2 * (p - 1) : 2);
          if (steps == 0) continue;
          EXPECT_EQ(whole.value(), each ? generate_pipeline(spec, p, steps).value()
                                        : generate_pipeline(spec, p, m, steps).value())
              << where << " " << periods;
        }
        EXPECT_EQ(parse_stream(stream_text(stream)).value(), stream) << where;
        EXPECT_EQ(parse_stream(stream_csv(stream)).value(), stream) << where;
      }
    }
  }
}

TEST(PipelineStreams, NumbersWrapWithinWhatIsUnderWay) {
  const PipelineStream stream = generate_stream(kPipeDream, 3, 1).value();
  EXPECT_EQ(stream_text(stream),
            "stream ranks=3 stages=3 micro-batches=1 window=3 versions=3\n"
            "place 0 1 2\n"
            "start\n"
            "rank 0: 0F0 0F1 0F2 0B0 0STASH 0OPT 0F0#1 0B1 0STASH#1 0OPT#1\n"
            "rank 1: 1F0 1F1 1B0 1STASH 1OPT 1F2#1 1B1 1DROP 1STASH#1 1OPT#1\n"
            "rank 2: 2F0 2B0 2OPT 2F1#1 2B1#1 2OPT#1\n"
            "period\n"
            "rank 0: 0F1#2 0B2 0DROP 0STASH#2 0OPT#2\n"
            "rank 1: 1F0#2 1B2#1 1DROP#1 1STASH#2 1OPT#2\n"
            "rank 2: 2F2#2 2B2#2 2OPT#2\n"
            "drain\n"
            "rank 0: 0B2 0DROP 0OPT#2 0B0#1 0DROP#1 0OPT\n"
            "rank 1: 1F0#2 1B2#1 1DROP#1 1STASH#2 1OPT#2 1B0#2 1DROP#2 1OPT\n"
            "rank 2: 2F2#2 2B2#2 2OPT#2 2F0 2B0 2OPT\n");
}

// What is wrong is named with the operation.
TEST(PipelineStreams, FaultsAreNamed) {
  const PipelineStream good = generate_stream(kPipeDream, 3, 1).value();
  const auto without = [&good](PipelineStream::Lists PipelineStream::*part, int rank,
                               const char* op) {
    PipelineStream bad = good;
    auto& ops = (bad.*part)[static_cast<std::size_t>(rank)];
    const auto at = std::ranges::find(ops, *pipeline_op(op));
    EXPECT_NE(at, ops.end()) << op;
    if (at != ops.end()) ops.erase(at);
    return check_stream(bad);
  };
  EXPECT_THAT(without(&PipelineStream::period, 0, "0STASH#2"),
              fails(Code::kInvalidArgument, "does not close", "0OPT#2", "stage 0 on rank 0",
                    "0 STASH and 1 DROP"));
  EXPECT_THAT(without(&PipelineStream::start, 0, "0STASH"),
              fails(Code::kInvalidArgument, "0DROP", "rank 0", "version 0", "STASH"));
  EXPECT_THAT(without(&PipelineStream::period, 1, "1OPT#2"),
              fails(Code::kInvalidArgument, "stage 1 on rank 1", "no 1OPT"));
  EXPECT_THAT(without(&PipelineStream::drain, 1, "1OPT"),
              fails(Code::kInvalidArgument, "stage 1 on rank 1", "3 1OPT for 4 micro-batches"));
  EXPECT_THAT(without(&PipelineStream::period, 1, "1F0#2"),
              fails(Code::kInvalidArgument, "does not close", "1OPT#2", "stage 1 on rank 1"));
  EXPECT_THAT(without(&PipelineStream::start, 1, "1DROP"),
              fails(Code::kInvalidArgument, "does not close", "stage 1 on rank 1"));
  PipelineStream early = good;
  std::swap(early.period[0][1], early.period[0][2]);  // DROP before B
  EXPECT_THAT(check_stream(early), fails(Code::kInvalidArgument, "0B2", "version 0"));
  PipelineStream wrong = good;
  wrong.period[2][0].micro = 1;
  EXPECT_THAT(check_stream(wrong),
              fails(Code::kInvalidArgument, "2F1#2", "rank 2", "of the period", "expected 2"));
  EXPECT_THAT(generate_stream({}, 3, 4).error(), fails(Code::kInvalidArgument, "1f1b", "flush"));
  EXPECT_THAT(generate_stream(kTwoVersions, 3, 2).error(),
              fails(Code::kInvalidArgument, "2bw", "2 micro-batches", "3"));
  EXPECT_THAT(parse_stream("stream ranks=1 stages=1 micro-batches=1 window=1 versions=1\n"
                           "place 0\nlayers 0\n")
                  .error(),
              fails(Code::kInvalidArgument, "line 3", "layers of stage 0"));
  EXPECT_THAT(parse_stream("stream ranks=2\n").error(),
              fails(Code::kInvalidArgument, "line 1", "stages="));
}

}  // namespace
}  // namespace gradwire::stream_test
