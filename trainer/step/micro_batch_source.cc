#include "trainer/step/micro_batch_source.h"

#include <functional>
#include <span>

#include "base/mesh.h"

namespace gradwire {

MicroBatchSource::MicroBatchSource(const Model<float>& model, const DataSet& data,
                                   const TrainingOptions& options, const ParameterStore& parameters,
                                   GradientFold& fold)
    : parameters_(parameters),
      fold_(fold),
      batch_(options.batch),
      steps_per_epoch_(data.epoch_samples() / options.batch),
      replica_(options.rank),
      shares_(options.shares()),
      seed_(options.seed),
      order_(data.order(options.seed, options.shuffle)) {
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const int end = model.parameters_of(layer).second;
    layer_ends_.resize(static_cast<std::size_t>(end), end);
  }
}

Result<std::unique_ptr<MicroBatchSource>> MicroBatchSource::create(const Model<float>& model,
                                                                   const DataSet& data,
                                                                   const TrainingOptions& options,
                                                                   const ParameterStore& parameters,
                                                                   GradientFold& fold) {
  std::unique_ptr<MicroBatchSource> made(
      new MicroBatchSource(model, data, options, parameters, fold));
  GW_ASSIGN(made->pass_, BatchPass::create(model, data, options.shares().samples(options.batch),
                                           {options.recompute, options.places.device}));
  return made;
}

// Forward and backward of one micro-batch; returns its mean loss.
Result<double> MicroBatchSource::run_one(const MicroBatch& batch, int micro, const Ready& ready) {
  GW_ASSIGN(const std::span<float> gradients, fold_.begin(micro));
  auto complete = [&](int index) {
    GW_ASSIGN(const bool done, fold_.ready(index, micro));
    return done ? ready(index, layer_ends_[static_cast<std::size_t>(index)]) : Status();
  };
  // One reference to capture: std::function then needs no memory of its own.
  GW_ASSIGN(const double loss,
            pass_.run(parameters_.values(), batch, gradients, std::ref(complete), gate_));
  GW_TRY(fold_.micro_batch_done(micro, batch.loss_scale));
  return loss;
}

Result<double> MicroBatchSource::run(const StepPlace& place, const Ready& ready, const Over& over) {
  const std::span<const std::uint32_t> order = order_.epoch(place.epoch);
  double loss = 0;
  for (int micro = 0; micro < shares_.accumulate; ++micro) {
    const Range samples = shares_.samples_of(batch_, shares_.number(replica_, micro));
    const MicroBatch batch{
        micro_batch(order, batch_, place.step % steps_per_epoch_, samples),
        place.loss_scale,
        {PassMode::kTrain, seed_, static_cast<std::uint64_t>(place.step), samples.begin}};
    GW_ASSIGN(const double mean, run_one(batch, micro, ready));
    loss += mean;
    GW_TRY(over(micro));
  }
  return loss / shares_.accumulate;
}

}  // namespace gradwire
