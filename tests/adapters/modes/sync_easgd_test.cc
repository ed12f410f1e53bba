// Synchronous elastic averaging and EAMSGD over real communicators, against plain loops.
#include "adapters/trainer/modes/sync_easgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <vector>

#include "tests/adapters/modes/toy_source.h"
#include "tests/adapters/modes/virtual_ranks.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::sync_easgd_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

struct Finished {
  std::vector<Status> statuses;
  std::vector<Flat> w;  // by rank
  std::vector<Flat> centres;
};

template <typename Source>
Finished run(int ranks, const ModeOptions& options, const ElasticOptions& elastic) {
  Finished run;
  run.w.resize(static_cast<std::size_t>(ranks));
  run.centres.resize(run.w.size());
  run.statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& communicator) {
    const auto r = static_cast<std::size_t>(communicator->rank());
    Source source(communicator->rank());
    run.w[r] = toy_start();
    run.centres[r].resize(kToyElems);
    return run_sync_easgd(*communicator, Registry::builtin(), source, options, elastic, run.w[r],
                          run.centres[r], {});
  });
  return run;
}

// The recurrence of the two papers, workers one after the other; period tau, momentum delta.
struct Reference {
  std::vector<Flat> w;
  Flat centre;
};
Reference reference(int ranks, std::int64_t steps, float lr, float rho, std::int64_t tau,
                    float delta) {
  const auto n = static_cast<std::size_t>(ranks);
  Reference x{std::vector<Flat>(n, toy_start()), toy_start()};
  std::vector<Flat> u(n, Flat(kToyElems, 0.0F));
  for (std::int64_t t = 0; t < steps; ++t) {
    Flat pulls(kToyElems, 0.0F);
    const std::vector<Flat> before = x.w;
    for (int r = 0; r < ranks; ++r) {
      const auto at = static_cast<std::size_t>(r);
      Flat point = before[at];
      const float back = static_cast<float>(static_cast<double>(lr) * static_cast<double>(delta));
      if (delta > 0) {
        for (std::size_t i = 0; i < kToyElems; ++i) point[i] -= back * u[at][i];
      }
      Flat g(kToyElems);
      EXPECT_TRUE(ToySource(r).gradient(point, t, g).has_value());
      for (std::size_t i = 0; i < kToyElems; ++i) {
        const float pull = rho * (before[at][i] - x.centre[i]);
        u[at][i] = delta > 0 ? delta * u[at][i] + g[i] : g[i];
        if (t % tau != 0) {
          x.w[at][i] = before[at][i] - lr * u[at][i];
          continue;
        }
        x.w[at][i] = before[at][i] - lr * (u[at][i] + pull);
        pulls[i] = r == 0 ? pull : pulls[i] + pull;
      }
    }
    if (t % tau != 0) continue;
    for (std::size_t i = 0; i < kToyElems; ++i) x.centre[i] += lr * pulls[i];
  }
  return x;
}

void expect_equal(const Finished& run, const Reference& wanted) {
  for (std::size_t r = 0; r < run.w.size(); ++r) {
    ASSERT_TRUE(run.statuses[r].ok()) << run.statuses[r].message();
    EXPECT_EQ(run.w[r], wanted.w[r]) << r;
    EXPECT_EQ(run.centres[r], wanted.centre) << r;
  }
}

TEST(SyncEasgd, P6_HundredStepsEqualTheRecurrenceBitForBit) {
  for (const int ranks : {1, 2, 4}) {
    const ModeOptions options{.steps = 100, .lr = 0.125};
    expect_equal(run<ToySource>(ranks, options, {.rho = 1.5}),
                 reference(ranks, 100, 0.125F, 1.5F, 1, 0));
  }
}

TEST(SyncEasgd, P6_OtherAlgorithmsDifferByRoundingOnly) {
  const ModeOptions options{.steps = 100, .lr = 0.125};
  const Reference wanted = reference(4, 100, 0.125F, 1.5F, 1, 0);
  for (const char* algorithm : {"ring", "tree"}) {
    const Finished got = run<ToySource>(4, options, {.rho = 1.5, .algorithm = algorithm});
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < kToyElems; ++i) {
      error += std::pow(static_cast<double>(got.centres[3][i]) - wanted.centre[i], 2);
      norm += std::pow(static_cast<double>(wanted.centre[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6) << algorithm;
    EXPECT_EQ(got.centres[0], got.centres[3]) << algorithm;
  }
}

// Sum over i of W_i, and the centre.
std::vector<double> everything(const Finished& run) {
  std::vector<double> sum(kToyElems);
  for (std::size_t i = 0; i < kToyElems; ++i) {
    sum[i] = run.centres[0][i];
    for (const Flat& w : run.w) sum[i] += w[i];
  }
  return sum;
}

// Workers that drift apart by gradients of their own for 10 steps, and then are still.
class Drifting final : public ToySource {
 public:
  using ToySource::ToySource;
  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override {
    if (step < 10) return ToySource::gradient(params, step, grads);
    for (float& g : grads) g = 0;
    return 0;
  }
};

// With no gradients what workers lose the centre wins, coded or not.
TEST(SyncEasgd, P6_PullsConserveTheSumOfWorkersAndCentre) {
  for (const char* compressor : {"none", "topk:ratio=0.1", "qsgd:bits=4,dense_1d=false"}) {
    const ElasticOptions elastic{.rho = 1.5, .compressor = compressor, .allow_unsafe = true};
    const auto drift = [&](std::int64_t still) {
      return run<Drifting>(4, {.steps = 10 + still, .lr = 0.125}, elastic);
    };
    const Finished start = drift(0);
    const Finished end = drift(60);
    for (const Status& status : end.statuses) ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_NE(start.w[1], end.w[1]) << compressor;
    const std::vector<double> a = everything(start);
    const std::vector<double> b = everything(end);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < kToyElems; ++i) {
      error += (a[i] - b[i]) * (a[i] - b[i]);
      norm += a[i] * a[i];
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6) << compressor;
  }
}

TEST(Eamsgd, P8_PeriodAndMomentumEqualTheRecurrence) {
  const std::int64_t tau = 3;
  // alpha = beta / p: rho = beta / (p lr).
  const double rho = 0.9 / (3 * 0.0625);
  const ModeOptions options{.steps = 50, .lr = 0.0625, .momentum = 0.75};
  expect_equal(run<ToySource>(3, options, {.rho = rho, .period = tau}),
               reference(3, 50, 0.0625F, static_cast<float>(rho), tau, 0.75F));
}

TEST(Eamsgd, P8_PeriodOneWithoutMomentumIsSyncEasgd) {
  const ModeOptions options{.steps = 20, .lr = 0.125};
  const Finished got = run<ToySource>(3, options, {.rho = 1.5, .period = 1});
  expect_equal(got, reference(3, 20, 0.125F, 1.5F, 1, 0));
}

// Zhang et al., algorithm 2, in its own words: x_i <- x_i - alpha (x_i - c), c <- c + alpha sum,
// and a step of momentum from there, the elastic part at the rate alpha, whatever the learning
// rate.
TEST(Eamsgd, P8_AlphaStaysWhileTheRateMoves) {
  constexpr std::int64_t kTau = 2;
  constexpr float kAlpha = 0.25F;
  constexpr float kDelta = 0.5F;
  ModeOptions options{.steps = 30, .lr = 0.125, .momentum = kDelta};
  options.schedule = LrSchedule::parse("warmup:5,cosine:0").value();
  const Finished got = run<ToySource>(3, options, {.alpha = kAlpha, .period = kTau});
  std::vector<Flat> w(3, toy_start());
  std::vector<Flat> u(3, Flat(kToyElems, 0.0F));
  Flat centre = toy_start();
  for (std::int64_t t = 0; t < options.steps; ++t) {
    const auto lr = static_cast<float>(options.rate(t));
    Flat pulls(kToyElems, 0.0F);
    for (int r = 0; r < 3; ++r) {
      Flat& x = w[static_cast<std::size_t>(r)];
      Flat& v = u[static_cast<std::size_t>(r)];
      Flat point = x;
      const auto back = static_cast<float>(options.rate(t) * static_cast<double>(kDelta));
      for (std::size_t i = 0; i < kToyElems; ++i) point[i] -= back * v[i];
      Flat g(kToyElems);
      ASSERT_TRUE(ToySource(r).gradient(point, t, g).has_value());
      for (std::size_t i = 0; i < kToyElems; ++i) {
        const float pull = t % kTau == 0 ? kAlpha * (x[i] - centre[i]) : 0.0F;
        v[i] = kDelta * v[i] + g[i];
        x[i] -= t % kTau == 0 ? lr * v[i] + pull : lr * v[i];
        pulls[i] = r == 0 ? pull : pulls[i] + pull;
      }
    }
    for (std::size_t i = 0; i < kToyElems && t % kTau == 0; ++i) centre[i] += pulls[i];
  }
  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_TRUE(got.statuses[r].ok()) << got.statuses[r].message();
    EXPECT_EQ(got.w[r], w[r]) << r;
    EXPECT_EQ(got.centres[r], centre) << r;
  }
}

TEST(SyncEasgd, RefusesWhatCannotBe) {
  for (const auto& [elastic, momentum, words] :
       {std::tuple<ElasticOptions, double, const char*>{{.rho = 0}, 0, "rho 0"},
        {{.rho = 1, .period = 0}, 0, "period 0"},
        {{.rho = 1}, 1.0, "momentum 1"}}) {
    const Finished got = run<ToySource>(2, {.steps = 1, .lr = 0.1, .momentum = momentum}, elastic);
    for (const Status& status : got.statuses) EXPECT_THAT(status, fails(kInvalid, words));
  }
}

TEST(SyncEasgd, TellsOfEveryStepAndOfTheCentreWhereItMoved) {
  std::vector<ModeStep> seen;
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) {
    ToySource source(communicator->rank());
    Flat w = toy_start();
    Flat centre(kToyElems);
    const bool first = communicator->rank() == 0;
    return run_sync_easgd(*communicator, Registry::builtin(), source, {.steps = 5, .lr = 0.1},
                          {.rho = 1, .period = 2}, w, centre, [&](const ModeStep& step) {
                            if (first) seen.push_back(step);
                            return Status();
                          });
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(seen.size(), 5U);
  for (std::size_t t = 0; t < 5; ++t) {
    EXPECT_EQ(seen[t].step, static_cast<std::int64_t>(t));
    EXPECT_TRUE(seen[t].together);
    EXPECT_EQ(seen[t].params.empty(), t % 2 == 1) << t;
    EXPECT_GT(seen[t].loss, 0);
  }
}

TEST(SyncEasgd, P7_ExchangeIsUnderWayWhileGradientsAreComputed) {
  std::vector<ElasticEvent> events;
  const auto statuses = on_ranks(2, [&](std::unique_ptr<Communicator>& communicator) {
    ToySource source(communicator->rank());
    Flat w = toy_start();
    Flat centre(kToyElems);
    const bool first = communicator->rank() == 0;
    return run_sync_easgd(*communicator, Registry::builtin(), source, {.steps = 4, .lr = 0.1},
                          {.rho = 1}, w, centre, {}, [&](ElasticEvent event) {
                            if (first) events.push_back(event);
                          });
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(events.size(), 12U);
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(events[3 * t], ElasticEvent::kExchangeStarts);
    EXPECT_EQ(events[3 * t + 1], ElasticEvent::kGradientReady);
    EXPECT_EQ(events[3 * t + 2], ElasticEvent::kExchangeEnds);
  }
}

// P7, its second half, in virtual time. Rank 1 begins when rank 0's computation is behind it, so
// that it is no matter of threads' timing what rank 0 learns first: its message left at 0 all the
// same, and the exchange costs rank 0 nothing.
TEST(SyncEasgd, P7_TheExchangeHidesBehindTheGradientInVirtualTime) {
  constexpr std::int64_t kBytes = 4 * static_cast<std::int64_t>(kToyElems);
  const ExactTime compute = exact(0.003);
  ASSERT_LT(message(kBytes), compute);
  std::promise<void> computed;
  std::future<void> begins = computed.get_future();
  ExactTime took;
  in_virtual_time(2, [&](Communicator& communicator, VirtualClock& clock) -> Status {
    const bool first = communicator.rank() == 0;
    if (!first) begins.wait_for(std::chrono::seconds(30));
    TimedSource source(communicator, clock, compute, kBytes);
    Flat w = toy_start();
    Flat centre(kToyElems);
    GW_TRY(run_sync_easgd(
        communicator, Registry::builtin(), source, {.steps = 1, .lr = 0.1, .losses = false},
        {.rho = 1, .algorithm = "direct"}, w, centre, {}, [&](ElasticEvent event) {
          if (first && event == ElasticEvent::kGradientReady) {
            computed.set_value();
          }
        }));
    if (first) took = clock.now(0);
    return {};
  });
  EXPECT_EQ(took, compute);  // not compute + message
}

}  // namespace
}  // namespace gradwire::testing::sync_easgd_test
