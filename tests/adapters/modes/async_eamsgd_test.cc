// Asynchronous elastic averaging over real communicators, computed again from its order.
#include "adapters/trainer/modes/server/async_eamsgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "adapters/trainer/modes/easgd.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::async_eamsgd_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

struct Finished {
  std::vector<Status> statuses;
  std::vector<Flat> w;  // by rank
  std::vector<Flat> centres;
  std::vector<ElasticExchange> log;
  std::vector<ModeStep> told;
};

template <typename Source>
Finished run(const std::vector<Flat>& start, const ModeOptions& options,
             const ElasticOptions& elastic) {
  Finished run;
  const auto ranks = static_cast<int>(start.size());
  run.w = start;
  run.centres.assign(start.size(), start[0]);
  run.statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
    const auto r = static_cast<std::size_t>(communicator->rank());
    Source source(communicator->rank() - 1);
    GW_ASSIGN(auto log, run_async_eamsgd(*communicator, Registry::builtin(),
                                         r == 0 ? nullptr : &source, toy_table(), options, elastic,
                                         run.w[r], run.centres[r], [&](const ModeStep& step) {
                                           run.told.push_back(step);
                                           return Status();
                                         }));
    if (r == 0) run.log = std::move(log);
    return {};
  });
  for (const Status& status : run.statuses) EXPECT_TRUE(status.ok()) << status.message();
  return run;
}

// One worker, played by this thread.
struct Player {
  int worker;
  Flat w;
  Flat u = Flat(kToyElems, 0.0F);
  Flat e = Flat(kToyElems, 0.0F);
  std::int64_t done = 0;

  // Steps [done, end); e counts in the first of them if it was exchanged.
  void advance(std::int64_t end, float lr, double momentum, std::int64_t period) {
    for (; done < end; ++done) {
      Flat point = w;
      const auto back = static_cast<float>(static_cast<double>(lr) * momentum);
      for (std::size_t i = 0; i < kToyElems && momentum > 0; ++i) point[i] -= back * u[i];
      Flat g(kToyElems);
      EXPECT_TRUE(ToySource(worker).gradient(point, done, g).has_value());
      for (std::size_t i = 0; i < kToyElems; ++i) {
        u[i] = momentum > 0 ? static_cast<float>(momentum) * u[i] + g[i] : g[i];
        w[i] -= done % period == 0 ? lr * (u[i] + e[i]) : lr * u[i];
      }
    }
  }
};

TEST(AsyncEamsgd, P8_ReplayingTheOrderOfExchangesReproducesEverythingBitForBit) {
  constexpr std::int64_t kSteps = 50;
  constexpr std::int64_t kPeriod = 4;
  constexpr float kLr = 0.0625F;
  const double rho = 0.9 / (3 * 0.0625);  // alpha = beta / p
  for (const double momentum : {0.0, 0.75}) {
    const ModeOptions options{.steps = kSteps, .lr = kLr, .momentum = momentum};
    const Finished got = run<ToySource>(std::vector<Flat>(4, toy_start()), options,
                                        {.rho = rho, .period = kPeriod, .log_most = 1000});
    ASSERT_EQ(got.log.size(), 3U * 13);  // steps 0, 4, .., 48 of three workers
    std::vector<Flat> centres{toy_start()};
    std::vector<Player> players;
    for (int worker = 0; worker < 3; ++worker) players.push_back({worker, toy_start()});
    for (const ElasticExchange& exchange : got.log) {
      Player& player = players[static_cast<std::size_t>(exchange.worker)];
      player.advance(exchange.step, kLr, momentum, kPeriod);
      ASSERT_LT(exchange.version, static_cast<std::int64_t>(centres.size()));
      const Flat& seen = centres[static_cast<std::size_t>(exchange.version)];
      Flat next = centres.back();
      for (std::size_t i = 0; i < kToyElems; ++i) {
        player.e[i] = static_cast<float>(rho) * (player.w[i] - seen[i]);
        next[i] += kLr * player.e[i];
      }
      centres.push_back(next);
    }
    for (Player& player : players) {
      player.advance(kSteps, kLr, momentum, kPeriod);
      EXPECT_EQ(player.w, got.w[static_cast<std::size_t>(player.worker) + 1]) << player.worker;
    }
    for (const Flat& centre : got.centres) EXPECT_EQ(centre, centres.back());
    EXPECT_EQ(got.told.size(), static_cast<std::size_t>(kSteps));
  }
}

// With nobody to be ahead of, period 1 and no momentum are the original's turns.
TEST(AsyncEamsgd, P8_OneWorkerAtPeriodOneIsOriginalEasgd) {
  const ModeOptions options{.steps = 30, .lr = 0.125};
  const Finished got = run<ToySource>(std::vector<Flat>(2, toy_start()), options, {.rho = 1.25});
  std::vector<Flat> wanted(2, toy_start());
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) {
    ToySource source(communicator->rank() - 1);
    return run_easgd(*communicator, communicator->rank() == 0 ? nullptr : &source, options,
                     {.rho = 1.25}, wanted[static_cast<std::size_t>(communicator->rank())], {});
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(got.centres[0], wanted[0]);
  EXPECT_EQ(got.w[1], wanted[1]);
}

// With no gradients what workers lose the centre wins, coded or not, whoever comes when.
TEST(AsyncEamsgd, P6_PullsConserveTheSumOfWorkersAndCentre) {
  for (const char* compressor : {"none", "topk:ratio=0.1", "qsgd:bits=4,dense_1d=false"}) {
    std::vector<Flat> start(4, toy_start());
    for (std::size_t r = 1; r < start.size(); ++r) {
      for (std::size_t i = 0; i < kToyElems; ++i)
        start[r][i] += toy_draw(static_cast<int>(r), 1, i);
    }
    const Finished got =
        run<StillSource>(start, {.steps = 40, .lr = 0.125},
                         {.rho = 1.5, .period = 2, .compressor = compressor, .allow_unsafe = true});
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < kToyElems; ++i) {
      double before = 0;
      double after = static_cast<double>(got.centres[0][i]) - start[0][i];
      for (std::size_t r = 1; r < start.size(); ++r) {
        before += start[r][i];
        after += got.w[r][i];
      }
      error += (before - after) * (before - after);
      norm += before * before;
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6) << compressor;
    EXPECT_NE(got.w[1], start[1]) << compressor;
  }
}

// A master serves for as long as its workers train: its log keeps the last exchanges alone.
TEST(AsyncEamsgd, TheLogKeepsTheLastExchanges) {
  for (const std::size_t most : {std::size_t{0}, std::size_t{5}}) {
    const Finished got = run<ToySource>(std::vector<Flat>(3, toy_start()),
                                        {.steps = 30, .lr = 0.05}, {.rho = 1, .log_most = most});
    ASSERT_EQ(got.log.size(), most);
    if (most > 0) {
      EXPECT_EQ(got.log.back().step, 29);
    }
  }
}

// The pull of Zhang et al. does not know the rate; that of You et al. follows it.
TEST(AsyncEamsgd, P8_AlphaStaysWhileTheRateMoves) {
  const auto end_of = [](const ElasticOptions& elastic, const LrSchedule& schedule) {
    std::vector<Flat> start(2, toy_start());
    start[1][7] += 1;
    const Finished got =
        run<StillSource>(start, {.steps = 9, .lr = 0.125, .schedule = schedule}, elastic);
    EXPECT_NE(got.centres[0], start[0]);
    return std::pair(got.w[1], got.centres[0]);
  };
  const LrSchedule cosine = LrSchedule::parse("warmup:3,cosine:0").value();
  const ElasticOptions alpha{.alpha = 0.25, .period = 2};
  const ElasticOptions rho{.rho = 2, .period = 2};
  EXPECT_EQ(end_of(alpha, {}), end_of(alpha, cosine));
  EXPECT_NE(end_of(rho, {}), end_of(rho, cosine));
}

TEST(AsyncEamsgd, RefusesWhatCannotBe) {
  const auto refusal = [](int ranks, const ElasticOptions& elastic) {
    const auto statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) {
      ToySource source(0);
      Flat w = toy_start();
      Flat centre = toy_start();
      return run_async_eamsgd(*communicator, Registry::builtin(), &source, toy_table(),
                              {.steps = 1, .lr = 0.1}, elastic, w, centre, {})
          .error();
    });
    return statuses[0];
  };
  EXPECT_THAT(refusal(1, {.rho = 1}), fails(kInvalid, "1 ranks"));
  EXPECT_THAT(refusal(2, {.rho = 0}), fails(kInvalid, "rho 0"));
  EXPECT_THAT(refusal(2, {.rho = 1, .period = 0}), fails(kInvalid, "period 0"));
}

}  // namespace
}  // namespace gradwire::testing::async_eamsgd_test
