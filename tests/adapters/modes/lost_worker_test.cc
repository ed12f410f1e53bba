// A worker that goes in the middle of a run: nobody waits for it longer than the deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "adapters/trainer/modes/easgd.h"
#include "adapters/trainer/modes/fedavg.h"
#include "adapters/trainer/modes/server/async_eamsgd.h"
#include "adapters/trainer/modes/server/ps_async.h"
#include "adapters/trainer/modes/server/ps_sync.h"
#include "adapters/trainer/modes/sync_easgd.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/fails.h"

namespace gradwire::testing::lost_worker_test {
namespace {

constexpr int kRanks = 4;
constexpr int kLost = 2;

class Leaving final : public ToySource {
 public:
  using ToySource::ToySource;
  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override {
    if (worker() == kLost && step == 5) return Status(Code::kInternal, "gone");
    return ToySource::gradient(params, step, grads);
  }
};

using Mode =
    std::function<Status(Communicator& communicator, GradientSource& source, Flat& params)>;

void expect_everybody_learns(const Mode& mode) {
  CommunicatorOptions options;
  options.deadline_seconds = 20;
  const auto statuses = on_ranks(
      kRanks,
      [&](std::unique_ptr<Communicator>& communicator) {
        Leaving source(communicator->rank());
        Flat params = toy_start();
        const Status status = mode(*communicator, source, params);
        communicator.reset();
        return status;
      },
      options);
  for (int r = 0; r < kRanks; ++r) {
    const Status& status = statuses[static_cast<std::size_t>(r)];
    if (r == kLost) {
      EXPECT_EQ(status.message(), "gone");
      continue;
    }
    EXPECT_THAT(status, fails(Code::kPeerLost, "rank 2")) << "rank " << r;
  }
}

constexpr std::int64_t kSteps = 1'000'000;  // more than anybody gets to do

TEST(LostWorker, SyncParameterServer) {
  expect_everybody_learns([](Communicator& communicator, GradientSource& source, Flat& params) {
    return run_ps_sync(communicator, Registry::builtin(), &source, toy_table(),
                       {.steps = kSteps, .lr = 1e-3}, {}, params, {});
  });
}

TEST(LostWorker, AsyncParameterServer) {
  for (const std::optional<std::int64_t> bound : {std::optional<std::int64_t>(), {1}}) {
    expect_everybody_learns([&](Communicator& communicator, GradientSource& source, Flat& params) {
      AsyncServerOptions async;
      async.staleness = bound;
      return run_ps_async(communicator, Registry::builtin(), &source, toy_table(),
                          {.steps = kSteps, .lr = 1e-3, .deadline_seconds = 20}, async, params, {})
          .error();
    });
  }
}

TEST(LostWorker, OriginalEasgd) {
  expect_everybody_learns([](Communicator& communicator, GradientSource& source, Flat& params) {
    return run_easgd(communicator, &source, {.steps = kSteps, .lr = 1e-3}, {.rho = 1}, params, {});
  });
}

TEST(LostWorker, SyncEasgd) {
  expect_everybody_learns([](Communicator& communicator, GradientSource& source, Flat& params) {
    Flat centre(kToyElems);
    return run_sync_easgd(communicator, Registry::builtin(), source, {.steps = kSteps, .lr = 1e-3},
                          {.rho = 1}, params, centre, {});
  });
}

TEST(LostWorker, AsyncEamsgd) {
  expect_everybody_learns([](Communicator& communicator, GradientSource& source, Flat& params) {
    Flat centre = params;
    return run_async_eamsgd(communicator, Registry::builtin(), &source, toy_table(),
                            {.steps = kSteps, .lr = 1e-3, .deadline_seconds = 20},
                            {.rho = 1, .period = 2}, params, centre, {})
        .error();
  });
}

TEST(LostWorker, FedAvg) {
  expect_everybody_learns([](Communicator& communicator, GradientSource& source, Flat& params) {
    return run_fedavg(communicator, Registry::builtin(), source, {.steps = kSteps, .lr = 1e-3},
                      {.local_steps = 2}, params, {});
  });
}

}  // namespace
}  // namespace gradwire::testing::lost_worker_test
