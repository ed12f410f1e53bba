#include "adapters/trainer/modes/model_gradients.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/mesh.h"
#include "base/text.h"

namespace gradwire {
namespace {

Status check(const ShareOptions& o, const DataSet& data) {
  if (o.workers < 1 || o.worker < 0 || o.worker >= o.workers) {
    return {Code::kInvalidArgument,
            format("worker %d of %d (expected 0 to %d)", o.worker, o.workers, o.workers - 1)};
  }
  if (o.batch < 1 || o.batch % o.workers != 0 || o.batch > data.epoch_samples()) {
    return {Code::kInvalidArgument,
            format("batch %lld (expected a positive multiple of %d (the workers), at most %lld "
                   "(the samples of %s))",
                   static_cast<long long>(o.batch), o.workers,
                   static_cast<long long>(data.epoch_samples()), data.name().c_str())};
  }
  return {};
}

}  // namespace

ModelGradients::ModelGradients(BatchPass pass, const ShareOptions& options)
    : pass_(std::move(pass)),
      options_(options),
      steps_per_epoch_(pass_.data().epoch_samples() / options.batch),
      order_(pass_.data().order(options.seed, options.shuffle)),
      table_(pass_.model().gradients()) {
  if (!table_.tied.empty()) all_.resize(static_cast<std::size_t>(table_.elems()));
}

// Parameters' own gradients, and to them those of uses by tied layers.
void ModelGradients::join_uses(std::span<float> grads) const {
  std::copy_n(all_.begin(), grads.size(), grads.begin());
  for (int use = table_.parameters(); use < static_cast<int>(table_.tensors.size()); ++use) {
    const ParameterInfo& from = table_.tensors[static_cast<std::size_t>(use)];
    const ParameterInfo& to = table_.tensors[static_cast<std::size_t>(table_.parameter_of(use))];
    for (std::int64_t i = 0; i < from.shape.elems(); ++i) {
      grads[static_cast<std::size_t>(to.offset + i)] +=
          all_[static_cast<std::size_t>(from.offset + i)];
    }
  }
}

Result<std::unique_ptr<ModelGradients>> ModelGradients::create(const Model<float>& model,
                                                               const DataSet& data,
                                                               const ShareOptions& options) {
  GW_TRY(check(options, data));
  GW_ASSIGN(BatchPass pass, BatchPass::create(model, data, options.batch / options.workers,
                                              {.memory = options.memory}));
  return std::unique_ptr<ModelGradients>(new ModelGradients(std::move(pass), options));
}

Result<double> ModelGradients::gradient(std::span<const float> params, std::int64_t step,
                                        std::span<float> grads) {
  const Range own = BatchShares{options_.workers, 1}.samples_of(options_.batch, options_.worker);
  const std::span<const std::uint32_t> samples = micro_batch(
      order_.epoch(step / steps_per_epoch_), options_.batch, step % steps_per_epoch_, own);
  const PassContext context{PassMode::kTrain, options_.seed, static_cast<std::uint64_t>(step),
                            own.begin};
  const auto ignore = [](int) { return Status(); };
  const std::span<float> written = all_.empty() ? grads : std::span<float>(all_);
  GW_ASSIGN(const double loss,
            pass_.run(params, {.samples = samples, .context = context}, written, ignore));
  if (!all_.empty()) join_uses(grads);
  return loss;
}

std::int64_t ModelGradients::count_right(std::span<const float> params, int part, int parts) {
  const auto all = static_cast<std::int64_t>(pass_.data().evaluation().size());
  const auto judged = pass_.judge(params, all * part / parts, all * (part + 1) / parts);
  return judged.has_value() ? judged.value().correct : 0;  // without a gate nothing can fail
}

}  // namespace gradwire
