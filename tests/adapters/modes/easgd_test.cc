// Original round-robin elastic averaging against one thread that plays everybody.
#include "adapters/trainer/modes/easgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/adapters/modes/toy_source.h"
#include "tests/adapters/modes/virtual_ranks.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::easgd_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

constexpr float kLr = 0.125F;
constexpr float kRho = 1.25F;

Flat xavier_start() {
  Flat start(kToyElems);
  toy_xavier(3, start);
  return start;
}

// Algorithm 1: worker j = t mod G, both updates from W_j as it was before.
TEST(Easgd, P7_SixtyTurnsOfFourWorkersEqualOneThreadBitForBit) {
  constexpr int kWorkers = 4;
  constexpr std::int64_t kTurns = 60;
  Flat centre = xavier_start();
  std::vector<Flat> w(kWorkers, xavier_start());
  for (std::int64_t t = 0; t < kTurns; ++t) {
    const int j = static_cast<int>(t % kWorkers);
    const Flat sent = centre;
    Flat& own = w[static_cast<std::size_t>(j)];
    const Flat before = own;
    Flat g(kToyElems);
    ASSERT_TRUE(ToySource(j).gradient(before, t / kWorkers, g).has_value());
    for (std::size_t i = 0; i < kToyElems; ++i) {
      own[i] = before[i] - kLr * (g[i] + kRho * (before[i] - sent[i]));
      centre[i] = sent[i] + kLr * (kRho * (before[i] - sent[i]));
    }
  }

  std::vector<Flat> got(kWorkers + 1);
  std::vector<int> turns;
  std::vector<std::int64_t> told;
  const auto statuses = on_ranks(kWorkers + 1, [&](std::unique_ptr<Communicator>& communicator) {
    const int rank = communicator->rank();
    Flat& own = got[static_cast<std::size_t>(rank)];
    own = xavier_start();
    ToySource source(rank - 1);
    return run_easgd(
        *communicator, rank == 0 ? nullptr : &source, {.steps = kTurns / kWorkers, .lr = kLr},
        {.rho = kRho}, own,
        [&](const ModeStep& step) {
          told.push_back(step.step);
          EXPECT_EQ(step.params.size(), kToyElems);
          return Status();
        },
        rank == 0 ? &turns : nullptr);
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(got[0], centre);
  for (std::size_t j = 0; j < kWorkers; ++j) EXPECT_EQ(got[j + 1], w[j]) << j;

  ASSERT_EQ(turns.size(), static_cast<std::size_t>(kTurns));
  for (std::size_t t = 0; t < turns.size(); ++t) {
    EXPECT_EQ(turns[t], 1 + static_cast<int>(t % kWorkers)) << "turn " << t;
  }
  EXPECT_EQ(told.size(), static_cast<std::size_t>(kTurns / kWorkers));
}

// A turn is the centre's message, the computation and the parameters' message, one after another:
// the loss of 4 bytes rides with the parameters.
TEST(Easgd, P7_NothingOverlapsInVirtualTime) {
  constexpr std::int64_t kBytes = 4 * static_cast<std::int64_t>(kToyElems);
  const ExactTime compute = exact(0.003);
  for (const int workers : {1, 3, 4}) {
    const ExactTime took =
        in_virtual_time(workers + 1, [&](Communicator& communicator, VirtualClock& clock) {
          TimedSource source(communicator, clock, compute, 0);
          Flat own = toy_start();
          return run_easgd(communicator, communicator.rank() == 0 ? nullptr : &source,
                           {.steps = 5, .lr = kLr}, {.rho = kRho}, own, {});
        });
    EXPECT_EQ(took, 5 * workers * (compute + message(kBytes) + message(kBytes + 4))) << workers;
  }
}

TEST(Easgd, RefusesToBeAlone) {
  const auto statuses = on_ranks(1, [&](std::unique_ptr<Communicator>& communicator) {
    Flat own = toy_start();
    return run_easgd(*communicator, nullptr, {.steps = 1, .lr = kLr}, {.rho = kRho}, own, {});
  });
  EXPECT_THAT(statuses[0], fails(kInvalid, "at least 2"));
}

// The pull of Zhang et al. does not know the rate; that of You et al. follows it.
TEST(Easgd, P8_AlphaStaysWhileTheRateMoves) {
  const auto centre_of = [](const Elasticity& elasticity, const LrSchedule& schedule) {
    std::vector<Flat> own(3);
    const auto statuses = on_ranks(3, [&](std::unique_ptr<Communicator>& communicator) {
      const auto r = static_cast<std::size_t>(communicator->rank());
      own[r] = toy_start();
      if (r == 2) own[r][7] += 1;
      StillSource source(communicator->rank() - 1);
      return run_easgd(*communicator, r == 0 ? nullptr : &source,
                       {.steps = 9, .lr = kLr, .schedule = schedule}, elasticity, own[r], {});
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_NE(own[0][7], toy_start()[7]);
    return own;
  };
  const LrSchedule cosine = LrSchedule::parse("warmup:3,cosine:0").value();
  EXPECT_EQ(centre_of({.alpha = 0.25}, {}), centre_of({.alpha = 0.25}, cosine));
  EXPECT_NE(centre_of({.rho = kRho}, {}), centre_of({.rho = kRho}, cosine));
}

}  // namespace
}  // namespace gradwire::testing::easgd_test
