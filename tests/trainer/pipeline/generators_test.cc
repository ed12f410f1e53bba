// What generators make, against lists written by hand and the laws of their sources.
#include "trainer/pipeline/generators/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/trainer/pipeline/every_schedule.h"
#include "trainer/pipeline/progress.h"

namespace gradwire::generators_test {
namespace {

std::string ops_of(const PipelineSchedule& schedule, std::size_t rank) {
  std::string all;
  for (const PipelineOp& op : schedule.ranks[rank]) all += (all.empty() ? "" : " ") + to_string(op);
  return all;
}

// The most contexts that a rank has at a time.
int most_contexts(const std::vector<PipelineOp>& ops) {
  int open = 0;
  int most = 0;
  for (const PipelineOp& op : ops) {
    if (op.kind == PipelineOpKind::kForward) most = std::max(most, ++open);
    if (gives_weight_gradient(op.kind)) --open;
  }
  return most;
}

int count_of(const PipelineSchedule& schedule, PipelineOpKind kind) {
  std::ptrdiff_t count = 0;
  for (const auto& ops : schedule.ranks) {
    count += std::ranges::count_if(ops, [kind](const PipelineOp& op) { return op.kind == kind; });
  }
  return static_cast<int>(count);
}

TEST(PipelineGenerators, ListsAreThoseOfTheirSources) {
  EXPECT_EQ(ops_of(gpipe_schedule(2, 3), 1), "1F0 1F1 1F2 1B0 1B1 1B2");
  const PipelineSchedule alternating = one_f_one_b_schedule(3, 4);
  EXPECT_EQ(ops_of(alternating, 0), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  EXPECT_EQ(ops_of(alternating, 1), "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3");
  EXPECT_EQ(ops_of(alternating, 2), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
  EXPECT_EQ(ops_of(one_f_one_b_schedule(4, 1), 0), "0F0 0B0");
  EXPECT_EQ(ops_of(zero_bubble_h1_schedule(2, 3), 0), "0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2");
  EXPECT_EQ(ops_of(zero_bubble_h1_schedule(2, 3), 1), "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2");
  const PipelineSchedule v = zero_bubble_v_schedule(2, 3);
  EXPECT_EQ(ops_of(v, 0),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 0I1 3W2 0I2 0W1 0W2");
  EXPECT_EQ(ops_of(v, 1),
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2");
  EXPECT_EQ(ops_of(zero_bubble_v_min_schedule(2, 3), 1),
            "1F0 2F0 2I0 1I0 1F1 2F1 2W0 1W0 2I1 1I1 1F2 2F2 2W1 1W1 2I2 1I2 2W2 1W2");
  // Pipe 1 comes up, with micro-batches 2 and 3.
  EXPECT_EQ(ops_of(chimera_schedule(4, 4), 0), "0F0 0F1 3F2@1 3B2@1 3F3@1 3B3@1 0B0 0B1");
  EXPECT_EQ(ops_of(chimera_schedule(4, 4), 3), "0F2@1 0F3@1 3F0 3B0 3F1 3B1 0B2@1 0B3@1");
  EXPECT_EQ(ops_of(doubled_chimera_schedule(2), 0), "0F0 0F1 1F2@1 1F3@1 1B2@1 1B3@1 0B0 0B1");
  EXPECT_EQ(ops_of(breadth_first_schedule(2, 2, 2), 1), "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1");
  const PipelineSchedule interleaved = interleaved_schedule(2, 2, 2);
  EXPECT_EQ(ops_of(interleaved, 0), "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1");
  EXPECT_EQ(ops_of(interleaved, 1), "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1");
}

TEST(PipelineGenerators, EveryStageSeesEveryMicroBatchOnce) {
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule schedule = one.schedule();
    const int each = schedule.stages() * one.micro_batches;
    EXPECT_EQ(count_of(schedule, PipelineOpKind::kForward), each) << one.text();
    const bool split = splits_backward(one.spec.kind);
    EXPECT_EQ(count_of(schedule, PipelineOpKind::kBackward), split ? 0 : each) << one.text();
    EXPECT_EQ(count_of(schedule, PipelineOpKind::kBackwardInput), split ? each : 0) << one.text();
    EXPECT_EQ(count_of(schedule, PipelineOpKind::kBackwardWeight), split ? each : 0) << one.text();
    EXPECT_THAT(blocked_frontier(schedule), ::testing::IsEmpty()) << one.text();
  }
}

TEST(PipelineGenerators, WeightGradientsOfAStageAreInAscendingOrder) {
  for (const PipelineCase& one : every_pipeline()) {
    std::map<std::pair<int, int>, int> next;  // by pipe and stage
    for (const auto& ops : one.schedule().ranks) {
      for (const PipelineOp& op : ops) {
        if (!gives_weight_gradient(op.kind)) continue;
        const int first = op.pipe * one.micro_batches / 2;
        int& seen = next[std::pair<int, int>(op.pipe, op.stage)];
        EXPECT_EQ(op.micro, first + seen++) << one.text();
      }
    }
  }
}

TEST(PipelineGenerators, ContextsAreThoseOfTheFormulas) {
  for (const PipelineCase& one : every_pipeline()) {
    const PipelineSchedule schedule = one.schedule();
    const int p = one.ranks;
    const int m = one.micro_batches;
    const int v = one.spec.chunks;
    for (int rank = 0; rank < p; ++rank) {
      const int most = most_contexts(schedule.ranks[static_cast<std::size_t>(rank)]);
      const std::string where = one.text() + " rank " + std::to_string(rank);
      switch (one.spec.kind) {
        case PipelineKind::kGpipe: EXPECT_EQ(most, m) << where; break;
        case PipelineKind::kOneFOneB: EXPECT_EQ(most, std::min(p - rank, m)) << where; break;
        case PipelineKind::kZeroBubbleH1: EXPECT_EQ(most, std::min(p, m)) << where; break;
        case PipelineKind::kZeroBubbleV: EXPECT_EQ(most, std::min(2 * p, 2 * m)) << where; break;
        case PipelineKind::kZeroBubbleVHalf:
          EXPECT_LE(most, std::min(2 * ((p + 2) / 2), 2 * m)) << where;
          break;
        case PipelineKind::kZeroBubbleVMin:
          EXPECT_LE(most, std::min(2 * ((p + 4) / 3), 2 * m)) << where;
          break;
        case PipelineKind::kBreadthFirst: EXPECT_EQ(most, m * v) << where; break;
        case PipelineKind::kInterleaved: {
          const int formula = std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v);
          // Where ranks take backwards as early as they can, not all of them are needed.
          EXPECT_LE(most, formula) << where;
          if (m % p == 0) {
            EXPECT_EQ(most, formula) << where;
          }
          break;
        }
        case PipelineKind::kChimera:
          EXPECT_LE(most, std::min(one.spec.doubling ? 2 * p : p, m)) << where;
          break;
        case PipelineKind::kPipeDream:
        case PipelineKind::kPipeDream2BW:
        case PipelineKind::kFile: FAIL(); break;
      }
    }
  }
}

TEST(PipelineGenerators, APatternThatWouldWaitForItselfIsNotTaken) {
  // 13 = 8 + 5: with the fixed warm-up no rank would come past its 13th chunk or so.
  const PipelineSchedule schedule = interleaved_schedule(8, 13, 2);
  EXPECT_THAT(blocked_frontier(schedule), ::testing::IsEmpty());
  EXPECT_EQ(count_ops(schedule), 2U * 8 * 2 * 13);
}

TEST(PipelineSpecs, NamesAreReadBack) {
  for (const char* text :
       {"gpipe", "1f1b", "interleaved[chunks=3]", "zb-h1", "zb-v", "zb-v-half", "zb-v-min",
        "breadth-first[chunks=2]", "chimera", "chimera[doubling=on]", "pipedream",
        "pipedream[vertical_sync=on]", "2bw", "file[a/b[1].csv]", "1f1b[stages=3+4+4+1]",
        "interleaved[chunks=2,stages=1+2]", "chimera[doubling=on,stages=5]"}) {
    const auto spec = PipelineSpec::parse(text);
    ASSERT_TRUE(spec.has_value()) << spec.error().message();
    EXPECT_EQ(spec.value().text(), text);
  }
  EXPECT_EQ(PipelineSpec::parse("interleaved").value().text(), "interleaved[chunks=2]");
}

TEST(PipelineSpecs, OthersAreRefused) {
  for (const char* text : {"",
                           "1F1B",
                           "gpipe[chunks=2]",
                           "zb-v[chunks=2]",
                           "chimera[doubling=]",
                           "chimera[doubling=1]",
                           "chimera[chunks=2]",
                           "interleaved[",
                           "interleaved[]",
                           "interleaved[chunks=0]",
                           "interleaved[chunks=2000]",
                           "interleaved[chunks=2]x",
                           "file",
                           "file[]",
                           "[chunks=2]",
                           "1f1b[stages=]",
                           "1f1b[stages=3+]",
                           "1f1b[stages=0]",
                           "gpipe[,stages=1]",
                           "gpipe[stages=1,stages=1]"}) {
    EXPECT_THAT(PipelineSpec::parse(text).error(), fails(Code::kInvalidArgument, "expected"))
        << text;
  }
  EXPECT_THAT(PipelineSpec::parse("zero").error(), fails(Code::kInvalidArgument, "zero", "zb-h1"));
}

TEST(PipelineSpecs, NumbersOutOfRangeAreRefused) {
  const PipelineSpec spec{.kind = PipelineKind::kInterleaved, .chunks = 1024};
  EXPECT_THAT(generate_pipeline(spec, 0, 1).error(), fails(Code::kInvalidArgument, "0", "ranks"));
  EXPECT_THAT(generate_pipeline(spec, 1, 0).error(), fails(Code::kInvalidArgument, "0"));
  EXPECT_THAT(generate_pipeline(spec, 100, 1).error(),
              fails(Code::kInvalidArgument, "102400", "65536"));
  EXPECT_THAT(generate_pipeline({.kind = PipelineKind::kGpipe}, 60'000, 60'000).error(),
              fails(Code::kInvalidArgument, "60000"));
  const PipelineSpec both{.kind = PipelineKind::kChimera};
  EXPECT_THAT(generate_pipeline(both, 3, 4).error(),
              fails(Code::kInvalidArgument, "chimera", "3 ranks", "even"));
  EXPECT_THAT(generate_pipeline(both, 4, 3).error(),
              fails(Code::kInvalidArgument, "chimera", "3 micro-batches", "even"));
  EXPECT_THAT(generate_pipeline({.kind = PipelineKind::kChimera, .doubling = true}, 4, 4).error(),
              fails(Code::kInvalidArgument, "chimera[doubling=on]", "4 micro-batches", "8, twice"));
  EXPECT_THAT(generate_pipeline({.kind = PipelineKind::kFile, .path = "x"}, 2, 2).error(),
              fails(Code::kUnsupported, "x"));
}

}  // namespace
}  // namespace gradwire::generators_test
