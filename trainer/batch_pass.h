// One micro-batch through a model: samples in, loss and gradient out. Knows no optimizer and nobody
// else's gradients, so every way of training is built on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "trainer/activations.h"
#include "trainer/data/data_set.h"
#include "trainer/model.h"

namespace gradwire {

// What one pass works on.
struct MicroBatch {
  std::span<const std::uint32_t> samples;  // of the training set, at most max_rows
  double loss_scale = 1;                   // of what is differentiated, not of what is returned
};

// Memory and steps of a micro-batch. All of it is allocated at birth: a pass allocates nothing. Not
// thread-safe; model and data are shared by as many as want them.
class BatchPass {
 public:
  // The model and the data are borrowed. Micro-batches have at most `max_rows` samples.
  // kInvalidArgument when the data's shape or classes are not the model's.
  static Result<BatchPass> create(const Model<float>& model, const DataSet& data,
                                  std::int64_t max_rows);

  BatchPass() = default;

  const Model<float>& model() const { return *model_; }
  const DataSet& data() const { return *data_; }

  // Called when the gradient of parameter `index` is complete in `grads`, from the last parameter
  // to the first; its error ends the pass.
  using Ready = Model<float>::Ready;
  // Forward, loss and backward. params and grads have parameter_elems(model().parameters())
  // elements; grads is overwritten with the derivative of loss_scale times the mean loss, which is
  // returned.
  Result<double> run(std::span<const float> params, const MicroBatch& batch, std::span<float> grads,
                     const Ready& ready);

  // How many of the test samples [begin, end) the parameters classify right.
  std::int64_t count_correct(std::span<const float> params, std::int64_t begin, std::int64_t end);

 private:
  BatchPass(const Model<float>& model, const DataSet& data) : model_(&model), data_(&data) {}
  std::span<const float> forward(std::span<const float> params, const Samples& from,
                                 std::span<const std::uint32_t> samples);

  const Model<float>* model_ = nullptr;
  const DataSet* data_ = nullptr;
  Activations<float> activations_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace gradwire
