// What schedules cost, against the closed forms of docs/algorithms.md: written here from `piece`
// and p alone, rank by rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "collectives/schedules/checker.h"
#include "collectives/schedules/selection.h"

namespace gradwire::schedule_costs_test {
namespace {

constexpr int kMaxRanks = 17;

int log_up(int p, int radix = 2) {
  int rounds = 0;
  for (int reach = 1; reach < p; reach *= radix) ++rounds;
  return rounds;
}

bool is_power_of_two(int p) { return (p & (p - 1)) == 0; }

std::int64_t chunk(std::int64_t n, int p, int i) { return piece(n, p, i % p).size(); }

std::vector<ScheduleCost> costs_of(ScheduleRequest request) {
  std::vector<Schedule> schedules;
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    schedules.push_back(make_schedule(request));
  }
  const auto costs = check_schedules(schedules, claim_of(request));
  EXPECT_TRUE(costs.has_value()) << costs.error().message();
  if (costs.has_value()) return costs.value();
  return std::vector<ScheduleCost>(static_cast<std::size_t>(request.size));
}

std::int64_t total_sent(const std::vector<ScheduleCost>& costs) {
  std::int64_t total = 0;
  for (const ScheduleCost& cost : costs) total += cost.elems_sent;
  return total;
}

int most_rounds(const std::vector<ScheduleCost>& costs) {
  int rounds = 0;
  for (const ScheduleCost& cost : costs) rounds = std::max(rounds, cost.rounds);
  return rounds;
}

using Sent = std::function<std::int64_t(int rank, int p, std::int64_t n)>;

// For 2 to 17 ranks: what every rank sends, and the rounds of the rank that has most of them.
void expect_costs(OpKind collective, std::string_view algorithm, const Sent& sent,
                  const std::function<int(int p)>& rounds) {
  for (int p = 2; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{p - 1},
                                 std::int64_t{p}, std::int64_t{65537}, std::int64_t{1000003}}) {
      SCOPED_TRACE(::testing::Message() << schedule_name(collective) << " by " << algorithm << ", "
                                        << p << " ranks, " << n << " elements");
      const auto costs =
          costs_of({.collective = collective, .algorithm = algorithm, .size = p, .elems = n});
      for (int r = 0; r < p; ++r) {
        EXPECT_EQ(costs[static_cast<std::size_t>(r)].elems_sent, sent(r, p, n)) << "rank " << r;
      }
      EXPECT_EQ(most_rounds(costs), rounds(p));
    }
  }
}

// The shape of recursive halving, once more: chunks of the half that `rank` is not in are handed
// over at every split; in a doubling, its own half goes to each of `listeners`.
struct Halving {
  std::int64_t handed_over = 0;
  std::int64_t shared = 0;
};
Halving halving_of(int rank, int p, std::int64_t n) {
  Halving sum;
  int first = 0;
  int count = p;
  while (count > 1) {
    const int left = (count + 1) / 2;
    const bool in_left = rank < first + left;
    const int own_first = in_left ? first : first + left;
    const int own_count = in_left ? left : count - left;
    std::int64_t own = 0;
    std::int64_t all = 0;
    for (int i = 0; i < own_count; ++i) own += chunk(n, p, own_first + i);
    for (int i = 0; i < count; ++i) all += chunk(n, p, first + i);
    const bool odd_one = count % 2 == 1 && in_left && rank == first + left - 1;
    const bool has_two = count % 2 == 1 && !in_left && rank == first + left;
    sum.handed_over += all - own;
    sum.shared += own * (odd_one ? 0 : has_two ? 2 : 1);
    first = own_first;
    count = own_count;
  }
  return sum;
}

TEST(ScheduleCosts, R2_TheRingHasTwicePMinusOneRounds) {
  expect_costs(
      OpKind::kAllReduce, "ring",
      [](int r, int p, std::int64_t n) { return 2 * n - chunk(n, p, r) - chunk(n, p, r + 1); },
      [](int p) { return 2 * (p - 1); });
  for (int p = 2; p <= 8; ++p) {
    const std::int64_t d = 1000 * p;
    for (const auto& cost : costs_of({.algorithm = "ring", .size = p, .elems = d})) {
      EXPECT_EQ(cost.rounds, 2 * (p - 1));
      EXPECT_EQ(cost.messages_sent, 2 * (p - 1));
      EXPECT_EQ(cost.elems_sent, 2 * (p - 1) * (d / p));
      EXPECT_EQ(cost.elems_received, 2 * (p - 1) * (d / p));
    }
    for (const auto& cost : costs_of({.algorithm = "ring", .size = p, .elems = d + p - 1})) {
      EXPECT_LE(cost.elems_sent - 2 * (p - 1) * (d + p - 1) / p, d / p + 1);  // one chunk
    }
  }
}

TEST(ScheduleCosts, AllReduceInOneOrTwoRounds) {
  const auto canonical = [](int r, int p, std::int64_t n) {
    return n - chunk(n, p, r) + (p - 1) * chunk(n, p, r);
  };
  expect_costs(OpKind::kAllReduce, "canonical", canonical, [](int) { return 2; });
  expect_costs(
      OpKind::kAllReduce, "direct", [](int, int p, std::int64_t n) { return (p - 1) * n; },
      [](int) { return 1; });
  expect_costs(
      OpKind::kAllReduce, "parameter_server",
      [](int r, int p, std::int64_t n) { return r == 0 ? (p - 1) * n : n; }, [](int) { return 2; });
}

TEST(ScheduleCosts, RecursiveDoubling) {
  const auto sent = [](int r, int p, std::int64_t n) {
    const int most = is_power_of_two(p) ? p : 1 << (log_up(p) - 1);
    const bool paired = r < 2 * (p - most);
    if (paired && r % 2 == 0) return n;
    return (log_up(most) + (paired ? 1 : 0)) * n;
  };
  expect_costs(OpKind::kAllReduce, "recursive_doubling", sent,
               [](int p) { return is_power_of_two(p) ? log_up(p) : log_up(p) - 1 + 2; });
}

TEST(ScheduleCosts, HalvingAndDoubling) {
  const auto sent = [](int r, int p, std::int64_t n) {
    const Halving halving = halving_of(r, p, n);
    EXPECT_EQ(halving.handed_over, n - chunk(n, p, r));
    return halving.handed_over + halving.shared;
  };
  expect_costs(OpKind::kAllReduce, "halving_doubling", sent, [](int p) { return 2 * log_up(p); });
  for (int p = 2; p <= 64; ++p) {
    const std::int64_t n = 10 * p;
    const auto costs = costs_of({.algorithm = "halving_doubling", .size = p, .elems = n});
    EXPECT_EQ(total_sent(costs), 2 * n * (p - 1)) << p;  // the least that any algorithm can send
    if (!is_power_of_two(p)) continue;
    for (const auto& cost : costs) EXPECT_EQ(cost.elems_sent, 2 * n * (p - 1) / p);
  }
}

TEST(ScheduleCosts, AllReduceUpAndDownTrees) {
  for (int p = 2; p <= kMaxRanks; ++p) {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{65537}}) {
      SCOPED_TRACE(::testing::Message() << p << " ranks, " << n << " elements");
      const auto tree = costs_of({.algorithm = "tree", .size = p, .elems = n});
      EXPECT_EQ(total_sent(tree), 2 * (p - 1) * n);
      EXPECT_EQ(tree[0].elems_sent, log_up(p) * n);
      EXPECT_EQ(tree[0].rounds, 2 * log_up(p));
      const auto knomial = costs_of({.algorithm = "knomial", .size = p, .elems = n});
      EXPECT_EQ(total_sent(knomial), 2 * (p - 1) * n);
      EXPECT_EQ(knomial[0].rounds, 2 * log_up(p, 4));
      const auto both = costs_of({.algorithm = "double_tree", .size = p, .elems = n});
      EXPECT_EQ(total_sent(both), 2 * (p - 1) * n);
      EXPECT_LE(most_rounds(both), 4);
      for (const auto& cost : both) {
        EXPECT_LE(cost.elems_sent, 2 * n + 2);    // n/2 up twice, n/2 down to two children
        EXPECT_GE(cost.elems_sent, 2 * (n / 2));  // n/2 up twice
      }
    }
  }
}

TEST(ScheduleCosts, TwoLevels) {
  for (const auto& [g, nodes] : {std::pair{2, 4}, {4, 2}, {3, 5}, {1, 6}, {6, 1}}) {
    SCOPED_TRACE(::testing::Message() << nodes << " nodes of " << g);
    std::vector<int> node_of;
    for (int r = 0; r < g * nodes; ++r) node_of.push_back(r / g);
    const std::int64_t n = 60 * g * nodes;
    const std::int64_t own = n / g;
    for (const auto& cost :
         costs_of({.algorithm = "two_level", .size = g * nodes, .elems = n, .node_of = node_of})) {
      EXPECT_EQ(cost.elems_sent, n - own + 2 * own * (nodes - 1) / nodes + (g - 1) * own);
      EXPECT_EQ(cost.rounds, (g > 1 ? 2 : 0) + 2 * (nodes - 1));
    }
  }
}

TEST(ScheduleCosts, BlueConnect) {
  const std::vector<std::vector<int>> factors{{2, 4}, {4, 2}, {2, 2, 2}, {3, 5}, {2, 3, 4}, {7}};
  for (const std::vector<int>& levels : factors) {
    const int p = std::accumulate(levels.begin(), levels.end(), 1, std::multiplies<>());
    const std::int64_t n = 100 * p;
    int rounds = 0;
    std::int64_t sent = 0;
    std::int64_t left = n;
    for (const int length : levels) {
      rounds += 2 * (length - 1);
      sent += 2 * left * (length - 1) / length;
      left /= length;
    }
    EXPECT_EQ(sent, 2 * n * (p - 1) / p);
    for (const auto& cost :
         costs_of({.algorithm = "blueconnect", .size = p, .elems = n, .levels = levels})) {
      EXPECT_EQ(cost.elems_sent, sent);
      EXPECT_EQ(cost.rounds, rounds);
    }
  }
}

TEST(ScheduleCosts, ReduceScatters) {
  const Sent all_but_own = [](int, int p, std::int64_t n) { return (p - 1) * n; };
  const auto linear = [](int p) { return p - 1; };
  expect_costs(OpKind::kReduceScatter, "ring", all_but_own, linear);
  expect_costs(OpKind::kReduceScatter, "pairwise", all_but_own, linear);
  expect_costs(OpKind::kReduceScatter, "canonical", all_but_own, [](int) { return 1; });
  expect_costs(OpKind::kReduceScatter, "recursive_halving", all_but_own,
               [](int p) { return log_up(p); });
}

TEST(ScheduleCosts, AllGathers) {
  const Sent all_but_own = [](int, int p, std::int64_t n) { return (p - 1) * n; };
  expect_costs(OpKind::kAllGather, "ring", all_but_own, [](int p) { return p - 1; });
  expect_costs(OpKind::kAllGather, "bruck", all_but_own, [](int p) { return log_up(p); });
  expect_costs(OpKind::kAllGather, "direct", all_but_own, [](int) { return 1; });
  expect_costs(
      OpKind::kAllGather, "recursive_doubling",
      [](int r, int p, std::int64_t n) { return halving_of(r, p, n * p).shared; },
      [](int p) { return log_up(p); });
}

TEST(ScheduleCosts, AllGatherOfUnequalRows) {
  for (int p = 2; p <= kMaxRanks; ++p) {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < p; ++r) counts.push_back(r * r % 7);
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    for (const std::string_view algorithm : algorithms_of(OpKind::kAllGather, true)) {
      const auto costs = costs_of(
          {.collective = OpKind::kAllGather, .algorithm = algorithm, .size = p, .counts = counts});
      for (std::size_t r = 0; r < costs.size(); ++r) {
        EXPECT_EQ(costs[r].elems_received, total - counts[r]) << algorithm;
        if (algorithm == "ring") {
          EXPECT_EQ(costs[r].elems_sent, total - counts[(r + 1) % counts.size()]);
        }
      }
    }
  }
}

TEST(ScheduleCosts, Broadcasts) {
  for (int p = 2; p <= kMaxRanks; ++p) {
    for (const int root : {0, p - 1}) {
      SCOPED_TRACE(::testing::Message() << p << " ranks, root " << root);
      const std::int64_t n = 1001;
      const auto run = [&](std::string_view algorithm) {
        return costs_of({.collective = OpKind::kBroadcast,
                         .algorithm = algorithm,
                         .size = p,
                         .elems = n,
                         .root = root});
      };
      const auto at_root = static_cast<std::size_t>(root);
      for (const char* tree : {"binomial", "knomial", "double_tree", "chain"}) {
        EXPECT_EQ(total_sent(run(tree)), (p - 1) * n) << tree;
      }
      EXPECT_EQ(run("binomial")[at_root].elems_sent, log_up(p) * n);
      EXPECT_EQ(run("binomial")[at_root].rounds, log_up(p));
      EXPECT_EQ(run("knomial")[at_root].rounds, log_up(p, 4));
      EXPECT_EQ(run("double_tree")[at_root].elems_sent, n);
      EXPECT_EQ(run("chain")[at_root].elems_sent, n);
      for (const auto& cost : run("double_tree")) EXPECT_LE(cost.elems_sent, n + 1);
      const auto scattered = run("scatter_all_gather");
      EXPECT_EQ(scattered[at_root].elems_sent,
                n - chunk(n, p, root) + halving_of(root, p, n).shared);
      EXPECT_EQ(most_rounds(scattered), 2 * log_up(p));
    }
  }
}

TEST(ScheduleCosts, Reduces) {
  for (int p = 2; p <= kMaxRanks; ++p) {
    for (const int root : {0, p - 1}) {
      SCOPED_TRACE(::testing::Message() << p << " ranks, root " << root);
      const std::int64_t n = 1001;
      const auto run = [&](std::string_view algorithm) {
        return costs_of({.collective = OpKind::kReduce,
                         .algorithm = algorithm,
                         .size = p,
                         .elems = n,
                         .root = root});
      };
      for (int r = 0; r < p; ++r) {
        const auto at = static_cast<std::size_t>(r);
        for (const char* name : {"binomial", "knomial", "double_tree", "canonical"}) {
          const bool parts = std::string_view(name) == "canonical";
          EXPECT_EQ(run(name)[at].elems_sent, r != root ? n : parts ? n - chunk(n, p, r) : 0);
        }
        if (r == root) {
          EXPECT_EQ(run("scatter_gather")[at].elems_sent, n - chunk(n, p, r));
        }
      }
      EXPECT_EQ(run("binomial")[static_cast<std::size_t>(root)].rounds, log_up(p));
      EXPECT_EQ(most_rounds(run("scatter_gather")), 2 * log_up(p));
      EXPECT_EQ(most_rounds(run("canonical")), 2);
    }
  }
}

TEST(ScheduleCosts, GathersAndScatters) {
  for (int p = 2; p <= kMaxRanks; ++p) {
    for (const int root : {0, p / 2}) {
      SCOPED_TRACE(::testing::Message() << p << " ranks, root " << root);
      const std::int64_t n = 10;
      for (const OpKind collective : {OpKind::kGather, OpKind::kScatter}) {
        for (const char* algorithm : {"binomial", "linear"}) {
          const auto costs = costs_of({.collective = collective,
                                       .algorithm = algorithm,
                                       .size = p,
                                       .elems = n,
                                       .root = root});
          const bool gather = collective == OpKind::kGather;
          const bool linear = std::string_view(algorithm) == "linear";
          const ScheduleCost& at_root = costs[static_cast<std::size_t>(root)];
          EXPECT_EQ(gather ? at_root.elems_received : at_root.elems_sent, (p - 1) * n);
          EXPECT_LE(at_root.rounds, linear ? 1 : log_up(p));  // less in the smaller half
          EXPECT_TRUE(root != 0 || at_root.rounds == (linear ? 1 : log_up(p)));
          EXPECT_EQ(gather ? at_root.elems_sent : at_root.elems_received, 0);
          for (const auto& cost : costs) {
            if (&cost == &at_root) continue;
            const std::int64_t moved = gather ? cost.elems_sent : cost.elems_received;
            EXPECT_TRUE(!linear || moved == n);
            EXPECT_LE(moved, (p + 1) / 2 * n);
          }
        }
      }
    }
  }
}

TEST(ScheduleCosts, AllToAlls) {
  const Sent all_but_own = [](int, int p, std::int64_t n) { return (p - 1) * n; };
  expect_costs(OpKind::kAllToAll, "pairwise", all_but_own, [](int p) { return p - 1; });
  expect_costs(OpKind::kAllToAll, "direct", all_but_own, [](int) { return 1; });
  const auto bruck = [](int, int p, std::int64_t n) {
    std::int64_t hops = 0;  // a row travels once for each bit of the distance
    for (int distance = 1; distance < p; ++distance) {
      for (int rest = distance; rest > 0; rest /= 2) hops += rest % 2;
    }
    return hops * n;
  };
  expect_costs(OpKind::kAllToAll, "bruck", bruck, [](int p) { return log_up(p); });
}

TEST(ScheduleCosts, Barriers) {
  for (int p = 1; p <= 64; ++p) {
    for (const auto& cost :
         costs_of({.collective = OpKind::kBarrier, .algorithm = "dissemination", .size = p})) {
      EXPECT_EQ(cost.messages_sent, log_up(p));
      EXPECT_EQ(cost.elems_sent, 0);
    }
    std::int64_t messages = 0;
    const auto tree = costs_of({.collective = OpKind::kBarrier, .algorithm = "tree", .size = p});
    for (const auto& cost : tree) messages += cost.messages_sent;
    EXPECT_EQ(messages, 2 * (p - 1));
    EXPECT_EQ(tree[0].rounds, 2 * log_up(p));
  }
}

TEST(ScheduleCosts, ExclusiveScans) {
  expect_costs(
      OpKind::kExclusiveScan, "linear",
      [](int r, int p, std::int64_t n) { return r < p - 1 ? n : 0; },
      [](int p) { return p > 2 ? 2 : 1; });
  const auto doubling = [](int r, int p, std::int64_t n) {
    std::int64_t messages = r + 1 < p ? 1 : 0;
    for (int distance = 1; distance < p - 1; distance *= 2) {
      messages += r > 0 && r + distance < p ? 1 : 0;
    }
    return messages * n;
  };
  expect_costs(OpKind::kExclusiveScan, "recursive_doubling", doubling,
               [](int p) { return 1 + log_up(p - 1); });
}

}  // namespace
}  // namespace gradwire::schedule_costs_test
