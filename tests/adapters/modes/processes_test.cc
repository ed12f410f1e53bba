// Modes over processes and UCX: the same bits as in threads, and a worker that is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "adapters/trainer/modes/easgd.h"
#include "adapters/trainer/modes/fedavg.h"
#include "adapters/trainer/modes/server/ps_async.h"
#include "adapters/trainer/modes/server/ps_sync.h"
#include "adapters/trainer/modes/sync_easgd.h"
#include "base/hash.h"
#include "tests/adapters/modes/small_problem.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"

namespace gradwire::testing {
namespace {

using Flat = std::vector<float>;

std::string outcome_of(const Status& status) {
  return std::string(status.ok() ? "" : status.message());
}
std::string said(const Status& status, bool as_wanted) {
  if (!status.ok()) return outcome_of(status);
  return as_wanted ? "" : "other parameters than wanted";
}

std::uint64_t hash(const Flat& params) { return hash_bytes(std::as_bytes(std::span(params))); }

// All ranks' hashes are rank 0's.
bool agreed(Communicator& world, const Flat& params) {
  const auto own = static_cast<std::int64_t>(hash(params));
  std::int64_t first = own;
  auto work = world.broadcast(view_of(std::span(&first, 1)), 0);
  return work.has_value() && work.value().wait().ok() && first == own;
}

TEST(Processes, P1_SyncParameterServerEqualsAccumulationBitForBit) {
  const Flat wanted = accumulated(2, 10, 0.05, 0.9);
  const auto outcomes = on_processes(3, {}, 90, [&](std::unique_ptr<Communicator> world) {
    Flat params = mlp_start();
    const auto source = world->rank() == 0 ? nullptr : share(world->rank() - 1, 2);
    const Status status = run_ps_sync(*world, Registry::builtin(), source.get(), mlp().parameters(),
                                      {.steps = 10, .lr = 0.05, .momentum = 0.9}, {}, params, {});
    return said(status, params == wanted);
  });
  EXPECT_THAT(outcomes, ended_cleanly(3));
}

TEST(Processes, P2_AsyncParameterServerBoundsStalenessAndAgreesInTheEnd) {
  const auto outcomes = on_processes(4, {}, 90, [&](std::unique_ptr<Communicator> world) {
    AsyncServerOptions async;
    async.staleness = 1;
    async.server.push = "topk:ratio=0.2,ef=ef14,min_elems=0,dense_1d=false";
    async.server.servers = 2;
    async.server.block_elems = 500;
    Flat params = toy_start();
    ToySource source(world->rank() - 2);
    const auto outcome = run_ps_async(*world, Registry::builtin(), &source, toy_table(),
                                      {.steps = 40, .lr = 0.02}, async, params, {});
    if (!outcome.has_value()) return outcome_of(outcome.error());
    if (world->rank() < 2 && outcome.value().counts.pushes != 80) {
      return std::string("not all pushes");
    }
    if (outcome.value().most_lead() > 1) return std::string("too far ahead");
    return said({}, agreed(*world, params));
  });
  EXPECT_THAT(outcomes, ended_cleanly(4));
}

TEST(Processes, P7_OriginalEasgdEqualsOneThreadBitForBit) {
  Flat centre = toy_start();
  std::vector<Flat> w(2, toy_start());
  for (std::int64_t t = 0; t < 20; ++t) {
    Flat& own = w[static_cast<std::size_t>(t % 2)];
    Flat g(kToyElems);
    ASSERT_TRUE(ToySource(static_cast<int>(t % 2)).gradient(own, t / 2, g).has_value());
    for (std::size_t i = 0; i < kToyElems; ++i) {
      const float pull = 1.5F * (own[i] - centre[i]);
      own[i] -= 0.125F * (g[i] + pull);
      centre[i] += 0.125F * pull;
    }
  }
  const auto outcomes = on_processes(3, {}, 90, [&](std::unique_ptr<Communicator> world) {
    Flat own = toy_start();
    ToySource source(world->rank() - 1);
    const Status status = run_easgd(*world, world->rank() == 0 ? nullptr : &source,
                                    {.steps = 10, .lr = 0.125}, {.rho = 1.5}, own, {});
    const int rank = world->rank();
    return said(status, own == (rank == 0 ? centre : w[static_cast<std::size_t>(rank - 1)]));
  });
  EXPECT_THAT(outcomes, ended_cleanly(3));
}

TEST(Processes, P6_SyncEasgdAndFedAvgKeepOneCentre) {
  const auto outcomes = on_processes(3, {}, 90, [&](std::unique_ptr<Communicator> world) {
    ToySource source(world->rank());
    Flat w = toy_start();
    Flat centre(kToyElems);
    const Status elastic = run_sync_easgd(*world, Registry::builtin(), source,
                                          {.steps = 30, .lr = 0.1, .momentum = 0.5},
                                          {.rho = 1, .period = 2}, w, centre, {});
    if (!elastic.ok()) return outcome_of(elastic);
    Flat params = toy_start();
    const Status averaged = run_fedavg(*world, Registry::builtin(), source,
                                       {.steps = 30, .lr = 0.1}, {.local_steps = 4}, params, {});
    if (!averaged.ok()) return outcome_of(averaged);
    return said({}, agreed(*world, centre) && agreed(*world, params) && w != centre);
  });
  EXPECT_THAT(outcomes, ended_cleanly(3));
}

// Dies as from outside, without a word.
class Killed final : public ToySource {
 public:
  using ToySource::ToySource;
  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override {
    if (worker() == 2 && step == 5) std::raise(SIGKILL);
    return ToySource::gradient(params, step, grads);
  }
};

TEST(Processes, AKilledWorkerEndsServersAndWorkersNamingIt) {
  for (const bool asynchronous : {false, true}) {
    CommunicatorOptions options;
    options.deadline_seconds = 10;
    const auto outcomes = on_processes(3, options, 60, [&](std::unique_ptr<Communicator> world) {
      Killed source(world->rank());
      Flat params = toy_start();
      const ModeOptions mode{.steps = 1'000'000, .lr = 1e-3, .deadline_seconds = 10};
      if (!asynchronous) {
        return outcome_of(
            run_ps_sync(*world, Registry::builtin(), &source, toy_table(), mode, {}, params, {}));
      }
      return outcome_of(
          run_ps_async(*world, Registry::builtin(), &source, toy_table(), mode, {}, params, {})
              .error());
    });
    EXPECT_THAT(outcomes, survivors_ended_saying(3, 2, tells("rank 2")));
    ASSERT_TRUE(outcomes.has_value());
    EXPECT_TRUE(WIFSIGNALED(outcomes.value()[2].wait_status));
  }
}

}  // namespace
}  // namespace gradwire::testing
