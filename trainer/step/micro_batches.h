// Which samples a rank's micro-batches have.
#pragma once

#include <cstdint>
#include <span>

#include "base/mesh.h"
#include "trainer/batch_pass.h"
#include "trainer/data/data_set.h"
#include "trainer/data/order.h"
#include "trainer/step/step_gradient_source.h"
#include "trainer/training_options.h"

namespace gradwire {

// Of one coordinate of dp: ranks that share a copy of the model have the same ones. Or of several,
// one behind the other.
class MicroBatches {
 public:
  MicroBatches(const DataSet& data, const TrainingOptions& options)
      : MicroBatches(data, options, options.rank) {}
  // Micro-batches size() and more are those of the coordinates behind `replica`.
  MicroBatches(const DataSet& data, const TrainingOptions& options, int replica)
      : batch_(options.batch),
        steps_per_epoch_(data.epoch_samples() / options.batch),
        replica_(replica),
        shares_(options.shares()),
        seed_(options.seed),
        order_(data.order(options.seed, options.shuffle)) {}

  int size() const { return shares_.accumulate; }
  // Valid until another epoch's are asked for.
  MicroBatch at(const StepPlace& place, int micro) {
    const Range samples = shares_.samples_of(batch_, shares_.number(replica_, micro));
    return {micro_batch(order_.epoch(place.epoch), batch_, place.step % steps_per_epoch_, samples),
            place.loss_scale,
            {PassMode::kTrain, seed_, static_cast<std::uint64_t>(place.step), samples.begin}};
  }

 private:
  std::int64_t batch_;  // samples of a step, over all ranks
  std::int64_t steps_per_epoch_;
  int replica_;  // coordinate of dp
  BatchShares shares_;
  std::uint64_t seed_;
  DataOrder order_;
};

}  // namespace gradwire
