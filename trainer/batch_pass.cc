#include "trainer/batch_pass.h"

#include <algorithm>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"
#include "trainer/layers/loss.h"

namespace gradwire {

std::int64_t BatchPass::evaluated_at_once(std::int64_t max_rows) {
  constexpr std::int64_t kMostEvaluated = 128;
  constexpr std::int64_t kFours = 4;
  const std::int64_t rows = std::min(max_rows, kMostEvaluated);
  return rows < kFours ? rows : rows / kFours * kFours;
}

Result<ActivationElems> BatchPass::activation_elems(const Model<float>& model,
                                                    std::int64_t max_rows,
                                                    const std::string& recompute,
                                                    MemorySpace where) {
  GW_TRY(model.check_rows(max_rows));
  GW_ASSIGN(std::vector<Segment> segments, recompute_segments(recompute, model));
  return Activations<float>::elems(model.activation_sizes(max_rows, std::move(segments), where),
                                   max_rows);
}

std::int64_t BatchPass::passes_of(std::int64_t samples) const {
  return (samples + evaluated_ - 1) / evaluated_;
}

std::int64_t BatchPass::other_bytes(const Model<float>& model, std::int64_t max_rows,
                                    std::int64_t labels, MemorySpace where) {
  if (where == MemorySpace::kCuda) {
    return DeviceBatch::bytes_there(model, {.rows = max_rows, .labels = labels});
  }
  return parameter_elems(model.buffers()) * static_cast<std::int64_t>(sizeof(float));
}

Result<BatchPass> BatchPass::create(const Model<float>& model, const DataSet& data,
                                    std::int64_t max_rows, const PassOptions& options) {
  const std::int64_t classes =
      model.class_share() ? model.class_share()->here.size() : data.classes();
  const std::int64_t outputs = classes * data.labels_per_sample();
  if (model.input() != data.shape() || model.output().elems() != outputs) {
    return Status(
        Code::kInvalidArgument,
        format("model with %lld inputs and %lld outputs (expected %lld and %lld, as %s has)",
               static_cast<long long>(model.input().elems()),
               static_cast<long long>(model.output().elems()),
               static_cast<long long>(data.shape().elems()), static_cast<long long>(outputs),
               data.name().c_str()));
  }
  GW_TRY(model.check_peers(options.peers));
  GW_TRY(model.check_rows(max_rows));
  BatchPass pass(model, data);
  pass.peers_ = options.peers;
  GW_ASSIGN(const std::vector<Segment> segments, recompute_segments(options.recompute, model));
  pass.walk_.emplace(model, segments);
  pass.evaluated_ = evaluated_at_once(max_rows);
  const MemorySpace where = options.memory.device().space;
  if (where == MemorySpace::kCuda) {
    GW_ASSIGN(
        pass.there_,
        DeviceBatch::create(
            model, {.rows = max_rows, .labels = data.labels_per_sample(), .peers = options.peers},
            options.memory));
  }
  GW_ASSIGN(pass.activations_,
            Activations<float>::create(model.activation_sizes(max_rows, segments, where), max_rows,
                                       DeltaRoom::kTurns, options.memory));
  pass.labels_.reserve(
      static_cast<std::size_t>(pass.activations_.max_rows() * data.labels_per_sample()));
  pass.output_loss_ = OutputLoss<float>(model.loss(), model.class_share(), options.peers,
                                        max_rows * data.labels_per_sample());
  const auto values = static_cast<std::size_t>(parameter_elems(model.buffers()));
  if (values > 0) {
    const std::size_t bytes = values * sizeof(float);
    GW_ASSIGN(pass.buffers_, pass.there_ != nullptr
                                 ? Buffer::allocate(bytes)
                                 : options.memory.allocate(MemoryClass::kOther, bytes));
  }
  init_parameters<float>(model.buffers(), 0, pass.buffer_values());
  pass.statistics_.assign(static_cast<std::size_t>(model.statistics_elems()), 0);
  return pass;
}

std::span<float> BatchPass::buffer_values() {
  const ByteSpan bytes = buffers_.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::vector<NamedTensor> BatchPass::buffers() {
  return named_tensors(model_->buffers(), buffer_values());
}

void BatchPass::commit() {
  if (statistics_.empty()) return;
  model_->commit(statistics_, buffer_values());
  discard_statistics();
}

void BatchPass::discard_statistics() {
  std::fill(statistics_.begin(), statistics_.end(), 0.0);
  if (there_ != nullptr && !statistics_.empty()) there_->clear_statistics();
}

Status BatchPass::take_statistics() {
  return there_ == nullptr ? Status() : there_->take_statistics(statistics_);
}

Result<ModelPass<float>> BatchPass::load(std::span<const float> params, const Samples& from,
                                         std::span<const std::uint32_t> samples) {
  const auto rows = static_cast<std::int64_t>(samples.size());
  if (there_ != nullptr) {
    data_->take(from, samples, there_->samples(rows), there_->labels(rows));
    GW_TRY(there_->load_samples(activations_.values(0, rows)));
    GW_TRY(there_->load_labels(rows));
    return ModelPass<float>{params,
                            rows,
                            &activations_,
                            {},
                            there_->buffers(),
                            there_->statistics(),
                            nullptr,
                            &there_->kernels(),
                            peers_};
  }
  labels_.resize(samples.size() * static_cast<std::size_t>(data_->labels_per_sample()));
  data_->take(from, samples, activations_.values(0, rows), labels_);
  ModelPass<float> pass{params, rows, &activations_, {}, buffer_values(), statistics_};
  pass.peers = peers_;
  return pass;
}

// The micro-batch's mean loss, and its derivative where the way back begins. On a device it is
// known when found() returns.
Result<double> BatchPass::loss_of(const ModelPass<float>& pass, double loss_scale) {
  const std::span<const float> outputs = activations_.values(model_->last_level(), pass.rows);
  const std::span<float> by_outputs = activations_.deltas(model_->last_level(), pass.rows);
  if (there_ != nullptr) {
    there_->judge(model_->loss(), pass.rows * data_->labels_per_sample(), outputs, by_outputs);
    if (loss_scale != 1) there_->kernels().scale(by_outputs, loss_scale);
    if (peers_ != nullptr) GW_TRY(peers_->status());
    return 0.0;
  }
  const double loss = output_loss_.mean(outputs, labels_, by_outputs);
  if (peers_ != nullptr) GW_TRY(peers_->status());
  if (loss_scale != 1) GW_TRY(scale(view_of<float>(by_outputs), loss_scale, {}));
  return loss;
}

// Of the outputs that are there.
Status BatchPass::add_judgement(std::span<const std::uint32_t> samples, Judgement& sum) {
  const auto rows = static_cast<std::int64_t>(samples.size());
  const std::int64_t labels = data_->labels_of(samples);
  const std::span<const float> outputs =
      activations_.values(model_->last_level(), rows)
          .first(static_cast<std::size_t>(labels * model_->output().elems() /
                                          data_->labels_per_sample()));
  sum.labels += labels;
  if (there_ != nullptr) {
    there_->judge(model_->loss(), labels, outputs, {});
    GW_ASSIGN(const std::span<const DeviceBatch::Found> found, found_there());
    sum.correct += static_cast<std::int64_t>(found[0].correct);
    sum.loss += found[0].loss * static_cast<double>(labels);
    return {};
  }
  const auto judged =
      std::span<const std::uint32_t>(labels_).first(static_cast<std::size_t>(labels));
  sum.correct += output_loss_.count_correct(outputs, judged);
  sum.loss += output_loss_.mean(outputs, judged, {}) * static_cast<double>(labels);
  return peers_ == nullptr ? Status() : peers_->status();
}

Result<double> BatchPass::run(std::span<const float> params, const MicroBatch& batch,
                              std::span<float> grads, const Ready& ready, LayerGate* gate) {
  const auto step = static_cast<std::int64_t>(batch.context.step);
  ModelPass<float> pass;
  {
    const TimedSpan span(told_, TrainerSpan::Kind::kLoad, step);
    GW_ASSIGN(pass, load(params, data_->train(), batch.samples));
  }
  pass.context = batch.context;
  pass.told = told_;
  GW_TRY(walk_->forward(pass, gate));
  double loss = 0;
  {
    const TimedSpan span(told_, TrainerSpan::Kind::kLoss, step);
    GW_ASSIGN(loss, loss_of(pass, batch.loss_scale));
  }
  GW_TRY(walk_->backward(pass, grads, ready, gate));
  if (there_ == nullptr) return loss;
  GW_ASSIGN(const std::span<const DeviceBatch::Found> found, found_there());
  return found[0].loss;
}

// What the device and the peers have done is known.
Result<std::span<const DeviceBatch::Found>> BatchPass::found_there() {
  GW_ASSIGN(const std::span<const DeviceBatch::Found> found, there_->found());
  if (peers_ == nullptr) return found;
  peers_->finish();
  GW_TRY(peers_->status());
  return found;
}

Result<Judgement> BatchPass::judge(std::span<const float> params, std::int64_t begin,
                                   std::int64_t end, LayerGate* gate, std::int64_t passes) {
  Judgement sum;
  if (there_ != nullptr) GW_TRY(there_->set_buffers(buffer_values()));
  for (std::int64_t at = begin; at < end; at += evaluated_, --passes) {
    const std::int64_t rows = std::min(evaluated_, end - at);
    const auto samples =
        data_->evaluation().subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(rows));
    GW_ASSIGN(ModelPass<float> pass, load(params, data_->test(), samples));
    pass.context.mode = PassMode::kEvaluate;
    GW_TRY(walk_->forward(pass, gate));
    GW_TRY(add_judgement(samples, sum));
  }
  // Layers are opened by all ranks together: whoever has no samples left opens them all the same.
  for (; gate != nullptr && passes > 0; --passes) {
    for (const std::size_t layer : walk_->openings(Way::kForward)) {
      GW_TRY(gate->open(layer, Way::kForward));
      GW_TRY(gate->close(layer, Way::kForward));
    }
  }
  return sum;
}

}  // namespace gradwire
