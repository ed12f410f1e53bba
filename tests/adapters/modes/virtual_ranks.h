// Ranks as threads whose messages and computations take modelled time.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/inproc/inproc_transport.h"
#include "gradwire/communicator.h"
#include "tests/adapters/modes/toy_source.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/virtual_clock.h"

namespace gradwire::testing {

inline constexpr LinkModel kModelLinks{
    .alpha = 13.7e-6, .beta = 0.83e-9, .gamma = 0, .alpha_intra = 0, .beta_intra = 0, .gap = 0};
inline ExactTime exact(double seconds) { return ExactTime::from_seconds(seconds); }
inline ExactTime message(std::int64_t bytes) {
  return exact(kModelLinks.alpha) + bytes * exact(kModelLinks.beta);
}

// A gradient that takes so long, begun when this rank's messages of the step have left.
class TimedSource final : public ToySource {
 public:
  TimedSource(Communicator& communicator, VirtualClock& clock, ExactTime takes,
              std::uint64_t bytes_per_step)
      : ToySource(communicator.rank()),
        communicator_(communicator),
        clock_(clock),
        takes_(takes),
        bytes_per_step_(bytes_per_step) {}

  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override {
    const std::uint64_t wanted = bytes_per_step_ * static_cast<std::uint64_t>(step + 1);
    for (int i = 0; i < 20'000 && communicator_.bytes_sent() < wanted; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    clock_.advance(communicator_.rank(), takes_);
    return ToySource::gradient(params, step, grads);
  }

 private:
  Communicator& communicator_;
  VirtualClock& clock_;
  ExactTime takes_;
  std::uint64_t bytes_per_step_;  // 0: waits for none
};

using VirtualProgram = std::function<Status(Communicator& communicator, VirtualClock& clock)>;
// The latest rank's time.
inline ExactTime in_virtual_time(int ranks, const VirtualProgram& program) {
  auto clock = std::make_shared<VirtualClock>(ranks, kModelLinks);
  auto transports = make_inproc_transports(ranks, {.clock = clock});
  const auto statuses = on_threads<Status>(ranks, [&](int r) {
    GW_ASSIGN(auto communicator,
              make_communicator(std::move(transports.value()[static_cast<std::size_t>(r)])));
    return program(*communicator, *clock);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return clock->latest();
}

}  // namespace gradwire::testing
