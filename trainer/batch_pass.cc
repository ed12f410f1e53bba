#include "trainer/batch_pass.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"
#include "trainer/layers/cross_entropy.h"

namespace gradwire {
namespace {

constexpr std::int64_t kEvaluationRows = 128;

}  // namespace

Result<BatchPass> BatchPass::create(const Model<float>& model, const DataSet& data,
                                    std::int64_t max_rows) {
  if (model.input() != data.shape() || model.output().elems() != data.classes()) {
    return Status(
        Code::kInvalidArgument,
        format("model with %lld inputs and %lld outputs; %lld and %lld, as %s has, wanted",
               static_cast<long long>(model.input().elems()),
               static_cast<long long>(model.output().elems()),
               static_cast<long long>(data.shape().elems()), static_cast<long long>(data.classes()),
               data.name().c_str()));
  }
  BatchPass pass(model, data);
  GW_ASSIGN(pass.activations_, model.make_activations(std::max(max_rows, kEvaluationRows)));
  pass.labels_.reserve(static_cast<std::size_t>(pass.activations_.max_rows()));
  return pass;
}

// Loads the samples and returns their logits; labels_ are theirs.
std::span<const float> BatchPass::forward(std::span<const float> params, const Samples& from,
                                          std::span<const std::uint32_t> samples) {
  const auto rows = static_cast<std::int64_t>(samples.size());
  labels_.resize(samples.size());
  data_->take(from, samples, activations_.values(0, rows), labels_);
  return model_->forward(params, rows, activations_);
}

Result<double> BatchPass::run(std::span<const float> params, const MicroBatch& batch,
                              std::span<float> grads, const Ready& ready) {
  const auto rows = static_cast<std::int64_t>(batch.samples.size());
  const std::span<const float> logits = forward(params, data_->train(), batch.samples);
  const std::span<float> by_logits = activations_.deltas(model_->last_level(), rows);
  const double loss = cross_entropy<float>(logits, labels_, by_logits);
  if (batch.loss_scale != 1) GW_TRY(scale(view_of<float>(by_logits), batch.loss_scale, {}));
  GW_TRY(model_->backward(params, rows, activations_, grads, ready));
  return loss;
}

std::int64_t BatchPass::count_correct(std::span<const float> params, std::int64_t begin,
                                      std::int64_t end) {
  std::array<std::uint32_t, kEvaluationRows> indices{};
  std::int64_t correct = 0;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t rows = std::min(kEvaluationRows, end - at);
    std::iota(indices.begin(), indices.begin() + rows, static_cast<std::uint32_t>(at));
    const auto samples = std::span(indices).first(static_cast<std::size_t>(rows));
    const std::span<const float> logits = forward(params, data_->test(), samples);
    correct += gradwire::count_correct<float>(logits, labels_);
    at += rows;
  }
  return correct;
}

}  // namespace gradwire
