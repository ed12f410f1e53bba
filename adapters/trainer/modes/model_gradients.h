// Gradients of the bundled trainer's models on its data sets, for one worker of several.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "adapters/trainer/modes/mode.h"
#include "trainer/batch_pass.h"
#include "trainer/data/data_set.h"
#include "trainer/data/order.h"
#include "trainer/model.h"

namespace gradwire {

struct ShareOptions {
  std::int64_t batch = 128;  // samples of one step, over all workers
  int worker = 0;
  int workers = 1;
  std::uint64_t seed = 0;  // of the data order
  Shuffle shuffle = Shuffle::kEpoch;
  MemoryArena memory = {};  // where activations lie, and layers compute
};

// Worker w at step s has the samples that rank w has at step s of synchronous training over as many
// ranks.
class ModelGradients final : public GradientSource {
 public:
  // Model and data are borrowed. kInvalidArgument names the option, the value and the value wanted.
  static Result<std::unique_ptr<ModelGradients>> create(const Model<float>& model,
                                                        const DataSet& data,
                                                        const ShareOptions& options);

  const ParameterTable& parameters() const override { return pass_.model().parameters(); }
  Result<double> gradient(std::span<const float> params, std::int64_t step,
                          std::span<float> grads) override;
  std::span<float> running() override { return pass_.buffer_values(); }
  std::span<double> statistics() override { return pass_.statistics(); }
  void commit() override { pass_.commit(); }

  // running(), by name.
  std::vector<NamedTensor> buffers() { return pass_.buffers(); }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // How many labels of part `part` of `parts` equal parts of the test set are found.
  std::int64_t count_right(std::span<const float> params, int part, int parts);

 private:
  ModelGradients(BatchPass pass, const ShareOptions& options);
  void join_uses(std::span<float> grads) const;

  BatchPass pass_;
  ShareOptions options_;
  std::int64_t steps_per_epoch_;
  DataOrder order_;
  GradientTable table_;
  std::vector<float> all_;  // of a pass, where layers are tied
};

}  // namespace gradwire
