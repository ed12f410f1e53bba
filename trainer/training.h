// Training of one rank. Where gradients go and what comes back is the hook's business.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/batch_pass.h"
#include "trainer/data/data_set.h"
#include "trainer/data/order.h"
#include "trainer/hooks.h"
#include "trainer/lr_schedule.h"
#include "trainer/model.h"

namespace gradwire {

// Where momentum is applied. A is what the hook returns, g a worker's gradient, u a worker's own.
enum class MomentumAt : std::uint8_t {
  kServer,  // after aggregation: m <- momentum m + A, x <- x - lr m
  kWorker,  // before it: u <- momentum u + g, the hook is given u; x <- x - lr A
};

struct TrainingOptions {
  std::int64_t batch = 128;  // samples per step, over all ranks
  int rank = 0;
  int ranks = 1;
  // Micro-batches per rank and step. They stand for workers: one rank with accumulate N computes,
  // bit for bit, what N ranks compute whose hook folds in rank order and multiplies once by 1/N.
  int accumulate = 1;
  std::optional<std::int64_t> steps;  // 0 is legal; not given: `epochs` epochs
  std::int64_t epochs = 1;
  double lr = 0.05;
  double momentum = 0.9;
  MomentumAt momentum_at = MomentumAt::kServer;
  LrSchedule schedule;
  std::uint64_t seed = 0;  // of the initial parameters and of the data order
  Shuffle shuffle = Shuffle::kEpoch;
  std::int64_t eval_every = 0;  // steps between evaluations; 0: after the last step only
};

struct StepReport {
  std::int64_t step = 0;           // from 0
  std::int64_t epoch = 0;          // from 0
  double lr = 0;                   // used at this step
  double loss = 0;                 // mean over the global batch, before the update
  std::optional<double> accuracy;  // on the whole test set, after the update, 0..1
  double compute_seconds = 0;      // this rank's: batch, forward, backward, optimizer
  double hook_seconds = 0;         // spent inside on_gradient() and before_optimizer_step()
};

class Trainer {
 public:
  // The model and the data are borrowed for the trainer's life. Parameters start as the seed says.
  // kInvalidArgument names the option, the value seen and the value wanted.
  static Result<Trainer> create(const Model<float>& model, const DataSet& data,
                                const TrainingOptions& options);

  // Views of this trainer's memory, in order of registration, valid for its life (also when it is
  // moved). Gradients are contiguous over all parameters in that order.
  std::vector<NamedTensor> parameters();
  std::vector<NamedTensor> gradients();
  // Of all parameters' bytes in order of registration.
  std::uint64_t parameter_hash() const;

  std::int64_t steps() const { return total_steps_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }

  // Called after every step, on every rank; an error ends the run with that error.
  using OnStep = std::function<Status(const StepReport& report)>;
  // Trains for steps() steps and returns the final accuracy on the test set, 0..1. A loss that is
  // no longer finite does not stop it. May be called once.
  Result<double> run(GradientHook& hook, const OnStep& on_step);

  // Share of the test set that is classified right, 0..1. Every rank counts its part of the set and
  // the counts are averaged, exactly. Collective: all ranks call it.
  Result<double> evaluate(GradientHook& hook);

 private:
  Trainer(const Model<float>& model, const DataSet& data, const TrainingOptions& options);

  Status allocate();
  Result<StepReport> step(std::int64_t step, GradientHook& hook);
  Result<double> micro_step(std::span<const std::uint32_t> samples, int micro, GradientHook& hook,
                            double& hook_seconds);
  Status gradient_ready(int index, int micro, GradientHook& hook, double& hook_seconds);
  void update(double lr);
  std::span<float> part(Buffer& buffer, int index);

  const Model<float>* model_;
  const DataSet* data_;
  TrainingOptions options_;
  std::int64_t steps_per_epoch_;
  std::int64_t total_steps_;
  DataOrder order_;
  Buffer params_;
  Buffer grads_;
  Buffer micro_grads_;            // of micro-batches after the first
  Buffer server_momentum_;        // m
  std::vector<Buffer> momentum_;  // u, one per micro-batch
  BatchPass pass_;
};

}  // namespace gradwire
