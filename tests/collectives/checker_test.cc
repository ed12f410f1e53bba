// The checker must find what is wrong with a wrong schedule: each test plants one fault.
#include "collectives/checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

using Operation = ScheduleClaim::Operation;
using testing::HasSubstr;

constexpr ScheduleClaim::Operation kAllReduce = Operation::kAllReduce;

std::vector<Schedule> ring(int p, std::int64_t n) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < p; ++r) schedules.push_back(ring_all_reduce(r, p, n));
  return schedules;
}

std::string fault_in(const std::vector<Schedule>& schedules, const ScheduleClaim& claim) {
  const auto costs = check_schedules(schedules, claim);
  return costs.has_value() ? "no fault" : std::string(costs.error().message());
}

ScheduleClaim all_reduce_of(int p, std::int64_t n) {
  return {.operation = kAllReduce, .size = p, .elems = n};
}

TEST(Checker, AcceptsTheRing) { EXPECT_EQ(fault_in(ring(3, 9), all_reduce_of(3, 9)), "no fault"); }

TEST(Checker, TheRingIsNotInRankOrder) {
  ScheduleClaim claim = all_reduce_of(3, 9);
  claim.rank_order = true;
  EXPECT_THAT(fault_in(ring(3, 9), claim), HasSubstr("not a left fold in rank order"));
}

TEST(Checker, FindsADeadlock) {
  auto schedules = ring(3, 9);
  schedules[1].rounds.erase(schedules[1].rounds.begin());
  schedules[1].rounds.erase(schedules[1].rounds.begin());
  EXPECT_NE(fault_in(schedules, all_reduce_of(3, 9)), "no fault");
  schedules[1].rounds.clear();
  EXPECT_THAT(fault_in(schedules, all_reduce_of(3, 9)), HasSubstr("waits for ever"));
}

TEST(Checker, FindsALeftOverMessage) {
  auto schedules = ring(2, 4);
  schedules[0].rounds.push_back({{Step::Op::kSend, 1, {BufferId::kOut, {0, 2}}, {}}});
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), HasSubstr("never received"));
}

TEST(Checker, FindsAMissingContribution) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) schedule.rounds[0][1].op = Step::Op::kRecvCopy;
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), HasSubstr("exactly once"));
}

TEST(Checker, FindsAContributionCountedTwice) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) schedule.rounds[0].pop_back();  // kFinish hides it otherwise
  auto twice = schedules;
  for (std::size_t r = 0; r < 2; ++r) {
    twice[r].rounds.insert(twice[r].rounds.begin(), schedules[r].rounds[0]);
  }
  EXPECT_THAT(fault_in(twice, all_reduce_of(2, 4)), HasSubstr("exactly once"));
}

TEST(Checker, FindsAnUnfinishedMean) {
  auto schedules = ring(2, 4);
  for (Schedule& schedule : schedules) schedule.rounds[0].pop_back();
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), HasSubstr("finished 0 times"));
}

TEST(Checker, FindsALengthMismatch) {
  auto schedules = ring(2, 4);
  schedules[1] = ring_all_reduce(1, 2, 6);
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), HasSubstr("elements from rank"));
}

TEST(Checker, FindsARace) {
  auto schedules = ring(2, 4);
  schedules[0].rounds[0][0].from = schedules[0].rounds[0][1].to;
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), HasSubstr("touch the same elements"));
}

TEST(Checker, FindsCellsThatOverlap) {
  auto schedules = ring(2, 4);
  schedules[0].rounds[1][0].from.range = {3, 4};
  EXPECT_THAT(fault_in(schedules, all_reduce_of(2, 4)), HasSubstr("overlaps another cell"));
}

TEST(Checker, FindsAReadOfNothing) {
  std::vector<Schedule> schedules{ring_all_gather(0, 2, 3), ring_all_gather(1, 2, 3)};
  schedules[0].rounds[0][0].from.buffer = BufferId::kOut;
  const ScheduleClaim claim{.operation = Operation::kAllGather, .size = 2, .counts = {3, 3}};
  EXPECT_THAT(fault_in(schedules, claim), HasSubstr("read before it was written"));
}

TEST(Checker, FindsABarrierThatLetsOneOutEarly) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < 4; ++r) {
    schedules.push_back(dissemination_barrier(r, 4));
    schedules.back().rounds.pop_back();
  }
  const ScheduleClaim claim{.operation = Operation::kBarrier, .size = 4};
  EXPECT_THAT(fault_in(schedules, claim), HasSubstr("having heard from 2 of 4 ranks"));
}

}  // namespace
}  // namespace gradwire
