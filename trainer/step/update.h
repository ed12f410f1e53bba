// What makes a step of gradients: they go to the exchange, come back, are clipped, and step the
// parameters, on a thread of its own where that can be done while the rest is on its way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/optimizers/chunked_step.h"
#include "trainer/optimizers/optimizer.h"
#include "trainer/optimizers/step_lane.h"
#include "trainer/spans.h"
#include "trainer/step/gradient_fold.h"
#include "trainer/step/parameter_store.h"
#include "trainer/step/step_gradients.h"
#include "trainer/step/tensor_sums.h"
#include "trainer/strategy/strategy.h"
#include "trainer/training_options.h"

namespace gradwire {

//   a step:  start(), begin(), give() per parameter, await_exchange(), finish(). Where the fold
//            hands each micro-batch over: give() per parameter and end_round() for each but the
//            last one. Left out: start() alone, or anything before finish().
// From the thread that trains.
class Update {
 public:
  // All are borrowed. Memory is taken here.
  static Result<std::unique_ptr<Update>> create(const Model<float>& model,
                                                const TrainingOptions& options,
                                                const Demands& demands, ParameterStore& parameters,
                                                GradientFold& fold);

  // Who exchanges gradients from now on, and has demands as create() was told; borrowed.
  void work_with(Strategy& strategy) { strategy_ = &strategy; }
  // Told of its pieces; null: nobody is.
  void tell(const OnTrainerSpan* told) { told_ = told; }

  // Of step `step` over the data, whose losses will be multiplied by loss_scale, nothing is known
  // yet.
  void start(std::int64_t step, double loss_scale);
  // The step will be made: what it needs to know of all gradients is known.
  Status begin(double learning_rate);
  // The fold's gradient `index` may be handed over; from the last parameter down to the
  // first. Parameters from `unread` on are read no more in this step.
  Status give(int index, int unread);
  // All of them, where the fold needed whole ones.
  Status give_all();
  // The exchange's last word of a micro-batch that another one follows.
  Status end_round();
  // The exchange's last word of the step.
  Status await_exchange() { return end_round(); }
  // After it: none of what this rank steps from is infinite or no number.
  Result<bool> finite();
  // Clipping, and the optimizer's step; returns the norm of the gradient before it was clipped, 0
  // where it is not to be.
  Result<double> finish();
  // After an error: on return nothing touches parameters or gradients.
  void stop();
  // After the last step: ParameterKeeper::settle().
  Status settle();

  // Spent in the exchange's calls since start().
  double exchange_seconds() const { return exchange_seconds_; }
  // null: the strategy's keeper makes steps.
  Optimizer* optimizer() const { return optimizer_.get(); }

 private:
  Update(const Model<float>& model, const TrainingOptions& options, const Demands& demands,
         ParameterStore& parameters, GradientFold& fold)
      : table_(model.parameters()),
        options_(options),
        demands_(demands),
        parameters_(parameters),
        fold_(fold) {}
  bool overlaps() const;
  Status make_chunks(bool away);
  Status take_arrived();
  Status take_all();
  void expect_all();
  void release();
  Status step();
  Result<double> clip();
  ChunkedStep::Source gradient_source();
  ChunkedStep::Updated updated_parameters();

  const ParameterTable& table_;
  const TrainingOptions options_;
  const Demands demands_;
  ParameterStore& parameters_;
  GradientFold& fold_;
  Strategy* strategy_ = nullptr;
  const OnTrainerSpan* told_ = nullptr;
  TensorSums sums_;  // over the ranks of the model
  std::unique_ptr<Optimizer> optimizer_;
  StepGradients gradients_;             // of the optimizer
  std::optional<ChunkedStep> chunked_;  // with an offload, or of gradients in 16 bits
  std::int64_t step_ = 0;
  int round_ = 0;
  double learning_rate_ = 0;
  double loss_scale_ = 1;
  double exchange_seconds_ = 0;
  // Where gradients are asked for before the exchange's last word: of those that were given, from
  // the last parameter down, the next one that is not known to have arrived, and how many are not.
  int next_arrival_ = 0;
  int in_flight_ = 0;
  bool lane_works_ = false;         // this step is the lane's
  int unread_ = 0;                  // parameters from here on are read no more in this step
  std::unique_ptr<StepLane> lane_;  // last: it works on the above
};

}  // namespace gradwire
