// Every schedule, proven by the checker for 1 to 17 ranks and awkward counts, and its cost compared
// with the closed forms of docs/algorithms.md, which are computed here from `piece` alone.
#include "collectives/schedules/schedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "collectives/checker.h"
#include "collectives/selection.h"

namespace gradwire {
namespace {

using Operation = ScheduleClaim::Operation;
using Counts = std::vector<std::int64_t>;

constexpr int kMaxRanks = 17;

Counts awkward_counts(int p) { return {0, 1, p - 1, p, 1000003}; }

int log2_up(int p) {
  int rounds = 0;
  while ((1 << rounds) < p) ++rounds;
  return rounds;
}

std::vector<ScheduleCost> costs_of(int p, const ScheduleClaim& claim,
                                   const std::function<Schedule(int rank)>& make) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < p; ++r) schedules.push_back(make(r));
  auto costs = check_schedules(schedules, claim);
  EXPECT_TRUE(costs.has_value()) << costs.error().message() << "\n" << to_string(schedules[0]);
  return costs.has_value() ? costs.value() : std::vector<ScheduleCost>(static_cast<std::size_t>(p));
}

std::int64_t chunk(std::int64_t n, int p, int i) { return piece(n, p, i % p).size(); }

// A pseudo-random but fixed length, zero now and then.
std::int64_t odd_length(int i, int j) {
  return (i * 7 + j * 13) % 5 == 0 ? 0 : (i + 3) * (j + 1) % 23;
}

TEST(Schedules, RingAllReduce) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : awkward_counts(p)) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << n << " elements");
      const auto costs = costs_of(p, {.operation = Operation::kAllReduce, .size = p, .elems = n},
                                  [&](int r) { return ring_all_reduce(r, p, n); });
      std::int64_t total = 0;
      for (int r = 0; r < p; ++r) {
        const ScheduleCost& cost = costs[static_cast<std::size_t>(r)];
        const std::int64_t want = p == 1 ? 0 : 2 * n - chunk(n, p, r + 1) - chunk(n, p, r + 2);
        EXPECT_EQ(cost.elems_sent, want);
        EXPECT_EQ(cost.rounds, 2 * (p - 1));
        EXPECT_EQ(cost.messages_sent, 2 * (p - 1));
        total += cost.elems_sent;
      }
      EXPECT_EQ(total, 2 * n * (p - 1));
    }
  }
}

TEST(Schedules, CanonicalAllReduceFoldsInRankOrder) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : awkward_counts(p)) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << n << " elements");
      const ScheduleClaim claim{
          .operation = Operation::kAllReduce, .size = p, .elems = n, .rank_order = true};
      const auto costs = costs_of(p, claim, [&](int r) { return canonical_all_reduce(r, p, n); });
      for (int r = 0; r < p; ++r) {
        const std::int64_t own = chunk(n, p, r);
        EXPECT_EQ(costs[static_cast<std::size_t>(r)].elems_sent, n - own + (p - 1) * own);
        EXPECT_EQ(costs[static_cast<std::size_t>(r)].rounds, p == 1 ? 0 : 2);
      }
    }
  }
}

TEST(Schedules, ReduceScatters) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : awkward_counts(p)) {
      SCOPED_TRACE(testing::Message() << p << " ranks, rows of " << n);
      ScheduleClaim claim{.operation = Operation::kReduceScatter, .size = p, .elems = n};
      const auto ring = costs_of(p, claim, [&](int r) { return ring_reduce_scatter(r, p, n); });
      claim.rank_order = true;
      const auto canonical =
          costs_of(p, claim, [&](int r) { return canonical_reduce_scatter(r, p, n); });
      for (std::size_t r = 0; r < ring.size(); ++r) {
        EXPECT_EQ(ring[r].elems_sent, (p - 1) * n);
        EXPECT_EQ(ring[r].messages_sent, p - 1);
        EXPECT_EQ(canonical[r].elems_sent, (p - 1) * n);
        EXPECT_EQ(canonical[r].rounds, 1);
      }
    }
  }
}

TEST(Schedules, AllGathers) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : awkward_counts(p)) {
      SCOPED_TRACE(testing::Message() << p << " ranks, blocks of " << n);
      const Counts counts(static_cast<std::size_t>(p), n);
      const ScheduleClaim claim{.operation = Operation::kAllGather, .size = p, .counts = counts};
      const auto costs = costs_of(p, claim, [&](int r) { return ring_all_gather(r, p, n); });
      for (const ScheduleCost& cost : costs) EXPECT_EQ(cost.elems_sent, (p - 1) * n);
    }
  }
}

TEST(Schedules, AllGatherOfUnequalBlocks) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    SCOPED_TRACE(testing::Message() << p << " ranks");
    Counts counts;
    std::int64_t total = 0;
    for (int r = 0; r < p; ++r) total += counts.emplace_back(odd_length(r, 1));
    const ScheduleClaim claim{.operation = Operation::kAllGather, .size = p, .counts = counts};
    const auto costs = costs_of(p, claim, [&](int r) { return ring_all_gather_v(r, counts); });
    for (int r = 0; r < p; ++r) {
      const auto next = static_cast<std::size_t>((r + 1) % p);
      EXPECT_EQ(costs[static_cast<std::size_t>(r)].elems_sent, total - counts[next]);
    }
  }
}

TEST(Schedules, AllToAll) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : awkward_counts(p)) {
      SCOPED_TRACE(testing::Message() << p << " ranks, rows of " << n);
      const Counts counts(static_cast<std::size_t>(p * p), n);
      const ScheduleClaim claim{.operation = Operation::kAllToAll, .size = p, .counts = counts};
      const auto costs = costs_of(p, claim, [&](int r) { return pairwise_all_to_all(r, p, n); });
      for (const ScheduleCost& cost : costs) EXPECT_EQ(cost.elems_sent, (p - 1) * n);
    }
  }
}

TEST(Schedules, AllToAllOfUnequalRows) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    SCOPED_TRACE(testing::Message() << p << " ranks");
    Counts counts;
    for (int i = 0; i < p; ++i) {
      for (int j = 0; j < p; ++j) counts.push_back(odd_length(i, j));
    }
    const auto at = [&](int i, int j) { return counts[static_cast<std::size_t>(i * p + j)]; };
    const auto make = [&](int r) {
      Counts send, recv;
      for (int other = 0; other < p; ++other) {
        send.push_back(at(r, other));
        recv.push_back(at(other, r));
      }
      return pairwise_all_to_all_v(r, send, recv);
    };
    const auto costs =
        costs_of(p, {.operation = Operation::kAllToAll, .size = p, .counts = counts}, make);
    for (int r = 0; r < p; ++r) {
      std::int64_t want = 0;
      for (int j = 0; j < p; ++j) want += j == r ? 0 : at(r, j);
      EXPECT_EQ(costs[static_cast<std::size_t>(r)].elems_sent, want);
    }
  }
}

TEST(Schedules, BinomialBroadcastFromEveryRoot) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int root = 0; root < p; ++root) {
      for (const std::int64_t n : awkward_counts(p)) {
        SCOPED_TRACE(testing::Message()
                     << p << " ranks, root " << root << ", " << n << " elements");
        const ScheduleClaim claim{
            .operation = Operation::kBroadcast, .size = p, .elems = n, .root = root};
        const auto costs =
            costs_of(p, claim, [&](int r) { return binomial_broadcast(r, p, root, n); });
        std::int64_t total = 0;
        for (const ScheduleCost& cost : costs) {
          total += cost.elems_sent;
          EXPECT_LE(cost.rounds, log2_up(p));
        }
        EXPECT_EQ(total, (p - 1) * n);
        EXPECT_EQ(costs[static_cast<std::size_t>(root)].rounds, log2_up(p));
      }
    }
  }
}

TEST(Schedules, DisseminationBarrier) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    SCOPED_TRACE(testing::Message() << p << " ranks");
    const auto costs = costs_of(p, {.operation = Operation::kBarrier, .size = p},
                                [&](int r) { return dissemination_barrier(r, p); });
    for (const ScheduleCost& cost : costs) {
      EXPECT_EQ(cost.messages_sent, log2_up(p));
      EXPECT_EQ(cost.elems_sent, 0);
    }
  }
}

TEST(Schedules, RingOfTwoByHand) {
  const Schedule schedule = ring_all_reduce(1, 2, 3);  // chunks [0, 2) and [2, 3)
  ASSERT_EQ(schedule.rounds.size(), 2u);
  const auto out = [](std::int64_t begin, std::int64_t end) {
    return Place{BufferId::kOut, {begin, end}};
  };
  EXPECT_EQ(schedule.rounds[0][0].op, Step::Op::kSend);
  EXPECT_EQ(schedule.rounds[0][0].from, out(2, 3));
  EXPECT_EQ(schedule.rounds[0][1].op, Step::Op::kRecvReduce);
  EXPECT_EQ(schedule.rounds[0][1].to, out(0, 2));
  EXPECT_EQ(schedule.rounds[0][2].op, Step::Op::kFinish);
  EXPECT_EQ(schedule.rounds[0][2].to, out(0, 2));
  EXPECT_EQ(schedule.rounds[1][0].from, out(0, 2));
  EXPECT_EQ(schedule.rounds[1][1].op, Step::Op::kRecvCopy);
  EXPECT_EQ(schedule.rounds[1][1].to, out(2, 3));
}

TEST(Schedules, PrintAsATable) {
  EXPECT_EQ(to_string(ring_all_reduce(0, 2, 2)),
            "rank 0 of 2: in 2, out 2, scratch 0 elements, in place\n"
            "  round  1  out[0, 1) -> rank 1\n"
            "            out[1, 2) op= rank 1\n"
            "            finish out[1, 2)\n"
            "  round  2  out[1, 2) -> rank 1\n"
            "            out[0, 1) <- rank 1\n");
}

}  // namespace
}  // namespace gradwire
