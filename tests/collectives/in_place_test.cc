// Schedules whose kIn and kOut were made to share memory, proven by the checker.
#include "collectives/schedules/schedules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/schedules/checker.h"
#include "collectives/schedules/selection.h"
#include "collectives/schedules/steps.h"

namespace gradwire::in_place_test {
namespace {

// All ranks' schedules of an all_to_all by rows of counts[r] * elems, in place: rank i sends as
// much to rank j as j to i.
void prove_all_to_all(std::string_view algorithm, int p, std::int64_t elems, bool even) {
  const auto length = [&](int i, int j) { return even ? elems : elems * ((i + j) % 3); };
  ScheduleClaim claim{.operation = OpKind::kAllToAll, .size = p, .elems = elems};
  claim.aliased = true;
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < p; ++rank) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < p; ++r) counts.push_back(length(rank, r));
    claim.counts.insert(claim.counts.end(), counts.begin(), counts.end());
    ScheduleRequest request{.collective = OpKind::kAllToAll,
                            .algorithm = algorithm,
                            .rank = rank,
                            .size = p,
                            .elems = elems};
    if (!even) request.counts = request.recv_counts = counts;
    const Schedule apart = make_schedule(request);
    schedules.push_back(in_place(apart, {.elems = apart.in_elems}));
  }
  const auto costs = check_schedules(schedules, claim);
  EXPECT_TRUE(costs.has_value()) << algorithm << ", " << p << " ranks, rows of " << elems << ": "
                                 << costs.error().message();
}

TEST(InPlace, EveryAllToAllMayOverwriteItsInput) {
  for (int p = 1; p <= 17; ++p) {
    for (const std::int64_t elems : {0, 1, 6}) {
      for (const std::string_view algorithm : algorithms_of(OpKind::kAllToAll)) {
        prove_all_to_all(algorithm, p, elems, true);
      }
      for (const std::string_view algorithm : algorithms_of(OpKind::kAllToAll, true)) {
        prove_all_to_all(algorithm, p, elems, false);
      }
    }
  }
}

TEST(InPlace, WhatClobbersNothingStaysAsItIs) {
  for (const std::string_view algorithm : algorithms_of(OpKind::kAllGather)) {
    const Schedule apart = make_schedule(OpKind::kAllGather, algorithm, 2, 5, 7);
    const Schedule shared = in_place(apart, {.elems = 7, .in_begin = 0, .out_begin = 14});
    EXPECT_EQ(to_string(shared), to_string(apart)) << algorithm;
  }
}

// By hand: rank 0 of two receives over what it sends later.
TEST(InPlace, TheOutputThatWouldClobberGrowsInScratch) {
  Schedule apart{.rank = 0, .size = 2, .in_elems = 4, .out_elems = 4, .scratch_elems = 1};
  apart.rounds = {{recv_copy(1, out_place_of({2, 4}))}, {send_step(1, in_place_of({2, 4}))}};
  const Schedule shared = in_place(apart, {.elems = 4});
  EXPECT_EQ(shared.scratch_elems, 5);
  ASSERT_EQ(shared.rounds.size(), 2u);
  EXPECT_EQ(shared.rounds[0].front().to, scratch_place_of({3, 5}));
  EXPECT_EQ(shared.rounds[1].front().from, in_place_of({2, 4}));
  EXPECT_EQ(shared.rounds[1].back().from, scratch_place_of({3, 5}));
  EXPECT_EQ(shared.rounds[1].back().to, out_place_of({2, 4}));
}

}  // namespace
}  // namespace gradwire::in_place_test
