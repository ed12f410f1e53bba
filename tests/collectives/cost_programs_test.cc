// Whole programs in virtual time: ranks are threads, the in-process transport keeps logical clocks,
// and what they show afterwards is compared with closed forms by ==.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/elements.h"
#include "collectives/cost/model.h"
#include "comm/inproc/inproc_transport.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/virtual_clock.h"

namespace gradwire::cost_programs_test {
namespace {

constexpr LinkModel kLinks{.alpha = 13.7e-6,
                           .beta = 0.83e-9,
                           .gamma = 0,
                           .alpha_intra = 1.9e-6,
                           .beta_intra = 0.17e-9,
                           .gap = 0};
constexpr std::int64_t kElems = 5040;  // whole chunks for 1 to 10 ranks
constexpr std::int64_t kBytes = 4 * kElems;

struct Rank {
  Communicator& communicator;
  VirtualClock& clock;
  int number;
};

struct Outcome {
  ExactTime time;
  std::vector<TransportStats> stats;  // by rank
};

Outcome run(int ranks, const std::function<Status(const Rank&)>& program,
            std::vector<int> node_of = {}) {
  auto clock = std::make_shared<VirtualClock>(ranks, kLinks, std::move(node_of));
  auto transports = make_inproc_transports(ranks, {.clock = clock});
  Outcome outcome;
  outcome.stats.resize(static_cast<std::size_t>(ranks));
  const auto statuses = on_threads<Status>(ranks, [&](int r) {
    const auto at = static_cast<std::size_t>(r);
    GW_ASSIGN(auto communicator, make_communicator(std::move(transports.value()[at])));
    GW_TRY(program({*communicator, *clock, r}));
    outcome.stats[at] = communicator->transport_stats();
    return Status();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  outcome.time = clock->latest();
  return outcome;
}

Status all_reduce(const Rank& rank, const char* algorithm, std::int64_t elems = kElems) {
  std::vector<float> values(static_cast<std::size_t>(elems), 1.0F);
  OpOptions options;
  options.algorithm = algorithm;
  GW_ASSIGN(Work work,
            rank.communicator.all_reduce(view_of(std::span(values)), ReduceOp::kSum, options));
  GW_TRY(work.wait());
  const auto sum = static_cast<float>(rank.communicator.size());
  return values.front() == sum ? Status() : Status(Code::kInternal, "a wrong sum");
}

Status wait_for(Result<Work> work) {
  GW_ASSIGN(Work started, std::move(work));
  return started.wait();
}

ExactTime exact(double seconds) { return ExactTime::from_seconds(seconds); }

TEST(VirtualTime, R2_RingSendsTwiceItsShareInTwicePMinusOneRounds) {
  for (int p = 2; p <= 8; ++p) {
    const Outcome outcome = run(p, [](const Rank& rank) { return all_reduce(rank, "ring"); });
    for (const TransportStats& stats : outcome.stats) {
      EXPECT_EQ(stats.messages_sent, 2u * (p - 1));  // one a round
      EXPECT_EQ(stats.bytes_sent, static_cast<std::uint64_t>(2 * (p - 1) * kBytes / p));
    }
    // p does not divide the elements: at most one chunk more.
    const Outcome odd =
        run(p, [](const Rank& rank) { return all_reduce(rank, "ring", kElems + 1); });
    for (const TransportStats& stats : odd.stats) {
      EXPECT_LE(stats.bytes_sent,
                static_cast<std::uint64_t>(2 * (p - 1) * (kBytes + 4) / p + kBytes / p + 4));
    }
  }
}

TEST(VirtualTime, R4_R5_ProgramsTakeWhatTheFormulasSay) {
  for (int p = 2; p <= 8; ++p) {
    const Outcome ring = run(p, [](const Rank& rank) { return all_reduce(rank, "ring"); });
    EXPECT_EQ(ring.time,
              2 * (p - 1) * exact(kLinks.alpha) + 2 * (p - 1) * kBytes / p * exact(kLinks.beta));
    const Outcome server =
        run(p, [](const Rank& rank) { return all_reduce(rank, "parameter_server"); });
    EXPECT_EQ(server.time, 2 * exact(kLinks.alpha) + 2 * (p - 1) * kBytes * exact(kLinks.beta));
  }
}

TEST(VirtualTime, ProgramsAgreeWithTheSimulator) {
  const auto agrees = [](const CostQuestion& question, const char* algorithm) {
    const Outcome program = run(
        question.ranks, [&](const Rank& rank) { return all_reduce(rank, algorithm); },
        blocks_of_ranks(question.ranks, question.nodes));
    const auto simulation = cost_of(question, algorithm);
    ASSERT_TRUE(simulation.has_value());
    EXPECT_EQ(program.time, simulation.value().time) << algorithm;
  };
  for (const char* algorithm : {"ring", "recursive_doubling", "halving_doubling", "tree"}) {
    agrees({OpKind::kAllReduce, 8, 4, kBytes, 4, kLinks, 0}, algorithm);
  }
  // Between two ranks alone canonical has one message in each direction at a time.
  agrees({OpKind::kAllReduce, 2, 2, kBytes, 4, kLinks, 0}, "canonical");
  agrees({OpKind::kAllReduce, 2, 1, kBytes, 4, kLinks, 0}, "canonical");
}

// Where several messages want a port, threads decide which is first, and so how long ports idle.
// What holds in every order, for canonical on 8 ranks, 2 a node, whose rounds have a message of a
// chunk from every rank to every other:
//   a rank's in-port takes its 7 chunks of a round one after another, 6 from other nodes, and those
//   of round 2 after all of round 1 have arrived;
//   whatever starts late waits for a port or for round 1, so a chain of messages ends with the last
//   one, in which each of the 2 * 56 is moved at most once and an alpha passes twice.
TEST(VirtualTime, ContendingMessagesTakeNoLessThanOnePortAndNoMoreThanAll) {
  const Outcome outcome = run(
      8, [](const Rank& rank) { return all_reduce(rank, "canonical"); }, blocks_of_ranks(8, 4));
  const ExactTime between = kBytes / 8 * exact(kLinks.beta);
  const ExactTime inside = kBytes / 8 * exact(kLinks.beta_intra);
  EXPECT_GE(outcome.time, 2 * (exact(kLinks.alpha_intra) + 6 * between + inside));
  EXPECT_LE(outcome.time, 2 * (exact(kLinks.alpha) + 48 * between + 8 * inside));
  for (const TransportStats& stats : outcome.stats) {
    EXPECT_EQ(stats.messages_sent, 2u * 7);
    EXPECT_EQ(stats.bytes_sent, static_cast<std::uint64_t>(2 * 7 * kBytes / 8));
  }
}

TEST(VirtualTime, ComputationAdvancesItsRankAlone) {
  const Outcome outcome = run(3, [](const Rank& rank) {
    if (rank.number == 1) rank.clock.advance(1, exact(0.5));
    return wait_for(rank.communicator.barrier());
  });
  // Two rounds of messages, the first of which waits for rank 1.
  EXPECT_EQ(outcome.time, exact(0.5) + 2 * exact(kLinks.alpha));
}

// A master exchanges its weights with one worker after another: original elastic averaging.
Status round_robin(const Rank& rank, ExactTime compute) {
  std::vector<float> weights(static_cast<std::size_t>(kElems));
  const TensorView view = view_of(std::span(weights));
  if (rank.number > 0) {
    GW_TRY(wait_for(rank.communicator.recv(view, 0)));
    rank.clock.advance(rank.number, compute);
    return wait_for(rank.communicator.send(view, 0));
  }
  for (int worker = 1; worker < rank.communicator.size(); ++worker) {
    GW_TRY(wait_for(rank.communicator.send(view, worker)));
    GW_TRY(wait_for(rank.communicator.recv(view, worker)));
  }
  return {};
}

TEST(VirtualTime, P9_TreeExchangeBeatsRoundRobinByTheQuotient) {
  const ExactTime compute = exact(0.003);
  const ExactTime message = exact(kLinks.alpha) + kBytes * exact(kLinks.beta);
  for (int g = 2; g <= 9; ++g) {
    int rounds = 0;
    while ((1 << rounds) < g) ++rounds;
    // G worker steps: G (Tc + 2 alpha + 2 d beta).
    const Outcome original =
        run(g + 1, [&](const Rank& rank) { return round_robin(rank, compute); });
    EXPECT_EQ(original.time, g * (compute + 2 * message)) << g;
    // All at once, then a tree up and down: Tc + 2 ceil(log2 G) (alpha + d beta).
    const Outcome tree = run(g, [&](const Rank& rank) {
      rank.clock.advance(rank.number, compute);
      return all_reduce(rank, "tree");
    });
    EXPECT_EQ(tree.time, compute + 2 * rounds * message) << g;
  }
}

}  // namespace
}  // namespace gradwire::cost_programs_test
