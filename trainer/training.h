// Training of one rank. Where gradients go and what comes back is the strategy's business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/data/data_set.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/model.h"
#include "trainer/spans.h"
#include "trainer/step/early_drain.h"
#include "trainer/step/gradient_fold.h"
#include "trainer/step/loss_scale.h"
#include "trainer/step/parameter_store.h"
#include "trainer/step/step_averages.h"
#include "trainer/step/step_gradient_source.h"
#include "trainer/step/update.h"
#include "trainer/strategy/strategy.h"
#include "trainer/training_options.h"

namespace gradwire {

struct StepReport {
  std::int64_t step = 0;   // from 0
  std::int64_t epoch = 0;  // from 0
  double lr = 0;           // used at this step
  // Before the update: the mean over the global batch; where `averaged` is false over this rank's
  // part of it, and a later report has the mean.
  double loss = 0;
  bool averaged = true;
  // With `averaged`: the means of the steps before this one that had none yet, oldest first.
  std::vector<double> earlier_losses;
  // Where ranks are at different steps: the means of steps before those, oldest first, each once.
  std::vector<double> late_losses = {};
  std::optional<double> accuracy;   // on the whole test set, after the update, 0..1
  std::optional<double> test_loss;  // there too: mean over all labels
  // Of the gradient that the optimizer was given, before it was clipped; where it is to be.
  std::optional<double> gradient_norm;
  std::optional<double> loss_scale;  // where there is one: that of this step
  bool skipped = false;              // a gradient was not finite on some rank: no update was made
  double compute_seconds = 0;        // this rank's: batch, forward, backward, optimizer
  double exchange_seconds = 0;       // spent inside the strategy's calls, and the next
  double stage_wait_seconds = 0;     // for other stages of the model, between its own passes
};

class Trainer {
 public:
  // The model and the data are borrowed for the trainer's life. Parameters start as the seed says.
  // `demands`: of the strategy that run() will be given. kInvalidArgument names the option, the
  // value seen and the value wanted.
  static Result<Trainer> create(const Model<float>& model, const DataSet& data,
                                const TrainingOptions& options, const Demands& demands = {},
                                const SourceChoice& source = {});

  // Views of this trainer's memory, in order of registration, valid for its life (also when it is
  // moved). Parameters are the optimizer's, in fp32, or in 16 bits where the strategy has those
  // (Demands::holds_master); gradients are as they are exchanged, in fp32 or in 16 bits.
  std::vector<NamedTensor> parameters();
  std::vector<NamedTensor> gradients();
  // Before a strategy starts: parameters become these, in fp32 and in order of registration, in
  // place of the seed's; so do those that a strategy holds.
  Status start_from(std::vector<float> values);
  // The same memory, for a strategy that lets parts of it come and go.
  TrainerMemory memory();
  // What was held since run() began, in both places, and copied between them since ever.
  const MemoryPlaces& places() const { return options_.places; }
  // Of all parameters' bytes in order of registration, as passes read them: in a precision of 16
  // bits of those.
  Result<std::uint64_t> parameter_hash() const;

  std::int64_t steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  std::int64_t steps_done() const { return position_.steps; }

  // All that a run goes on from beside its parameters: the own optimizer's state, the workers'
  // momenta, "trainer.position" (steps over the data, updates, the optimizer's steps) and, with a
  // loss scale, "trainer.loss_scale". Numbers are those of the call; tensors are the trainer's own.
  // To restore: write to what this returned, then adopt_state(). Between steps only.
  std::vector<NamedTensor> state();
  // kInvalidArgument for numbers that no run can have come to.
  Status adopt_state();

  // Called after every step, on every rank; an error ends the run with that error. The last step's
  // loss is averaged.
  using OnStep = std::function<Status(const StepReport& report)>;
  // Trains from steps_done() to steps() and returns the final accuracy on the test set, 0..1. A
  // loss that is no longer finite does not stop it. May be called once. kInvalidArgument for a
  // strategy with other demands than those that this was made for.
  Result<double> run(Strategy& strategy, const OnStep& on_step);

  // Told of every step's pieces, for this object's life; null: nobody is.
  void tell(const OnTrainerSpan* told);

  // Share of the test set's labels (DataSet::evaluation()) that are found, 0..1. Every replica
  // counts its part of the set and the counts are added up, exactly. Collective: all ranks call it.
  Result<double> evaluate(Strategy& strategy);
  // The mean loss over the test set at the last evaluate().
  double test_loss() const { return test_loss_; }
  // Running statistics, which are saved and loaded with parameters: views as those. Empty for most
  // models.
  std::vector<NamedTensor> buffers() { return source_->running().buffers(); }

 private:
  // What of a run is a number.
  struct Position {
    std::int64_t steps = 0;    // over the data
    std::int64_t updates = 0;  // those that were not skipped: what the schedule counts
  };

  Trainer(const Model<float>& model, const DataSet& data, const TrainingOptions& options,
          const Demands& demands);

  Status allocate(const SourceChoice& source);
  Result<StepReport> step(Strategy& strategy);
  Status compute_and_update(Strategy& strategy, StepReport& report);
  Status micro_batch_over(Strategy& strategy, StepReport& report, int complete);
  Result<bool> skips(Strategy& strategy, StepReport& report, bool finite, bool last);
  void report_losses(StepReport& report) const;
  std::vector<LayerTensors> openings(Way way) const;
  std::int64_t steps_left() const;

  const Model<float>* model_;
  const DataSet* data_;
  TrainingOptions options_;
  Demands demands_;
  std::int64_t steps_per_epoch_;
  std::int64_t total_steps_;
  Position position_;
  LossScaler scaler_;
  // Where they are they stay when this is moved: the later ones borrow the earlier.
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<GradientFold> fold_;
  std::unique_ptr<StepGradientSource> source_;
  std::unique_ptr<Update> update_;
  ParameterStore::Gate gate_;  // of the training's passes
  StepAverages averages_;
  EarlyDrain early_;
  double test_loss_ = 0;
  Buffer saved_position_;
  Buffer saved_scale_;
  const OnTrainerSpan* told_ = nullptr;
};

}  // namespace gradwire
