// The synchronous parameter server against one process that accumulates.
#include "adapters/trainer/modes/server/ps_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/adapters/modes/small_problem.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::ps_sync_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

struct Finished {
  std::vector<Status> statuses;
  std::vector<Flat> params;  // by rank
  std::vector<std::uint64_t> bytes;
  std::vector<std::uint64_t> messages;
  std::vector<double> losses;
};

template <typename MakeSource>
Finished run(int ranks, const ParameterTable& table, const Flat& start, const ModeOptions& options,
             const SyncServerOptions& sync, const MakeSource& make_source) {
  Finished run;
  const auto n = static_cast<std::size_t>(ranks);
  run.params.assign(n, start);
  run.bytes.resize(n);
  run.messages.resize(n);
  run.statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const auto r = static_cast<std::size_t>(communicator->rank());
    const int worker = communicator->rank() - sync.server.servers;
    auto source = worker < 0 ? nullptr : make_source(worker, ranks - sync.server.servers);
    GW_TRY(run_ps_sync(*communicator, Registry::builtin(), source.get(), table, options, sync,
                       run.params[r], [&](const ModeStep& step) {
                         run.losses.push_back(step.loss);
                         return Status();
                       }));
    run.bytes[r] = communicator->bytes_sent();
    run.messages[r] = communicator->transport_stats().messages_sent;
    return {};
  });
  return run;
}

Finished run_model(int ranks, const ModeOptions& options, const SyncServerOptions& sync) {
  return run(ranks, mlp().parameters(), mlp_start(), options, sync, share);
}
Finished run_toy(int ranks, const ModeOptions& options, const SyncServerOptions& sync) {
  return run(ranks, toy_table(), toy_start(), options, sync,
             [](int worker, int) { return std::make_unique<ToySource>(worker); });
}

TEST(PsSync, P1_EqualsAccumulationBitForBit) {
  for (const int workers : {1, 2, 3, 4}) {
    for (const bool at_worker : {false, true}) {
      const Flat wanted = accumulated(workers, 20, 0.05, 0.9,
                                      at_worker ? MomentumAt::kWorker : MomentumAt::kServer);
      for (const int servers : {1, 2}) {
        SyncServerOptions sync{.momentum_at_worker = at_worker};
        sync.server.servers = servers;
        sync.server.block_elems = 500;
        const Finished got =
            run_model(workers + servers, {.steps = 20, .lr = 0.05, .momentum = 0.9}, sync);
        for (std::size_t r = 0; r < got.params.size(); ++r) {
          ASSERT_TRUE(got.statuses[r].ok()) << got.statuses[r].message();
          EXPECT_EQ(got.params[r], wanted) << workers << " workers, " << servers << " servers";
        }
        EXPECT_EQ(got.losses.size(), 20U);
      }
    }
  }
}

// One more step: each worker sends one message of d elements, the server one to each of p workers,
// 2 p d elements through it in two rounds, and nothing else.
TEST(PsSync, P1_TwoRoundsOfPTimesDElementsThroughTheServer) {
  constexpr std::uint64_t kBytes = 4 * kToyElems;
  for (const std::uint64_t workers : {1, 3, 5}) {
    const auto ranks = static_cast<int>(workers) + 1;
    const Finished four = run_toy(ranks, {.steps = 4, .lr = 0.1, .losses = false}, {});
    const Finished five = run_toy(ranks, {.steps = 5, .lr = 0.1, .losses = false}, {});
    for (const Status& status : five.statuses) ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(five.bytes[0] - four.bytes[0], workers * kBytes);
    EXPECT_EQ(five.messages[0] - four.messages[0], workers);
    for (std::size_t w = 1; w <= workers; ++w) {
      EXPECT_EQ(five.bytes[w] - four.bytes[w], kBytes);
      EXPECT_EQ(five.messages[w] - four.messages[w], 1U);
    }
  }
}

double distance_to_optimum(const Flat& params, int workers) {
  double squares = 0;
  for (std::size_t i = 0; i < kToyElems; ++i) {
    double mean = 0;
    for (int w = 0; w < workers; ++w) mean += static_cast<double>(toy_target(w, i)) / workers;
    squares += (params[i] - mean) * (params[i] - mean);
  }
  return std::sqrt(squares / kToyElems);
}

TEST(PsSync, CodedPushesAndPullsReachWhatExactOnesDo) {
  const ModeOptions options{.steps = 300, .lr = 0.05};
  const double exact = distance_to_optimum(run_toy(4, options, {}).params[0], 3);
  EXPECT_LT(exact, 0.05);
  for (const char* push : {"topk:ratio=0.2,ef=ef14,dense_1d=false,min_elems=0", "qsgd:bits=8"}) {
    for (const char* pull : {"none", "topk:ratio=0.3,dense_1d=false,min_elems=0", "cast:bf16"}) {
      SyncServerOptions sync;
      sync.server.push = push;
      sync.server.pull = pull;
      const Finished got = run_toy(4, options, sync);
      for (std::size_t r = 0; r < got.params.size(); ++r) {
        ASSERT_TRUE(got.statuses[r].ok()) << got.statuses[r].message();
        EXPECT_EQ(got.params[r], got.params[0]);
      }
      EXPECT_LT(distance_to_optimum(got.params[0], 3), 0.1) << push << " / " << pull;
      EXPECT_LT(got.bytes[1], 300 * 4 * kToyElems) << push;
    }
  }
}

TEST(PsSync, RefusesWhatCannotBe) {
  const auto refusal = [](int ranks, const SyncServerOptions& sync) {
    const Finished got = run_toy(ranks, {.steps = 1, .lr = 0.1}, sync);
    for (const Status& status : got.statuses) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.message();
    }
    return got.statuses[0];
  };
  SyncServerOptions all_serve;
  all_serve.server.servers = 2;
  EXPECT_THAT(refusal(2, all_serve), fails(kInvalid, "2", "server", "worker"));
  SyncServerOptions far;
  far.server.push = "topk:ratio=0.1,ef=ef21";
  EXPECT_THAT(refusal(2, far), fails(kInvalid, "ef21", "ef14", "loco"));
  SyncServerOptions twice;
  twice.server.pull = "topk:ratio=0.1,ef=ef14";
  EXPECT_THAT(refusal(2, twice), fails(kInvalid, "ef=ef14", "no ef"));
  SyncServerOptions warm;
  warm.server.push = "topk:ratio=0.1,ef=ef14,warmup_steps=3";
  EXPECT_THAT(refusal(2, warm), fails(kInvalid, "warmup_steps"));
}

}  // namespace
}  // namespace gradwire::testing::ps_sync_test
