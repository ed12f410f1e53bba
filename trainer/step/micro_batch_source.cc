#include "trainer/step/micro_batch_source.h"

#include <functional>
#include <span>
#include <utility>

namespace gradwire {

MicroBatchSource::MicroBatchSource(const SourceParts& parts)
    : parameters_(parts.parameters),
      fold_(parts.fold),
      batches_(parts.data, parts.options),
      peers_(parts.options.peers),
      sums_(parts.model.parameters(), parts.options.peers) {
  for (std::size_t layer = 0; layer < parts.model.layers(); ++layer) {
    const int end = parts.model.parameters_of(layer).second;
    layer_ends_.resize(static_cast<std::size_t>(end), end);
  }
}

Result<std::unique_ptr<StepGradientSource>> MicroBatchSource::create(const SourceParts& parts) {
  std::unique_ptr<MicroBatchSource> made(new MicroBatchSource(parts));
  const TrainingOptions& options = parts.options;
  GW_ASSIGN(made->pass_,
            BatchPass::create(parts.model, parts.data, options.shares().samples(options.batch),
                              {options.recompute, options.places.device, options.peers}));
  made->tells_loss_ = options.peers == nullptr || options.peers->rank() == 0;
  return std::unique_ptr<StepGradientSource>(std::move(made));
}

// Forward and backward of one micro-batch; returns its mean loss.
Result<double> MicroBatchSource::run_one(const MicroBatch& batch, int micro, const Ready& ready) {
  GW_ASSIGN(const std::span<float> gradients, fold_.begin(micro));
  auto complete = [&](int index) {
    GW_TRY(sums_.add_micro_batch(fold_, index, micro));
    GW_ASSIGN(const bool done, fold_.ready(index, micro));
    if (!done) return Status();
    const int parameter = fold_.parameter_of(index);
    GW_TRY(sums_.add(fold_, parameter));
    return ready(parameter, layer_ends_[static_cast<std::size_t>(parameter)]);
  };
  // One reference to capture: std::function then needs no memory of its own.
  GW_ASSIGN(const double loss,
            pass_.run(parameters_.values(), batch, gradients, std::ref(complete), gate_));
  GW_TRY(fold_.micro_batch_done(micro, batch.loss_scale));
  return loss;
}

Result<double> MicroBatchSource::run(const StepPlace& place, const Ready& ready, const Over& over) {
  double loss = 0;
  const double waited = peers_ == nullptr ? 0 : peers_->waited_seconds();
  for (int micro = 0; micro < batches_.size(); ++micro) {
    GW_ASSIGN(const double mean, run_one(batches_.at(place, micro), micro, ready));
    loss += mean;
    if (micro + 1 == batches_.size()) GW_TRY(sums_.add_whole(fold_));
    GW_TRY(over(micro + 1));
  }
  if (peers_ != nullptr) waited_seconds_ += peers_->waited_seconds() - waited;
  return tells_loss_ ? loss / batches_.size() : 0.0;
}

Result<Judgement> MicroBatchSource::judge(Range share, std::int64_t most, LayerGate* gate) {
  GW_ASSIGN(const Judgement judged,
            pass_.judge(parameters_.values(), share.begin, share.end, gate, pass_.passes_of(most)));
  return tells_loss_ ? judged : Judgement();
}

}  // namespace gradwire
