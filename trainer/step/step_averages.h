// What steps leave to be averaged over ranks beside gradients: losses, and running statistics. They
// are sent in steps in which ranks exchange something anyway, at the same time as that, and are
// kept until the next such step otherwise.
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/step/running_statistics.h"
#include "trainer/strategy/strategy.h"

namespace gradwire {

// From the thread that trains. The same strategy and statistics at every call.
class StepAverages {
 public:
  // After a step's micro-batches, whose mean loss is `loss` on the rank of Scope::kModel that
  // computed it, 0 on the others. Starts the average where GradientExchange::meets() says so, and
  // `meets`: all ranks are at one step. Sums
  // that passes collected for running statistics are added up too; where ranks do not meet they
  // move this rank's values alone, which become the mean over ranks when they do. skipped: they are
  // forgotten.
  Status begin(Strategy& strategy, RunningStatistics& running, double loss, bool skipped,
               bool meets = true);
  // At the step's end: waits for what begin() started.
  Status end(Strategy& strategy, RunningStatistics& running);
  // Between steps, where all ranks call it: averages what still is not.
  Status settle(Strategy& strategy, RunningStatistics& running);

  // While ranks are at different steps: ask() sends the losses that losses() has so far, and
  // hear(), in a later step, waits until those of all ranks are there, which late() has from then
  // on. Returns whether all ranks are to end the training: one was asked to, or a loss is not
  // finite. Where nothing was sent it does nothing.
  Status ask(Consensus& consensus);
  Result<bool> hear(Consensus& consensus);
  // Means over replicas, of steps before those of losses(), oldest first: once.
  std::vector<double> take_late() { return std::exchange(late_, {}); }

  // Whether losses() are means over replicas; this rank's otherwise.
  bool averaged() const { return averaged_; }
  // Of the steps since the last one whose loss was averaged, oldest first; valid until begin().
  std::span<const double> losses() const { return losses_; }

 private:
  Status start(Consensus& consensus, RunningStatistics& running);
  void arrived(int replicas, RunningStatistics& running);

  std::vector<double> losses_;
  std::vector<double> sent_;  // by ask()
  std::vector<double> late_;
  std::vector<double> values_;         // running values, on their way
  std::array<ScopedValues, 2> parts_;  // what is
  bool averaged_ = true;
  bool meets_ = false;    // in this step
  bool counted_ = false;  // there are sums of this step, which all ranks add up
  bool apart_ = false;    // running values are this rank's alone
};

}  // namespace gradwire
