// Where a step's gradients come from, as the trainer sees it: one rank's micro-batches, through the
// whole model or through those layers that are here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gradwire/schedule.h"
#include "gradwire/status.h"
#include "trainer/data/data_set.h"
#include "trainer/judgement.h"
#include "trainer/layer_gate.h"
#include "trainer/model.h"
#include "trainer/spans.h"
#include "trainer/step/gradient_fold.h"
#include "trainer/step/parameter_store.h"
#include "trainer/step/running_statistics.h"
#include "trainer/training_options.h"

namespace gradwire {

// What a step works on.
struct StepPlace {
  std::int64_t step = 0;   // over the data, from 0
  std::int64_t epoch = 0;  // from 0
  double loss_scale = 1;
  // From this one on, it among them, until nothing may be under way any more: before an evaluation,
  // a checkpoint, or the end. The same in all ranks; one less in each step, or once for all
  // steps_to_drain().
  std::int64_t steps_left = 1;
};

// Reads the trainer's parameters and writes to its fold. From the thread that trains; collective
// where other ranks of Scope::kModel have a part in its passes. Allocates nothing after its birth.
class StepGradientSource {
 public:
  virtual ~StepGradientSource() = default;

  // Who brings layers' parameters for run() from now on; borrowed, null: nobody has to.
  virtual void read_through(LayerGate* gate) = 0;

  // GradientFold::gradient(index) is this rank's of the step; parameters from `unread` on are read
  // no more in it. Called from the last parameter down to the first, once or, where the fold hands
  // each micro-batch over, for each of them; not where the fold needs whole gradients. An error
  // ends the step.
  using Ready = std::function<Status(int index, int unread)>;
  // So many micro-batches of the step, 1 to all, have given all of their gradients; once for each
  // number, whichever they are. An error ends the step.
  using Over = std::function<Status(int complete)>;
  // All micro-batches of the step: each from GradientFold::begin() to micro_batch_done(), with
  // Ready and Over on the way. Returns the mean of their losses on the rank of Scope::kModel that
  // computes them, 0 on the others.
  virtual Result<double> run(const StepPlace& place, const Ready& ready, const Over& over) = 0;

  // Between steps: micro-batches of later ones are. Ranks of Scope::kModel are then at different
  // steps.
  virtual bool is_under_way() const { return false; }
  // Where they may be: from a step that is about to begin, it among them, the fewest behind which
  // nothing is, if StepPlace::steps_left says so from this one on. Else 0.
  virtual std::int64_t steps_to_drain() const { return 0; }

  // Samples `share` of DataSet::evaluation(), forward, with the running statistics; those of the
  // largest share of any rank are `most`, since a gate, or other stages, must see equally many
  // passes. A label counts on the rank of Scope::kModel that judges it, on no other.
  virtual Result<Judgement> judge(Range share, std::int64_t most, LayerGate* gate) = 0;

  // Layers in the order in which the passes of run() open them.
  virtual std::vector<std::size_t> openings(Way way) const = 0;
  // Of the layers that are here; lives as long as this, the same at every call.
  virtual RunningStatistics& running() = 0;
  // In which run() waited for other ranks of Scope::kModel, since this object's birth.
  virtual double waited_seconds() const { return 0; }
  // Told of what run() does, for this object's life; null: nobody is.
  virtual void tell(const OnTrainerSpan* told) = 0;
};

// What a source works with, borrowed for its life.
struct SourceParts {
  const Model<float>& model;
  const DataSet& data;
  const TrainingOptions& options;  // for the call alone
  const ParameterStore& parameters;
  GradientFold& fold;
};

// How a trainer comes by its source.
struct SourceChoice {
  using Make = std::function<Result<std::unique_ptr<StepGradientSource>>(const SourceParts& parts)>;
  Make make;          // none: a MicroBatchSource
  int at_a_time = 1;  // micro-batches that may be under way, as GradientFold::create() has it
};

}  // namespace gradwire
