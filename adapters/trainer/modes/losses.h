// Losses on their way to on_step: workers average them when they exchange anyway.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "adapters/trainer/interruption.h"
#include "adapters/trainer/modes/mode.h"
#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

// The mean over ranks, a left fold in rank order; blocks. Collective.
Status average_over_ranks(Communicator& communicator, std::span<double> values);
// The same, with word of an interruption, which all ranks have or none; also of no values.
Status average_over_ranks(Communicator& communicator, std::span<double> values,
                          Interruption* interruption);

// Collects a worker's steps since the last exchange.
class PendingSteps {
 public:
  void add(double loss, double rate, double compute_seconds) {
    losses_.push_back(loss);
    rates_.push_back(rate);
    compute_seconds_ += compute_seconds;
  }
  // Of a run that goes on: so many steps have been told. Before the first one.
  void continue_from(std::int64_t steps) { told_ = steps; }
  // Collective over workers, with equally many steps pending on each: tells on_step of all of them,
  // of the last one with `params`.
  Status tell(Communicator& communicator, const ModeOptions& options, const OnModeStep& on_step,
              std::span<const float> params);

 private:
  std::vector<double> losses_;
  std::vector<double> rates_;
  double compute_seconds_ = 0;
  std::int64_t told_ = 0;
};

}  // namespace gradwire
