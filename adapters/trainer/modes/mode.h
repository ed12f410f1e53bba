// What the data-parallel modes beside the plain all-reduce have in common: local steps, a source of
// gradients, and what they tell of their progress.
//
// In every mode a step is one micro-batch of every worker, so equal --steps of equal batches are
// equally many samples, whatever is exchanged how often.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "adapters/trainer/interruption.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/optimizers/lr_schedule.h"
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

  // Where the model has running statistics (batch norm), else empty. They follow the samples and
  // are for evaluation: no gradient depends on them.
  virtual std::span<float> running() { return {}; }
  // Sums that gradient() collected since the last commit().
  virtual std::span<double> statistics() { return {}; }
  // Moves running() by statistics(), and clears these.
  virtual void commit() {}
};

// A piece of what a mode keeps between steps, in a rank's memory: elements [begin, begin +
// values.elems()) of the row of all elements of a tensor.
struct ModePart {
  std::string name;  // that the whole job knows the tensor by
  Shape shape;       // of the whole tensor
  std::int64_t begin = 0;
  TensorView values;
  bool written = true;  // by this rank; else another one's is only read
};

// Where modes leave their state at a step's end, and where they take it from. Collective over all
// ranks of the job, with parts that together cover their tensors.
class ModeSaver {
 public:
  virtual ~ModeSaver() = default;
  // Before the first step: the parts of the run that is gone on from; returns how many steps it has
  // done, 0 where there is none (nothing is written to then).
  virtual Result<std::int64_t> restore(std::span<const ModePart> mine) = 0;
  // Before restore(): whether as many ranks as these wrote it, without this part. Parts of other
  // numbers of ranks are asked for all the same, and refused by name.
  virtual bool lacks(const std::string& part) const = 0;
  // After so many steps more state is due, first after `done` of them; beyond the run's steps:
  // never. The same on all ranks.
  virtual std::int64_t next(std::int64_t done) const = 0;
  virtual Status save(std::int64_t done, std::span<const ModePart> mine) = 0;
};

struct ModeOptions {
  std::int64_t steps = 0;  // of every worker
  double lr = 0.05;
  LrSchedule schedule = {};
  double momentum = 0;           // each mode says where it is
  double deadline_seconds = 15;  // of one exchange, a worker's computation before it included
  bool losses = true;            // are averaged for on_step, which costs messages; equal on all
  // Borrowed; null: the run starts anew and leaves nothing. A mode whose workers go their own ways
  // for a while saves when they meet again.
  ModeSaver* saver = nullptr;
  // Borrowed, beside a saver; null on all ranks or on none: an early end that ranks agree on where
  // they meet.
  Interruption* interruption = nullptr;

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
