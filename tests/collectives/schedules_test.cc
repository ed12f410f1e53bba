// Every schedule of every collective, proven by the checker: 1 to 17 ranks with awkward counts, up
// to 64 ranks with fewer, kIn and kOut apart and shared.
#include "collectives/schedules/schedules.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "collectives/schedules/checker.h"
#include "collectives/schedules/selection.h"

namespace gradwire::schedules_test {
namespace {

using Elems = std::vector<std::int64_t>;

constexpr int kMaxRanks = 17;

bool is_full() { return std::getenv("GRADWIRE_TEST_FULL") != nullptr; }

bool has_root(OpKind collective) {
  return collective == OpKind::kBroadcast || collective == OpKind::kReduce ||
         collective == OpKind::kGather || collective == OpKind::kScatter;
}

bool has_rows(OpKind collective) {
  return collective == OpKind::kAllGather || collective == OpKind::kReduceScatter ||
         collective == OpKind::kGather || collective == OpKind::kScatter;
}

std::vector<int> roots_of(OpKind collective, int p) {
  if (!has_root(collective)) return {0};
  const std::set<int> roots{0, p / 2, p - 1};
  return {roots.begin(), roots.end()};
}

std::string text_of(const ScheduleRequest& request, std::string_view what) {
  return std::string(schedule_name(request.collective)) + " by " + std::string(request.algorithm) +
         ", " + std::to_string(request.size) + " ranks, root " + std::to_string(request.root) +
         ", " + std::to_string(request.elems) + " elements" + std::string(what);
}

// The fault, or nothing.
void prove(ScheduleRequest request, const ScheduleClaim& claim, std::string_view what = "",
           bool apart = false) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < request.size; ++r) {
    request.rank = r;
    schedules.push_back(make_schedule(request));
    if (apart) schedules.back() = out_of_place(std::move(schedules.back()));
  }
  const auto costs = check_schedules(schedules, claim);
  EXPECT_TRUE(costs.has_value()) << text_of(request, what) << ": " << costs.error().message();
}

void prove_everything(ScheduleRequest request) {
  ScheduleClaim claim = claim_of(request);
  prove(request, claim);
  const OpKind collective = request.collective;
  if (collective == OpKind::kAllReduce) prove(request, claim, ", out of place", true);
  if (has_rows(collective) || collective == OpKind::kReduce ||
      collective == OpKind::kExclusiveScan) {
    claim.aliased = true;
    prove(request, claim, ", in place");
  }
}

constexpr OpKind kCollectives[] = {
    OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kAllToAll,
    OpKind::kBroadcast, OpKind::kBarrier,       OpKind::kReduce,    OpKind::kGather,
    OpKind::kScatter,   OpKind::kExclusiveScan, OpKind::kSend};

void prove_collective(OpKind collective, int p, const Elems& counts) {
  for (const std::string_view algorithm : algorithms_of(collective)) {
    for (const int root : roots_of(collective, p)) {
      for (const std::int64_t elems : counts) {
        prove_everything({.collective = collective,
                          .algorithm = algorithm,
                          .size = p,
                          .elems = elems,
                          .root = root});
      }
    }
  }
}

TEST(Schedules, AreRightForOneToSeventeenRanksAndAwkwardCounts) {
  for (const OpKind collective : kCollectives) {
    for (int p = 1; p <= kMaxRanks; ++p) {
      const std::set<std::int64_t> counts{0, 1, p - 1, p, 65537, 1000003};
      prove_collective(collective, p, Elems(counts.begin(), counts.end()));
    }
  }
}

// All of them where GRADWIRE_TEST_FULL is set.
TEST(Schedules, AreRightForUpToSixtyFourRanks) {
  const std::set<int> some{23, 32, 33, 48, 63, 64};
  for (const OpKind collective : kCollectives) {
    for (int p = kMaxRanks + 1; p <= 64; ++p) {
      if (is_full() || some.contains(p)) prove_collective(collective, p, {1003});
    }
  }
}

// A pseudo-random but fixed length, zero now and then.
std::int64_t odd_length(int i, int j) {
  return (i * 7 + j * 13) % 5 == 0 ? 0 : (i + 3) * (j + 1) % 23;
}

TEST(Schedules, AreRightForRowsOfUnequalLengths) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    Elems counts;
    for (int r = 0; r < p; ++r) counts.push_back(odd_length(r, p));
    for (const OpKind collective : kCollectives) {
      if (!has_rows(collective)) continue;
      for (const std::string_view algorithm : algorithms_of(collective, true)) {
        for (const int root : roots_of(collective, p)) {
          prove_everything({.collective = collective,
                            .algorithm = algorithm,
                            .size = p,
                            .root = root,
                            .counts = counts});
        }
      }
    }
  }
}

TEST(Schedules, AllToAllOfUnequalRows) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    ScheduleClaim claim{.operation = OpKind::kAllToAll, .size = p};
    for (int i = 0; i < p; ++i) {
      for (int j = 0; j < p; ++j) claim.counts.push_back(odd_length(i, j));
    }
    for (const std::string_view algorithm : algorithms_of(OpKind::kAllToAll, true)) {
      std::vector<Schedule> schedules;
      for (int r = 0; r < p; ++r) {
        Elems to, from;
        for (int other = 0; other < p; ++other) {
          to.push_back(odd_length(r, other));
          from.push_back(odd_length(other, r));
        }
        schedules.push_back(make_schedule({.collective = OpKind::kAllToAll,
                                           .algorithm = algorithm,
                                           .rank = r,
                                           .size = p,
                                           .counts = to,
                                           .recv_counts = from}));
      }
      const auto costs = check_schedules(schedules, claim);
      EXPECT_TRUE(costs.has_value())
          << p << " ranks by " << algorithm << ": " << costs.error().message();
    }
  }
}

// Nodes of any shape: blocks, dealt out, one rank alone, unequal.
TEST(Schedules, TwoLevelsAndBlueConnectOnNodesOfAnyShape) {
  const std::vector<std::vector<int>> shapes{
      {0, 0, 1, 1},          {0, 1, 0, 1},
      {0, 1, 2, 3},          {7, 7, 7, 7, 7, 7},
      {0, 0, 0, 1, 1, 1},    {0, 0, 0, 0, 1},
      {5, 4, 5, 4, 5, 3, 3}, {0, 1, 2, 0, 1, 2, 0, 1, 2},
      {2, 2, 0, 0, 0, 1},    {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}};
  for (const std::vector<int>& shape : shapes) {
    for (const std::string_view algorithm : {"two_level", "blueconnect"}) {
      for (const std::int64_t elems : {0, 1, 11, 4096, 65537}) {
        prove_everything({.algorithm = algorithm,
                          .size = static_cast<int>(shape.size()),
                          .elems = elems,
                          .node_of = shape});
      }
    }
  }
}

TEST(Schedules, BlueConnectTakesAnyFactors) {
  const std::vector<std::vector<int>> factors{{12},   {2, 6},    {6, 2},    {3, 4},
                                              {4, 3}, {2, 3, 2}, {2, 2, 3}, {1, 12, 1}};
  for (const std::vector<int>& levels : factors) {
    for (const std::int64_t elems : {5, 144, 65537}) {
      prove_everything({.algorithm = "blueconnect", .size = 12, .elems = elems, .levels = levels});
    }
  }
}

TEST(Schedules, AParameterServerMayBeAnyRank) {
  for (int p = 1; p <= 9; ++p) {
    for (int root = 0; root < p; ++root) {
      prove_everything({.algorithm = "parameter_server", .size = p, .elems = 10, .root = root});
    }
  }
}

TEST(Schedules, LargeTensorsOfIndivisibleSchedulesComeInStretches) {
  const std::vector<int> node_of{0, 0, 1, 1, 1};
  for (const OpKind collective : {OpKind::kAllReduce, OpKind::kBroadcast, OpKind::kReduce}) {
    for (const std::string_view algorithm : algorithms_of(collective)) {
      ScheduleRequest request{.collective = collective,
                              .algorithm = algorithm,
                              .size = 5,
                              .elems = 1003,
                              .root = 2,
                              .node_of = node_of,
                              .stretch_elems = 100};
      const Schedule schedule = make_schedule(request);
      EXPECT_EQ(schedule.stretches.size(), schedule.divisible ? 0u : 11u) << algorithm;
      EXPECT_EQ(schedule.rounds.empty(), !schedule.divisible) << algorithm;
      prove_everything(request);
    }
  }
  const Schedule whole = make_schedule(
      {.algorithm = "halving_doubling", .size = 4, .elems = 100, .stretch_elems = 100});
  EXPECT_TRUE(whole.stretches.empty());
}

TEST(Schedules, RingOfTwoByHand) {
  const Schedule schedule = ring_all_reduce(1, 2, 3);  // chunks [0, 2) and [2, 3)
  ASSERT_EQ(schedule.rounds.size(), 2u);
  const auto out = [](std::int64_t begin, std::int64_t end) {
    return Place{BufferId::kOut, {begin, end}};
  };
  EXPECT_EQ(schedule.rounds[0][0].op, Step::Op::kSend);
  EXPECT_EQ(schedule.rounds[0][0].from, out(0, 2));
  EXPECT_EQ(schedule.rounds[0][1].op, Step::Op::kRecvReduce);
  EXPECT_EQ(schedule.rounds[0][1].to, out(2, 3));
  EXPECT_EQ(schedule.rounds[0][2].op, Step::Op::kFinish);
  EXPECT_EQ(schedule.rounds[0][2].to, out(2, 3));
  EXPECT_EQ(schedule.rounds[1][0].from, out(2, 3));
  EXPECT_EQ(schedule.rounds[1][1].op, Step::Op::kRecvCopy);
  EXPECT_EQ(schedule.rounds[1][1].to, out(0, 2));
}

TEST(Schedules, PrintAsATable) {
  EXPECT_EQ(to_string(ring_all_reduce(0, 2, 2)),
            "rank 0 of 2: in 2, out 2, scratch 0 elements, in place\n"
            "  round  1  out[1, 2) -> rank 1\n"
            "            out[0, 1) op= rank 1\n"
            "            finish out[0, 1)\n"
            "  round  2  out[0, 1) -> rank 1\n"
            "            out[1, 2) <- rank 1\n");
}

}  // namespace
}  // namespace gradwire::schedules_test
