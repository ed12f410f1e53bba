// The checker must find what is wrong with a wrong schedule: each test plants one fault.
#include "collectives/schedules/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/schedules/schedules.h"
#include "collectives/schedules/selection.h"
#include "tests/support/fails.h"

namespace gradwire::checker_test {
namespace {

constexpr OpKind kAllReduce = OpKind::kAllReduce;

std::vector<Schedule> ring(int p, std::int64_t n) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < p; ++r) schedules.push_back(ring_all_reduce(r, p, n));
  return schedules;
}

Status fault_in(const std::vector<Schedule>& schedules, const ScheduleClaim& claim) {
  return check_schedules(schedules, claim).error();
}

template <typename... Words>
auto faulty(const Words&... words) {
  return fails(Code::kInternal, words...);
}

MATCHER(sound, "is no fault") { return arg.ok(); }

ScheduleClaim all_reduce_of(int p, std::int64_t n) {
  return {.operation = kAllReduce, .size = p, .elems = n};
}

TEST(Checker, AcceptsTheRing) { EXPECT_THAT(fault_in(ring(3, 9), all_reduce_of(3, 9)), sound()); }

TEST(Checker, TheRingIsNotInRankOrder) {
  ScheduleClaim claim = all_reduce_of(3, 9);
  claim.rank_order = true;
  EXPECT_THAT(fault_in(ring(3, 9), claim), faulty("left fold", "rank order"));
}

TEST(Checker, FindsADeadlock) {
  auto schedules = ring(3, 9);
  schedules[1].rounds.erase(schedules[1].rounds.begin());
  schedules[1].rounds.erase(schedules[1].rounds.begin());
  EXPECT_THAT(fault_in(schedules, all_reduce_of(3, 9)), faulty());
  schedules[1].rounds.clear();
  EXPECT_THAT(fault_in(schedules, all_reduce_of(3, 9)), faulty("waits", "rank 0", "round 2"));
}

TEST(Checker, FindsALeftOverMessage) {
  auto schedules = ring(2, 4);
  schedules[0].rounds.push_back({{Step::Op::kSend, 1, {BufferId::kOut, {0, 2}}, {}}});
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)),
              faulty("1", "rank 0", "rank 1", "received"));
}

TEST(Checker, FindsAMissingContribution) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) schedule.rounds[0][1].op = Step::Op::kRecvCopy;
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("contribution", "once"));
}

TEST(Checker, FindsAContributionCountedTwice) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) schedule.rounds[0].pop_back();  // kFinish hides it otherwise
  auto twice = schedules;
  for (std::size_t r = 0; r < 2; ++r) {
    twice[r].rounds.insert(twice[r].rounds.begin(), schedules[r].rounds[0]);
  }
  EXPECT_THAT(fault_in(twice, all_reduce_of(2, 4)), faulty("contribution", "once"));
}

TEST(Checker, FindsAnUnfinishedMean) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) schedule.rounds[0].pop_back();
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("finished", "0"));
}

TEST(Checker, FindsALengthMismatch) {
  auto schedules = ring(2, 4);
  schedules[1] = ring_all_reduce(1, 2, 6);
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("elements", "2", "3"));
}

TEST(Checker, FindsARace) {
  auto schedules = ring(2, 4);
  schedules[0].rounds[1][0].from = schedules[0].rounds[1][1].to;
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("messages", "rank 1", "elements"));
}

TEST(Checker, WhatIsReducedMayBeSentInTheSameRound) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < 2; ++r) {
    schedules.push_back({.rank = r, .size = 2, .in_elems = 4, .out_elems = 4, .in_place = true});
    const Place all{BufferId::kOut, {0, 4}};
    schedules[static_cast<std::size_t>(r)].rounds = {{{Step::Op::kSend, 1 - r, all, {}},
                                                      {Step::Op::kRecvReduce, 1 - r, {}, all},
                                                      {Step::Op::kFinish, -1, {}, all}}};
  }
  // Each adds the other's to its own: the bits may differ.
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("combined", "order", "rank 0"));
}

TEST(Checker, FindsCellsThatOverlap) {
  auto schedules = ring(2, 4);
  schedules[0].rounds[1][0].from.range = {3, 4};
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("cell", "overlaps"));
}

TEST(Checker, RangesOfAnIndivisibleScheduleMayNest) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) {
    schedule.rounds.push_back(
        {{Step::Op::kCopy, -1, {BufferId::kOut, {0, 1}}, {BufferId::kOut, {0, 1}}}});
  }
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("cell", "overlaps"));
  for (Schedule& schedule : schedules) schedule.divisible = false;
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), sound());
  schedules[1].divisible = true;
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), faulty("0", "1", "cut"));
}

TEST(Checker, FindsAReadOfNothing) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < 2; ++r) {
    schedules.push_back(make_schedule(OpKind::kAllGather, "ring", r, 2, 3));
  }
  schedules[0].rounds.erase(schedules[0].rounds.begin());
  const ScheduleClaim claim{.operation = OpKind::kAllGather, .size = 2, .counts = {3, 3}};
  EXPECT_THAT(fault_in(schedules, claim), faulty("read", "written"));
}

TEST(Checker, FindsWhatSharedMemoryDestroys) {
  std::vector<Schedule> schedules;
  const Place row{BufferId::kIn, {0, 3}};
  const Place out{BufferId::kOut, {0, 3}};
  schedules.push_back({.rank = 0, .size = 2, .in_elems = 3, .out_elems = 3, .scratch_elems = 3});
  schedules.push_back({.rank = 1, .size = 2, .in_elems = 3});
  schedules[0].rounds = {{{Step::Op::kRecvCopy, 1, {}, out},
                          {Step::Op::kReduce, -1, row, out},
                          {Step::Op::kFinish, -1, {}, out}}};
  schedules[1].rounds = {{{Step::Op::kSend, 0, row, {}}}};
  ScheduleClaim claim{.operation = OpKind::kReduce, .size = 2, .elems = 3};
  EXPECT_THAT(fault_in(schedules, claim), sound());
  claim.aliased = true;
  EXPECT_THAT(fault_in(schedules, claim), faulty());
}

TEST(Checker, FindsASecondRounding) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < 3; ++r) {
    schedules.push_back(make_schedule(kAllReduce, "parameter_server", r, 3, 4));
  }
  ScheduleClaim claim = all_reduce_of(3, 4);
  claim.rank_order = true;
  EXPECT_THAT(fault_in(schedules, claim), sound());
  Round& push = schedules[0].rounds[0];  // from ranks 1 and 2, then kFinish
  schedules[0].rounds.insert(schedules[0].rounds.begin(), Round{push[0]});
  schedules[0].rounds[1].erase(schedules[0].rounds[1].begin());
  EXPECT_THAT(fault_in(schedules, claim), faulty("rounded", "2"));
}

// No step of any schedule is there for nothing: without it the checker finds a fault. Messages of
// no elements matter to a barrier alone.
TEST(Checker, FindsEveryMissingStep) {
  for (const OpKind collective :
       {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kAllToAll,
        OpKind::kBroadcast, OpKind::kBarrier, OpKind::kReduce, OpKind::kGather, OpKind::kScatter,
        OpKind::kExclusiveScan, OpKind::kSend}) {
    for (const std::string_view algorithm : algorithms_of(collective)) {
      const std::vector<int> node_of{0, 0, 0, 1, 1};
      ScheduleRequest request{.collective = collective,
                              .algorithm = algorithm,
                              .size = 5,
                              .elems = 20,
                              .root = 1,
                              .node_of = node_of};
      std::vector<Schedule> schedules;
      for (request.rank = 0; request.rank < 5; ++request.rank) {
        schedules.push_back(make_schedule(request));
      }
      for (Schedule& schedule : schedules) {
        for (Round& round : schedule.rounds) {
          for (std::size_t i = 0; i < round.size(); ++i) {
            const Round whole = round;
            round.erase(round.begin() + static_cast<std::ptrdiff_t>(i));
            EXPECT_THAT(fault_in(schedules, claim_of(request)), faulty())
                << algorithm << " " << schedule_name(collective) << ", step " << i
                << " of a round in\n"
                << to_string(schedule);
            round = whole;
          }
        }
      }
    }
  }
}

TEST(Checker, FindsABarrierThatLetsOneOutEarly) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < 4; ++r) {
    schedules.push_back(dissemination_barrier(r, 4));
    schedules.back().rounds.pop_back();
  }
  const ScheduleClaim claim{.operation = OpKind::kBarrier, .size = 4};
  EXPECT_THAT(fault_in(schedules, claim), faulty("rank 0", "heard", "2", "4"));
}

}  // namespace
}  // namespace gradwire::checker_test
