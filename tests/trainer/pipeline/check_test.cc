// What the checker lets through and what it refuses, with the operation at fault and the ranks that
// wait.
#include "trainer/pipeline/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/trainer/pipeline/every_schedule.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/text.h"

namespace gradwire::check_test {
namespace {

constexpr PipelineStepOps kWholeStep{.reduce = true, .tied = true, .sharded = true};

// "ok", or the refusal.
std::string verdict(const PipelineSchedule& schedule, const PipelineRules& rules = {}) {
  return std::string(check_pipeline(schedule, rules).status().message());
}

// Of two ranks with a stage each, and one micro-batch.
std::string verdict_of(const std::string& first, const std::string& second,
                       const PipelineRules& rules = {}) {
  const auto schedule =
      parse_pipeline("pipeline ranks=2 stages=2 micro-batches=1\nplace 0 1\nrank 0: " + first +
                     "\nrank 1: " + second + "\n");
  if (!schedule.has_value()) return "unread: " + std::string(schedule.error().message());
  return verdict(schedule.value(), rules);
}

// Of one rank with one stage.
std::string verdict_of(const std::string& ops, int micro_batches = 1,
                       const PipelineRules& rules = {}) {
  const auto schedule =
      parse_pipeline("pipeline ranks=1 stages=1 micro-batches=" + std::to_string(micro_batches) +
                     "\nplace 0\nrank 0: " + ops + "\n");
  if (!schedule.has_value()) return "unread: " + std::string(schedule.error().message());
  return verdict(schedule.value(), rules);
}

const std::string kSays = "pipeline schedule: ";

TEST(PipelineCheck, GeneratedSchedulesAreValidInBothLowerings) {
  for (const PipelineCase& one : every_pipeline()) {
    for (const bool whole : {false, true}) {
      const PipelineSchedule schedule =
          whole ? with_step_ops(one.schedule(), kWholeStep) : one.schedule();
      EXPECT_EQ(verdict(schedule), "ok") << one.text();
      for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
        const auto lowered = lower_pipeline(schedule, links);
        ASSERT_TRUE(lowered.has_value()) << one.text() << lowered.error().message();
        EXPECT_EQ(verdict(lowered.value(), {.links = links}), "ok")
            << one.text() << " " << to_string(links);
        // What is in order under waiting sends is in order under sends that leave at once.
        EXPECT_EQ(verdict(lowered.value(), {.links = PipelineLinks::kTagged}), "ok") << one.text();
      }
    }
  }
}

TEST(PipelineCheck, ContextsAreCountedAndBounded) {
  const PipelineSchedule schedule = generate_pipeline({}, 4, 6).value();
  EXPECT_THAT(check_pipeline(schedule).contexts, ::testing::ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(verdict(schedule, {.most_contexts = 4}), "ok");
  EXPECT_EQ(verdict(schedule, {.most_contexts = 3}),
            kSays + "0F3 (rank 0, operation 3) opens context 4 of its rank (expected at most 3)");
}

TEST(PipelineCheck, ShapesAreRefused) {
  EXPECT_EQ(verdict({}), kSays + "0 micro-batches (expected 1 to 65535)");
  EXPECT_EQ(verdict({.micro_batches = 1}), kSays + "0 pipes (expected 1 to 256)");
  EXPECT_EQ(verdict({.micro_batches = 1, .rank_of = {{}}}),
            kSays + "0 stages (expected 1 to 65536)");
  EXPECT_EQ(verdict({.micro_batches = 1, .rank_of = {{1}}, .ranks = {{}}}),
            kSays + "a stage on rank 1 (expected 0 to 0)");
  EXPECT_EQ(verdict({.micro_batches = 1, .rank_of = {{0}}, .ranks = {{}, {}}}),
            kSays + "rank 1 holds no stage (expected one)");
  EXPECT_EQ(verdict({.micro_batches = 1, .rank_of = {{0}, {0, 0}}, .ranks = {{}}}),
            kSays + "pipes of 1 and 2 stages (expected as many in each)");
}

TEST(PipelineCheck, OperationsThatAreNotTheSchedulesAreRefused) {
  EXPECT_EQ(
      verdict_of("0F0 0B0 2F0", "1F0 1B0"),
      kSays + "2F0 (rank 0, operation 2) names stage 2 of pipe 0 (expected 2 stages of 1 pipes)");
  EXPECT_EQ(verdict_of("0F0 0F1 0B0", "1F0 1B0"),
            kSays + "0F1 (rank 0, operation 1) names micro-batch 1 (expected 0 to 0)");
  EXPECT_EQ(
      verdict_of("0F0 0B0 1F0", "1F0 1B0"),
      kSays + "1F0 (rank 0, operation 2) is on rank 0 (expected rank 1, which holds the stage)");
  EXPECT_EQ(verdict_of("0F0 0F0 0B0", "1F0 1B0"),
            kSays + "0F0 (rank 0, operation 1) is there twice (expected operation 0 alone)");
  EXPECT_EQ(verdict_of("0F0 0B0 0W0", "1F0 1B0"),
            kSays +
                "0W0 (rank 0, operation 2) is there beside the same backward in its other form "
                "(expected B, or I and W)");
  EXPECT_EQ(verdict({.micro_batches = 1,
                     .rank_of = {{0}, {0}},
                     .ranks = {{*pipeline_op("0F0"), *pipeline_op("0B0@1")}}}),
            kSays +
                "0B0@1 (rank 0, operation 1) sends micro-batch 0 through pipe 1 (expected pipe 0 "
                "alone)");
}

TEST(PipelineCheck, MissingOperationsAreNamed) {
  EXPECT_EQ(verdict_of("0F0", "1F0 1B0"), kSays + "0B0 is missing (expected on rank 0)");
  EXPECT_EQ(verdict_of("0F0 0B0", "1B0"), kSays + "1F0 is missing (expected on rank 1)");
  EXPECT_EQ(verdict_of("0F0 0I0", "1F0 1B0"), kSays + "0W0 is missing (expected on rank 0)");
  EXPECT_EQ(verdict_of("0F0 0W0", "1F0 1B0"), kSays + "0I0 is missing (expected on rank 0)");
  // Sizes that no memory holds are not tables.
  EXPECT_EQ(verdict({.micro_batches = 65'000,
                     .rank_of = {std::vector<int>(65'000, 0)},
                     .ranks = {{*pipeline_op("0F0"), *pipeline_op("0F1")}}}),
            kSays + "0F2 is missing (expected on rank 0)");
}

TEST(PipelineCheck, OrdersOfAStageAreKept) {
  EXPECT_EQ(verdict_of("0B0 0F0", "1F0 1B0"),
            kSays + "0B0 (rank 0, operation 0) comes before 0F0, operation 1 (expected behind it)");
  EXPECT_EQ(verdict_of("0F0 0W0 0I0", "1F0 1B0"),
            kSays + "0W0 (rank 0, operation 1) comes before 0I0, operation 2 (expected behind it)");
  EXPECT_EQ(verdict_of("0F0 0B0 0R0", "1F0 1B0"),
            kSays + "0B0 (rank 0, operation 1) comes before 0R0, operation 2 (expected behind it)");
  EXPECT_EQ(verdict_of("0R0 0F0 0B0", "1F0 1B0"),
            kSays + "0R0 (rank 0, operation 0) comes before 0F0, operation 1 (expected behind it)");
  EXPECT_EQ(verdict_of("0F0 0R0 0I0 0W0", "1F0 1B0"), "ok");
}

TEST(PipelineCheck, WeightsHaveVersions) {
  const auto single = [](const std::string& ops) { return verdict_of(ops, 2); };
  EXPECT_EQ(single("0F0 0B0 0OPT 0F1#1 0B1#1 0OPT#1"), "ok");
  EXPECT_EQ(single("0F0 0F1 0STASH 0B0 0OPT 0B1 0OPT#1 0DROP"), "ok");
  EXPECT_EQ(single("0F0 0F1 0B0 0OPT 0B1 0OPT#1"),
            kSays +
                "0B1 (rank 0, operation 4) reads version 0 of the weights, which is not there "
                "(expected 1, the newest, or one that STASH keeps)");
  EXPECT_EQ(single("0F0 0B0 0OPT 0F1#1 0B1 0OPT#1"),
            kSays +
                "0B1 (rank 0, operation 4) has version 0 of the weights (expected 1, that of "
                "0F1#1)");
  EXPECT_EQ(single("0F0 0B0 0OPT#1 0F1 0B1"),
            kSays + "0OPT#1 (rank 0, operation 2) replaces version 1 (expected 0, the newest)");
  EXPECT_EQ(single("0F0 0B0 0STASH#1 0F1 0B1"),
            kSays + "0STASH#1 (rank 0, operation 2) keeps version 1 (expected 0, the newest)");
  EXPECT_EQ(single("0STASH 0STASH 0F0 0B0 0F1 0B1"),
            kSays + "0STASH (rank 0, operation 1) keeps version 0 twice");
  EXPECT_EQ(single("0F0 0B0 0DROP 0F1 0B1"),
            kSays + "0DROP (rank 0, operation 2) drops version 0, which STASH does not keep");
}

TEST(PipelineCheck, GradientsAreReducedAndAppliedOnce) {
  EXPECT_EQ(verdict_of("0F0 0B0 0RT 0RG 0OPT", "1F0 1B0 1RT 1RG 1OPT"), "ok");
  EXPECT_EQ(verdict_of("0F0 0OPT 0B0", "1F0 1B0"),
            kSays +
                "0OPT (rank 0, operation 1) applies gradients where there are none (expected B or "
                "W before it)");
  EXPECT_EQ(verdict_of("0F0 0RG 0B0", "1F0 1B0"),
            kSays +
                "0RG (rank 0, operation 1) reduces gradients where there are none (expected B or W "
                "before it)");
  EXPECT_EQ(verdict_of("0F0 0B0 0OPT 0RG", "1F0 1B0"),
            kSays +
                "0OPT (rank 0, operation 2) applies gradients that are not reduced (expected RG "
                "before it)");
  EXPECT_EQ(verdict_of("0F0 0B0 0RG 0RT 0OPT", "1F0 1B0 1RT"),
            kSays + "0RT (rank 0, operation 3) follows RG (expected RT and RR first, and RG once)");
  EXPECT_EQ(verdict_of("0F0 0F1 0B0 0RG 0B1", 2),
            kSays +
                "0B1 (rank 0, operation 4) adds to gradients that are reduced already (expected it "
                "before RT, RR and RG)");
  EXPECT_EQ(verdict_of("0F0 0F1 0B0 0OPT 0B1", 2),
            kSays +
                "0B1 (rank 0, operation 4) reads version 0 of the weights, which is not there "
                "(expected 1, the newest, or one that STASH keeps)");
  EXPECT_EQ(verdict_of("0F0 0F1 0I0 0I1 0W0 0OPT 0W1", 2),
            kSays +
                "0W1 (rank 0, operation 6) is the stage's last gradient and not applied (expected "
                "OPT behind it)");
  EXPECT_EQ(verdict_of("0F0 0B0 0RG 0F1 0B1", 2),
            kSays +
                "0B1 (rank 0, operation 4) adds to gradients that are reduced already (expected it "
                "before RT, RR and RG)");
}

TEST(PipelineCheck, ShardedParametersAreGatheredWhereTheyAreRead) {
  EXPECT_EQ(verdict_of("0UNSHARD 0F0 0RESHARD 0UNSHARD 0I0 0RESHARD 0W0"), "ok");
  EXPECT_EQ(verdict_of("0UNSHARD 0F0 0RESHARD 0B0"),
            kSays +
                "0B0 (rank 0, operation 3) reads parameters that are not gathered (expected "
                "UNSHARD before it)");
  EXPECT_EQ(verdict_of("0UNSHARD 0UNSHARD 0F0 0B0"),
            kSays +
                "0UNSHARD (rank 0, operation 1) gathers parameters that are gathered (expected "
                "RESHARD first)");
  EXPECT_EQ(verdict_of("0F0 0B0 0RESHARD"),
            kSays +
                "0F0 (rank 0, operation 0) reads parameters that are not gathered (expected "
                "UNSHARD before it)");
}

TEST(PipelineCheck, TransfersHaveTwoEnds) {
  constexpr PipelineRules kTagged{.links = PipelineLinks::kTagged};
  const std::string first = "0F0 0SF0 0RB0 0B0";
  const std::string second = "1RF0 1F0 1B0 1SB0";
  EXPECT_EQ(verdict_of(first, second, kTagged), "ok");
  EXPECT_EQ(verdict_of(first, second, {.links = PipelineLinks::kOrdered}), "ok");
  EXPECT_EQ(verdict_of(first, second),
            kSays +
                "0SF0 (rank 0, operation 1) is a transfer (expected none in a schedule that is not "
                "lowered)");
  EXPECT_EQ(verdict_of(first, "1F0 1B0 1SB0", kTagged),
            kSays + "1RF0 is missing (expected on rank 1)");
  EXPECT_EQ(verdict_of("0F0 0RB0 0B0", second, kTagged),
            kSays + "0SF0 is missing (expected on rank 0)");
  EXPECT_EQ(verdict_of(first, second + " 1SF0", kTagged),
            kSays +
                "1SF0 (rank 1, operation 4) has no other end (expected a neighbouring stage on "
                "another rank)");
  EXPECT_EQ(
      verdict_of("0SF0 0F0 0RB0 0B0", second, kTagged),
      kSays + "0SF0 (rank 0, operation 0) comes before 0F0, operation 1 (expected behind it)");
  EXPECT_EQ(
      verdict_of(first, "1F0 1RF0 1B0 1SB0", kTagged),
      kSays + "1F0 (rank 1, operation 0) comes before 1RF0, operation 1 (expected behind it)");
}

TEST(PipelineCheck, RanksThatWaitForOneAnotherAreNamedWithWhatTheyMiss) {
  const auto schedule = parse_pipeline(
      "0F0,0B0,0F1,0B1\n"
      "1F1,1B1,1F0,1B0\n");
  const PipelineCheck check = check_pipeline(schedule.value());
  ASSERT_FALSE(check.ok());
  EXPECT_EQ(check.fault->kind, PipelineFaultKind::kBlocked);
  EXPECT_EQ(check.status().message(),
            kSays +
                "0B0 (rank 0, operation 1) never starts, direct links: rank 0 waits at 0B0 "
                "(operation 1) for 1B0 of rank 1; rank 1 waits at 1F1 (operation 0) for 0F1 of "
                "rank 0");
  ASSERT_EQ(check.fault->frontier.size(), 2U);
  EXPECT_EQ(check.fault->frontier[1], (BlockedRank{.rank = 1,
                                                   .index = 0,
                                                   .op = *pipeline_op("1F1"),
                                                   .missing = *pipeline_op("0F1"),
                                                   .holder = 0}));
}

TEST(PipelineCheck, SendsThatWaitForTheirReceivesDeadlockWhereOthersDoNot) {
  // Both ranks send first: in order where sends leave at once, a deadlock where they wait.
  const auto schedule = parse_pipeline(
      "0F0,0SF0,0F1,0SF1,0RB0,0B0,0RB1,0B1\n"
      "1RF0,1F0,1B0,1SB0,1RF1,1F1,1B1,1SB1\n");
  EXPECT_EQ(verdict(schedule.value(), {.links = PipelineLinks::kTagged}), "ok");
  EXPECT_EQ(verdict(schedule.value(), {.links = PipelineLinks::kOrdered}),
            kSays +
                "0SF1 (rank 0, operation 3) never starts, ordered links: rank 0 waits at 0SF1 "
                "(operation 3) for 1RF1 of rank 1; rank 1 waits at 1SB0 (operation 3) for 0RB0 of "
                "rank 0");
}

TEST(PipelineCheck, ReductionsThatOnlyOneEndComesToNeverStart) {
  EXPECT_EQ(verdict_of("0F0 0B0 0RT 0OPT", "1F0 1B0 1OPT"),
            kSays +
                "0RT (rank 0, operation 2) never starts, direct links: rank 0 waits at 0RT "
                "(operation 2) for 1RT of rank 1");
}

TEST(PipelineCheck, TwoPipesMayShareRanks) {
  // Micro-batch 0 goes down, micro-batch 1 up. Source: Li and Hoefler, "Chimera", SC 2021.
  const std::string both =
      "pipeline ranks=2 stages=2 micro-batches=2\nplace 0 1\nplace 1 0\n"
      "rank 0: 0F0 1F1@1 1B1@1 0B0 0RR 1RR@1 0OPT 1OPT@1\n"
      "rank 1: 0F1@1 1F0 1B0 0B1@1 0RR@1 1RR 0OPT@1 1OPT\n";
  const auto schedule = parse_pipeline(both);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(verdict(schedule.value()), "ok");
  for (const PipelineLinks links : {PipelineLinks::kTagged, PipelineLinks::kOrdered}) {
    EXPECT_EQ(verdict(lower_pipeline(schedule.value(), links).value(), {.links = links}), "ok");
  }
}

TEST(PipelineCheck, APipeThatIsLeftOutIsNamed) {
  const auto verdict_of_both = [](const std::string& first, const std::string& second) {
    return verdict(parse_pipeline("pipeline ranks=2 stages=2 micro-batches=2\nplace 0 1\nplace 1 "
                                  "0\nrank 0: 0F0 1F1@1 1B1@1 0B0 " +
                                  first + "\nrank 1: 0F1@1 1F0 1B0 0B1@1 " + second + "\n")
                       .value());
  };
  EXPECT_EQ(verdict_of_both("0RR 1RR@1 0OPT 1OPT@1", "0RR@1 0OPT@1 1OPT"),
            kSays +
                "1OPT (rank 1, operation 6) applies the gradients of one pipe alone (expected RR "
                "before it)");
  EXPECT_EQ(verdict_of_both("0RR 1RR@1", "0RR@1"), kSays + "1RR is missing (expected on rank 1)");
  EXPECT_EQ(verdict_of_both("0RR 1RR@1 0OPT 1OPT@1", "1RR 0RR@1 0OPT@1 1OPT"),
            kSays +
                "0RR (rank 0, operation 4) never starts, direct links: rank 0 waits at 0RR "
                "(operation 4) for 0RR@1 of rank 1; rank 1 waits at 1RR (operation 4) for 1RR@1 of "
                "rank 0");
}

// A change of a random kind somewhere in the schedule.
void change(PipelineSchedule& schedule, std::mt19937& random) {
  auto& ops = schedule.ranks[random() % schedule.ranks.size()];
  if (ops.empty()) return;
  const auto at = static_cast<std::ptrdiff_t>(random() % ops.size());
  PipelineOp& op = ops[static_cast<std::size_t>(at)];
  switch (random() % 9) {
    case 0: ops.erase(ops.begin() + at); break;
    case 1: {
      PipelineOp added = op;
      if (random() % 2 == 0) added.kind = static_cast<PipelineOpKind>(random() % kPipelineOpKinds);
      ops.insert(ops.begin() + at, added);
      break;
    }
    case 2: std::swap(op, ops[random() % ops.size()]); break;
    case 3: op.kind = static_cast<PipelineOpKind>(random() % kPipelineOpKinds); break;
    case 4: op.micro = static_cast<std::uint16_t>(random() % 16); break;
    case 5: op.stage = static_cast<std::uint16_t>(random() % 10); break;
    case 6: op.version = static_cast<std::uint16_t>(random() % 3); break;
    case 7: {
      const PipelineOp moved = op;
      ops.erase(ops.begin() + at);
      auto& others = schedule.ranks[random() % schedule.ranks.size()];
      others.insert(others.begin() + static_cast<std::ptrdiff_t>(random() % (others.size() + 1)),
                    moved);
      break;
    }
    default: std::rotate(ops.begin(), ops.begin() + at, ops.end()); break;
  }
}

TEST(PipelineCheck, ChangedSchedulesAreValidOrRefusedWithAnOperation) {
  std::mt19937 random(23);
  const std::vector<PipelineCase> cases = every_pipeline();
  int valid = 0;
  std::set<PipelineFaultKind> kinds;
  for (int round = 0; round < 2000; ++round) {
    const PipelineCase& one = cases[random() % cases.size()];
    PipelineRules rules{.links = static_cast<PipelineLinks>(random() % 3)};
    PipelineSchedule schedule = with_step_ops(
        one.schedule(),
        {.reduce = random() % 2 == 0, .tied = random() % 2 == 0, .sharded = random() % 4 == 0});
    schedule = lower_pipeline(schedule, rules.links).value();
    for (auto changes = 1 + random() % 2; changes > 0; --changes) change(schedule, random);
    const PipelineCheck check = check_pipeline(schedule, rules);
    if (check.ok()) {
      ++valid;
      EXPECT_THAT(blocked_frontier(schedule, rules.links), ::testing::IsEmpty());
      EXPECT_EQ(check.contexts.size(), schedule.ranks.size());
      continue;
    }
    const PipelineFault& fault = *check.fault;
    kinds.insert(fault.kind);
    ASSERT_GE(fault.rank, 0) << fault.message;
    ASSERT_LT(fault.rank, schedule.size());
    const auto& ops = schedule.ranks[static_cast<std::size_t>(fault.rank)];
    if (fault.index == PipelineFault::kNowhere) {
      EXPECT_EQ(std::ranges::count(ops, fault.op), 0) << fault.message;
    } else {
      ASSERT_LT(fault.index, ops.size());
      EXPECT_EQ(ops[fault.index], fault.op);
    }
    EXPECT_EQ(fault.kind == PipelineFaultKind::kBlocked, !fault.frontier.empty());
    for (const BlockedRank& blocked : fault.frontier) {
      EXPECT_EQ(schedule.ranks[static_cast<std::size_t>(blocked.rank)][blocked.index], blocked.op);
      EXPECT_THAT(fault.message, ::testing::HasSubstr(to_string(blocked)));
    }
  }
  EXPECT_GT(valid, 20);
  // All but shapes and bounds of contexts, which no change makes.
  EXPECT_EQ(kinds.size(), 10U);
}

}  // namespace
}  // namespace gradwire::check_test
