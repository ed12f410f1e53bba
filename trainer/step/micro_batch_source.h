// Where a step's gradients come from: this rank's micro-batches, each through the whole model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mesh.h"
#include "gradwire/status.h"
#include "trainer/batch_pass.h"
#include "trainer/data/data_set.h"
#include "trainer/data/order.h"
#include "trainer/gradient_fold.h"
#include "trainer/layer_gate.h"
#include "trainer/model.h"
#include "trainer/step/parameter_store.h"
#include "trainer/training_options.h"

namespace gradwire {

// What a step works on.
struct StepPlace {
  std::int64_t step = 0;   // over the data, from 0
  std::int64_t epoch = 0;  // from 0
  double loss_scale = 1;
};

// From the thread that trains. Allocates nothing after its birth.
class MicroBatchSource {
 public:
  // All are borrowed. Errors as BatchPass::create().
  static Result<std::unique_ptr<MicroBatchSource>> create(const Model<float>& model,
                                                          const DataSet& data,
                                                          const TrainingOptions& options,
                                                          const ParameterStore& parameters,
                                                          GradientFold& fold);

  // Who brings layers' parameters from now on; borrowed, null: nobody has to.
  void read_through(LayerGate* gate) { gate_ = gate; }

  // GradientFold::gradient(index) is this rank's of the step; parameters from `unread` on are read
  // no more in it. Called from the last parameter down to the first, once or, where the fold hands
  // each micro-batch over, for each of them; not where the fold needs whole gradients. An error
  // ends the step.
  using Ready = std::function<Status(int index, int unread)>;
  // All gradients of micro-batch `micro` are complete. An error ends the step.
  using Over = std::function<Status(int micro)>;
  // All micro-batches of the step; returns the mean of their losses.
  Result<double> run(const StepPlace& place, const Ready& ready, const Over& over);

  BatchPass& pass() { return pass_; }
  const BatchPass& pass() const { return pass_; }

 private:
  MicroBatchSource(const Model<float>& model, const DataSet& data, const TrainingOptions& options,
                   const ParameterStore& parameters, GradientFold& fold);
  Result<double> run_one(const MicroBatch& batch, int micro, const Ready& ready);

  const ParameterStore& parameters_;
  GradientFold& fold_;
  std::int64_t batch_;  // samples of a step, over all ranks
  std::int64_t steps_per_epoch_;
  int replica_;  // coordinate of dp
  BatchShares shares_;
  std::uint64_t seed_;
  DataOrder order_;
  BatchPass pass_;
  std::vector<int> layer_ends_;  // of each parameter: the first one behind its layer
  LayerGate* gate_ = nullptr;
};

}  // namespace gradwire
