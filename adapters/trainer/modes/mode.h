// What the data-parallel modes beside the plain all-reduce have in common: local steps, a source of
// gradients, and what they tell of their progress.
//
// In every mode a step is one micro-batch of every worker, so equal --steps of equal batches are
// equally many samples, whatever is exchanged how often.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "gradwire/status.h"
#include "trainer/lr_schedule.h"
#include "trainer/parameters.h"

namespace gradwire {

// Where one worker's gradients come from. Used from one thread.
class GradientSource {
 public:
  virtual ~GradientSource() = default;
  virtual const ParameterTable& parameters() const = 0;
  // grads = the derivative of the mean loss over this worker's samples of its local step `step`, by
  // the parameters, at `params`; returns that loss. A pure function of (params, step): a recorded
  // run can be computed again.
  virtual Result<double> gradient(std::span<const float> params, std::int64_t step,
                                  std::span<float> grads) = 0;
};

struct ModeOptions {
  std::int64_t steps = 0;  // of every worker
  double lr = 0.05;
  LrSchedule schedule = {};
  double momentum = 0;           // each mode says where it is
  double deadline_seconds = 15;  // of one exchange, a worker's computation before it included
  bool losses = true;            // are averaged for on_step, which costs messages; equal on all

  double rate(std::int64_t step) const { return schedule.at(lr, step, steps); }
};

// One step, told after it.
struct ModeStep {
  std::int64_t step = 0;  // from 0
  double loss = 0;        // mean over workers, each before its update
  double lr = 0;
  // The model as it is after the step: the servers', the centre, the average. Empty where a mode
  // has none at this step (between averages).
  std::span<const float> params = {};
  // All workers call at the same step with the same params, so that they may work together. If not,
  // one rank alone is told.
  bool together = false;
  double compute_seconds = 0;  // of this rank since the last call
};
// Called in the order of steps; an error ends the run with that error.
using OnModeStep = std::function<Status(const ModeStep& step)>;

}  // namespace gradwire
