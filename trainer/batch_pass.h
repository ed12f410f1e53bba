// One micro-batch through a model: samples in, loss and gradient out. Knows no optimizer and nobody
// else's gradients, so every way of training is built on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/activations.h"
#include "trainer/data/data_set.h"
#include "trainer/device_batch.h"
#include "trainer/judgement.h"
#include "trainer/layer_gate.h"
#include "trainer/layer_walk.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/step/running_statistics.h"

namespace gradwire {

// What one pass works on.
struct MicroBatch {
  std::span<const std::uint32_t> samples;  // of the training set, at most max_rows
  double loss_scale = 1;                   // of what is differentiated, not of what is returned
  PassContext context = {};                // of random numbers
};

// How a pass uses memory.
struct PassOptions {
  std::string recompute = "none";  // as recompute_segments() says
  MemoryArena memory = {};         // where activations lie, and layers compute
  LayerPeers* peers = nullptr;     // of a shared model, borrowed for the pass's life
};

// Memory and steps of a micro-batch. All of it is allocated at birth: a pass allocates nothing. Not
// thread-safe; model and data are shared by as many as want them.
class BatchPass final : public RunningStatistics {
 public:
  // The model and the data are borrowed. Micro-batches have at most `max_rows` samples.
  // kInvalidArgument when the data's shape or classes are not the model's, or the peers are not as
  // many as the model is shared by.
  static Result<BatchPass> create(const Model<float>& model, const DataSet& data,
                                  std::int64_t max_rows, const PassOptions& options = {});
  // Of a pass over micro-batches of `max_rows`: what create() would allocate for activations.
  static Result<ActivationElems> activation_elems(const Model<float>& model, std::int64_t max_rows,
                                                  const std::string& recompute,
                                                  MemorySpace where = MemorySpace::kHost);
  // Samples that an evaluation takes at a time: what micro-batches of `max_rows` have room for. A
  // product's rows have the same bits whatever other rows there are as long as these are whole
  // fours.
  static std::int64_t evaluated_at_once(std::int64_t max_rows);
  // And beside them, of samples with so many labels (MemoryClass::kOther).
  static std::int64_t other_bytes(const Model<float>& model, std::int64_t max_rows,
                                  std::int64_t labels, MemorySpace where);

  BatchPass() = default;

  const Model<float>& model() const { return *model_; }
  const DataSet& data() const { return *data_; }

  // Called when gradient `index` is complete in `grads`, as Model::backward() says.
  using Ready = Model<float>::Ready;
  // Forward, loss and backward. params has parameter_elems(model().parameters()) elements, grads
  // model().gradients().elems(), both where PassOptions::memory is; grads is overwritten with the
  // derivative of loss_scale times the mean loss, which is returned. With a gate `params` need to
  // be there while a layer is open.
  Result<double> run(std::span<const float> params, const MicroBatch& batch, std::span<float> grads,
                     const Ready& ready, LayerGate* gate = nullptr);

  // Of samples [begin, end) of data().evaluation(), with the running statistics, in passes of at
  // most max_rows samples. A gate sees passes_of(end - begin) of them; where ranks must see equally
  // many, `passes` says how many in all.
  Result<Judgement> judge(std::span<const float> params, std::int64_t begin, std::int64_t end,
                          LayerGate* gate = nullptr, std::int64_t passes = 0);
  std::int64_t passes_of(std::int64_t samples) const;

  // The order in which a gate is asked for layers.
  const LayerWalk& walk() const { return *walk_; }

  // The values start as the model says; run() collects sums.
  std::vector<NamedTensor> buffers() override;
  std::span<float> buffer_values() override;
  Status take_statistics() override;
  std::span<double> statistics() override { return statistics_; }
  void commit() override;
  void discard_statistics() override;
  // Told of what run() does, for this object's life; null: nobody is.
  void tell(const OnTrainerSpan* told) { told_ = told; }

 private:
  BatchPass(const Model<float>& model, const DataSet& data) : model_(&model), data_(&data) {}
  // Loads samples; the activations' input and the labels are theirs.
  Result<ModelPass<float>> load(std::span<const float> params, const Samples& from,
                                std::span<const std::uint32_t> samples);

  const Model<float>* model_ = nullptr;
  const DataSet* data_ = nullptr;
  std::int64_t evaluated_ = 1;  // samples of an evaluation's pass
  std::optional<LayerWalk> walk_;
  Activations<float> activations_;
  std::vector<std::uint32_t> labels_;
  std::unique_ptr<DeviceBatch> there_;  // null on the host
  Buffer buffers_;                      // of the host, always
  std::vector<double> statistics_;
  Result<double> loss_of(const ModelPass<float>& pass, double loss_scale);
  Result<std::span<const DeviceBatch::Found>> found_there();
  Status add_judgement(std::span<const std::uint32_t> samples, Judgement& sum);

  const OnTrainerSpan* told_ = nullptr;
  LayerPeers* peers_ = nullptr;
  OutputLoss<float> output_loss_;
};

}  // namespace gradwire
