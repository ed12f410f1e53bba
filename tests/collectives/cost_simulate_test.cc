// Simulated times against closed forms, computed here in exact integers from the rows of the cost
// table: equality, not nearness.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/cost/simulate.h"
#include "collectives/schedules/selection.h"
#include "collectives/schedules/steps.h"
#include "tests/support/fails.h"

namespace gradwire::cost_simulate_test {
namespace {

// No round numbers, so that a wrong count cannot hide.
constexpr LinkModel kLinks{.alpha = 13.7e-6,
                           .beta = 0.83e-9,
                           .gamma = 0.041e-9,
                           .alpha_intra = 1.9e-6,
                           .beta_intra = 0.17e-9,
                           .gap = 0};

ExactTime alphas(std::int64_t n) { return n * ExactTime::from_seconds(kLinks.alpha); }
ExactTime betas(std::int64_t bytes) { return bytes * ExactTime::from_seconds(kLinks.beta); }
ExactTime gammas(std::int64_t bytes) { return bytes * ExactTime::from_seconds(kLinks.gamma); }

struct RanksOptions : SimulationOptions {
  std::vector<int> node_of = {};  // by rank; empty: no two ranks share a node
  bool use_symmetry = true;       // one rank may stand for others that do the same
};

Result<Simulation> simulate(int size, const ScheduleOf& schedule_of,
                            const RanksOptions& options = {}) {
  GW_ASSIGN(const TimedJob job,
            compile(size, schedule_of, options.node_of, options.use_symmetry, kMostSteps));
  return gradwire::simulate(job, options);
}

Simulation run(int size, const ScheduleOf& schedule_of, RanksOptions options = {}) {
  if (options.links == LinkModel{}) options.links = kLinks;
  auto outcome = simulate(size, schedule_of, options);
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
  return outcome.has_value() ? outcome.value() : Simulation{};
}

ScheduleOf all_reduce(const char* algorithm, int size, std::int64_t elems) {
  return [=](int rank) { return make_schedule(OpKind::kAllReduce, algorithm, rank, size, elems); };
}

RanksOptions without_gamma() {
  RanksOptions options;
  options.links = kLinks;
  options.links.gamma = 0;
  return options;
}

// Workers 1 .. p push d elements each to a server, rank 0, which sends the sum back to each.
ScheduleOf parameter_server(int workers, std::int64_t elems) {
  return [=](int rank) {
    Schedule schedule{.rank = rank, .size = workers + 1, .in_elems = elems, .out_elems = elems};
    const Place all = out_place_of({0, elems});
    if (rank != 0) {
      schedule.rounds = {{send_step(0, all)}, {recv_copy(0, all)}};
      return schedule;
    }
    schedule.rounds.resize(2);
    for (int w = 1; w <= workers; ++w) schedule.rounds[0].push_back(recv_reduce(w, all));
    for (int w = 1; w <= workers; ++w) schedule.rounds[1].push_back(send_step(w, all));
    return schedule;
  };
}

TEST(ExactTime, SumsAndMultiplesAreThoseOfRationals) {
  const ExactTime tenth = ExactTime::from_seconds(0.1);
  EXPECT_EQ(tenth + tenth + tenth, 3 * tenth);  // unlike doubles: 0.1 + 0.1 + 0.1 != 3 * 0.1
  EXPECT_EQ(tenth.seconds(), 0.1);
  EXPECT_EQ((5 * ExactTime::from_seconds(0.25)).seconds(), 1.25);
  EXPECT_EQ(ExactTime::from_seconds(0.83e-9).seconds(), 0.83e-9);
  EXPECT_LT(tenth, 2 * tenth);
}

TEST(Simulate, R4_ParameterServerTakesTwoAlphaAndTwoPdBeta) {
  for (int p = 1; p <= 9; ++p) {
    const std::int64_t d = 1000;
    const Simulation simulation = run(p + 1, parameter_server(p, d), without_gamma());
    EXPECT_EQ(simulation.time, alphas(2) + betas(2 * p * 4 * d)) << p;
    EXPECT_EQ(simulation.wire_bytes_max, p * 4 * d);
    EXPECT_EQ(run(p + 1, parameter_server(p, d)).time,
              alphas(2) + betas(2 * p * 4 * d) + gammas(p * 4 * d));
  }
}

TEST(Simulate, R5_RingTakesTwoPMinusOneAlphaAndItsShareOfBeta) {
  for (int p = 2; p <= 17; ++p) {
    const std::int64_t chunk = 12345;
    const Simulation simulation = run(p, all_reduce("ring", p, p * chunk), without_gamma());
    EXPECT_EQ(simulation.time, alphas(2 * (p - 1)) + betas(2 * (p - 1) * 4 * chunk)) << p;
    // The double nearest to the rational, not a sum of rounded rounds.
    const long double exact = 2.0L * (p - 1) * 13.7e-6 + 2.0L * (p - 1) * 4 * chunk * 0.83e-9;
    EXPECT_DOUBLE_EQ(simulation.time.seconds(), static_cast<double>(exact));
    EXPECT_EQ(simulation.rounds, 2 * (p - 1));
    EXPECT_EQ(simulation.wire_bytes_max, 2 * (p - 1) * 4 * chunk);
  }
}

TEST(Simulate, R5_UnequalChunksCostAsTheLargest) {
  // A chunk walks the whole ring twice, so the largest decides.
  for (const int p : {2, 3, 5, 8, 17}) {
    for (const std::int64_t n : {std::int64_t{1}, std::int64_t{p + 1}, std::int64_t{10007}}) {
      const std::int64_t largest = (n + p - 1) / p;
      EXPECT_EQ(run(p, all_reduce("ring", p, n), without_gamma()).time,
                alphas(2 * (p - 1)) + betas(2 * (p - 1) * 4 * largest))
          << p << " " << n;
    }
  }
}

TEST(Simulate, R6_RingWithReductionsHasAllThreeTerms) {
  for (int p = 2; p <= 17; ++p) {
    const std::int64_t chunk = 777;
    EXPECT_EQ(run(p, all_reduce("ring", p, p * chunk)).time,
              alphas(2 * (p - 1)) + betas(2 * (p - 1) * 4 * chunk) + gammas((p - 1) * 4 * chunk))
        << p;
  }
}

TEST(Simulate, R7_TheServerSaturatesAndShardingItDoesNot) {
  for (const auto& [p, ratio] : {std::pair{4, 16.0 / 3}, std::pair{8, 64.0 / 7}}) {
    const std::int64_t d = std::int64_t{840} << 20;
    const double server = run(p + 1, parameter_server(p, d), without_gamma()).time.seconds();
    const double ring = run(p, all_reduce("ring", p, d), without_gamma()).time.seconds();
    EXPECT_NEAR(server / ring, ratio, 1e-3 * ratio);  // p^2 / (p - 1) as d grows
    // Every rank the server of its own share: 2 alpha + 2 d beta, less the share that stays home.
    const Simulation sharded = run(p, all_reduce("canonical", p, d), without_gamma());
    EXPECT_EQ(sharded.time, alphas(2) + betas(2 * (p - 1) * 4 * d / p)) << p;
  }
}

TEST(Simulate, R8_BlueConnectTakesEachLevelsRing) {
  // 2 ranks on each of 4 nodes, beta between nodes 5 times that inside.
  RanksOptions options;
  options.links = kLinks;
  options.node_of = blocks_of_ranks(8, 4);
  const std::int64_t n = 8 * 50000;
  const auto blueconnect = [&](int rank) {
    return make_schedule({.collective = OpKind::kAllReduce,
                          .algorithm = "blueconnect",
                          .rank = rank,
                          .size = 8,
                          .elems = n,
                          .node_of = options.node_of});
  };
  const ExactTime alpha = ExactTime::from_seconds(kLinks.alpha_intra);
  const ExactTime beta = ExactTime::from_seconds(kLinks.beta_intra);
  const Simulation simulation = run(8, blueconnect, options);
  EXPECT_EQ(simulation.time, 2 * alpha + 2 * (n / 2) * 4 * beta +      // 2 (p1 - 1)/p1 N
                                 alphas(6) + betas(6 * (n / 8) * 4) +  // 2 (p2 - 1)/p2 N/p1
                                 gammas((n / 2) * 4 + 3 * (n / 8) * 4));
  EXPECT_LT(simulation.time, run(8, all_reduce("ring", 8, n), options).time);
  // Levels of any size on one network: 2 sum (pi - 1) rounds.
  const std::vector<int> levels{2, 3, 2};
  const auto three = [&](int rank) {
    return make_schedule({.collective = OpKind::kAllReduce,
                          .algorithm = "blueconnect",
                          .rank = rank,
                          .size = 12,
                          .elems = 12 * 1000,
                          .levels = levels});
  };
  EXPECT_EQ(run(12, three, without_gamma()).time,
            alphas(2 * (1 + 2 + 1)) + betas(2 * 11 * 1000 * 4));
}

TEST(Simulate, R4_TheServerAmongTheWorkers) {
  for (int p = 2; p <= 9; ++p) {
    EXPECT_EQ(run(p, all_reduce("parameter_server", p, 1000), without_gamma()).time,
              alphas(2) + betas(2 * (p - 1) * 4000));
  }
}

TEST(Simulate, ABusyReceiverDoesNotHoldUpWhatIsForOthers) {
  // Ranks 1 and 2 both send to 0; rank 1 then has something for 3, which is free all the time.
  const auto schedule_of = [](int rank) {
    Schedule schedule{.rank = rank, .size = 4, .in_elems = 2000, .out_elems = 2000};
    const Place all = in_place_of({0, 1000});
    const Place other = out_place_of({1000, 2000});
    if (rank == 0) schedule.rounds = {{recv_copy(2, out_place_of({0, 1000})), recv_copy(1, other)}};
    if (rank == 1) schedule.rounds = {{send_step(0, all), send_step(3, all)}};
    if (rank == 2) schedule.rounds = {{send_step(0, all)}};
    if (rank == 3) schedule.rounds = {{recv_copy(1, other)}};
    return schedule;
  };
  EXPECT_EQ(run(4, schedule_of).time, alphas(1) + betas(2 * 4000));
}

TEST(Simulate, AGapMakesEveryMessageOfARoundCost) {
  const int p = 5;
  const std::int64_t c = 4 * 100;
  // p - 1 messages of c bytes: the last starts after p - 2 others.
  for (const double gap : {1.0, 0.25}) {
    RanksOptions options = without_gamma();
    options.links.gap = gap;
    const ExactTime start = ExactTime::from_seconds(gap * kLinks.alpha);
    EXPECT_EQ(run(p, all_reduce("canonical", p, p * 100), options).time,
              2 * ((p - 2) * start + betas((p - 1) * c) + alphas(1)));
    // One message a round: no difference.
    EXPECT_EQ(run(p, all_reduce("ring", p, p * 100), options).time,
              alphas(2 * (p - 1)) + betas(2 * (p - 1) * c));
  }
}

TEST(Simulate, BinomialTakesOneMessageTimeARound) {
  for (int p = 2; p <= 33; ++p) {
    int rounds = 0;
    while ((1 << rounds) < p) ++rounds;
    for (const int root : {0, p / 2, p - 1}) {
      const auto broadcast = [&](int rank) {
        return make_schedule(OpKind::kBroadcast, "binomial", rank, p, 1000, root);
      };
      EXPECT_EQ(run(p, broadcast).time, rounds * (alphas(1) + betas(4000))) << p << " " << root;
    }
  }
}

TEST(Simulate, LinksInsideANodeHaveTheirOwnNumbers) {
  RanksOptions options;
  options.links = kLinks;
  options.node_of = {0, 0, 0, 0};
  const ExactTime alpha = ExactTime::from_seconds(kLinks.alpha_intra);
  const ExactTime beta = ExactTime::from_seconds(kLinks.beta_intra);
  const Simulation inside = run(4, all_reduce("ring", 4, 400), options);
  EXPECT_EQ(inside.time, 6 * alpha + 6 * 400 * beta + gammas(3 * 400));
  EXPECT_EQ(inside.node_bytes_max, 0);
  // Two nodes: in every round some chunk crosses, and the crossing decides.
  options.node_of = blocks_of_ranks(4, 2);
  const Simulation across = run(4, all_reduce("ring", 4, 400), options);
  EXPECT_EQ(across.time, alphas(6) + betas(6 * 400) + gammas(3 * 400));
  EXPECT_EQ(across.node_bytes_max, 6 * 400);
  EXPECT_EQ(across.wire_bytes_max, 6 * 400);
}

TEST(Simulate, OneRankStandingForManyChangesNothing) {
  for (const char* algorithm : {"ring", "canonical"}) {
    for (const int nodes : {24, 6, 3, 1}) {
      RanksOptions options;
      options.links = kLinks;
      options.links.gap = 0.7;
      options.node_of = blocks_of_ranks(24, nodes);
      const Simulation few = run(24, all_reduce(algorithm, 24, 24 * 50), options);
      options.use_symmetry = false;
      const Simulation all = run(24, all_reduce(algorithm, 24, 24 * 50), options);
      EXPECT_EQ(all.simulated_ranks, 24);
      EXPECT_LE(few.simulated_ranks, 8);
      EXPECT_EQ(few.time, all.time) << algorithm << " " << nodes;
      EXPECT_EQ(few.wire_bytes_max, all.wire_bytes_max);
      EXPECT_EQ(few.node_bytes_max, all.node_bytes_max);
    }
  }
}

TEST(Simulate, SegmentsHideReductionsBehindTheWire) {
  RanksOptions options;
  options.links = kLinks;
  options.links.gamma = 0.5e-9;
  options.segment_bytes = 64 << 10;
  const auto ring = all_reduce("ring", 4, 4 << 20);
  const double cut = run(4, ring, options).time.seconds();
  options.segment_bytes = 0;
  const double whole = run(4, ring, options).time.seconds();
  const double wire = betas(6 * (4 << 20)).seconds();
  EXPECT_GT(cut, wire);
  EXPECT_LT(cut, wire + 0.25 * (whole - wire));
}

TEST(Simulate, SchedulesThatDoNotFitAreReported) {
  const auto alone = [](int rank) {
    Schedule schedule{.rank = rank, .size = 2, .in_elems = 4, .out_elems = 4};
    if (rank == 0) schedule.rounds = {{recv_copy(1, out_place_of({0, 4}))}};
    return schedule;
  };
  const Status never = simulate(2, alone).error();
  EXPECT_THAT(never, fails(Code::kInternal, "rank 0", "round 1"));
  const auto unequal = [](int rank) {
    Schedule schedule{.rank = rank, .size = 2, .in_elems = 4, .out_elems = 4};
    schedule.rounds = {
        {rank == 0 ? recv_copy(1, out_place_of({0, 4})) : send_step(0, out_place_of({0, 3}))}};
    return schedule;
  };
  EXPECT_THAT(simulate(2, unequal).error(), fails(Code::kInternal, "rank 1", "3", "rank 0", "4"));
}

TEST(Simulate, AThousandRanksOneByOne) {
  // 1009 is no multiple of 1000, so no rank stands for another: 2 million messages.
  const Simulation simulation = run(1000, all_reduce("ring", 1000, 1009));
  EXPECT_EQ(simulation.simulated_ranks, 1000);
  EXPECT_EQ(simulation.time, alphas(1998) + betas(1998 * 8) + gammas(999 * 8));
}

}  // namespace
}  // namespace gradwire::cost_simulate_test
