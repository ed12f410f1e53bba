#include "trainer/stages/stage_work.h"

#include <algorithm>
#include <utility>

#include "base/elements.h"
#include "base/text.h"
#include "device/ops.h"

namespace gradwire {
namespace {

bool goes_forward(const PipelineOp& op) {
  return op.kind == PipelineOpKind::kSendForward || op.kind == PipelineOpKind::kReceiveForward;
}

}  // namespace

Result<std::unique_ptr<StageWork>> StageWork::create(const Model<float>& model, const DataSet& data,
                                                     const StagePlan& plan,
                                                     const Options& options) {
  std::unique_ptr<StageWork> made(new StageWork(model, data, options));
  const int last = plan.schedule.stages() - 1;
  const auto is_here = [&](int pipe, int stage) {
    const std::vector<int>& rank_of = plan.schedule.rank_of[static_cast<std::size_t>(pipe)];
    return stage >= 0 && stage <= last && rank_of[static_cast<std::size_t>(stage)] == plan.rank;
  };
  for (const StagePlace& place : plan.stages) {
    GW_ASSIGN(PipelineStage stage, PipelineStage::create(model, {.layers = place.here,
                                                                 .contexts = place.contexts,
                                                                 .max_rows = options.max_rows,
                                                                 .split = place.split,
                                                                 .recompute = options.recompute,
                                                                 .memory = options.memory}));
    const std::int64_t in = stage.input_elems(options.max_rows);
    const std::int64_t out = stage.output_elems(options.max_rows);
    std::unique_ptr<Held> held(new Held{.stage = std::move(stage),
                                        .number = place.stage,
                                        .is_first = place.stage == 0,
                                        .is_last = place.stage == last,
                                        .next_here = is_here(place.pipe, place.stage + 1),
                                        .before_here = is_here(place.pipe, place.stage - 1)});
    const StageRoom& room = place.room;
    const MemoryArena& memory = options.memory;
    GW_ASSIGN(held->activations_in, MessagePool::create(memory, in, room.activations_in));
    GW_ASSIGN(held->activations_out, MessagePool::create(memory, out, room.activations_out));
    GW_ASSIGN(held->gradients_in, MessagePool::create(memory, out, room.gradients_in));
    GW_ASSIGN(held->gradients_out, MessagePool::create(memory, in, room.gradients_out));
    made->held_.push_back(std::move(held));
  }
  made->gathers_ = plan.gathers;
  for (int index = 0; index < static_cast<int>(model.parameters().size()); ++index) {
    const std::string& name = model.parameters()[static_cast<std::size_t>(index)].name;
    if (std::ranges::find(plan.shared, name) != plan.shared.end()) made->shared_.push_back(index);
  }
  made->micros_.resize(static_cast<std::size_t>(plan.schedule.micro_batches));
  made->adding_.resize(static_cast<std::size_t>(plan.micro_batches()));
  const int copies = plan.stream ? plan.stream->most_versions(plan.rank) - 1 : 0;
  for (int copy = 0; copy < copies; ++copy) {
    const auto bytes =
        static_cast<std::size_t>(parameter_elems(model.parameters())) * sizeof(float);
    GW_ASSIGN(Buffer memory, options.memory.allocate(MemoryClass::kVersions, bytes));
    made->copies_.push_back({std::move(memory)});
  }
  made->inputs_.resize(static_cast<std::size_t>(options.max_rows * data.shape().elems()));
  made->output_loss_ = OutputLoss<float>(model.loss(), model.class_share(), options.peers,
                                         options.max_rows * data.labels_per_sample());
  made->labels_.reserve(static_cast<std::size_t>(options.max_rows * data.labels_per_sample()));
  return made;
}

void StageWork::begin_step(const Step& step) {
  evaluates_ = false;
  step_ = step;
  for (Micro& micro : micros_) micro = {};
  for (Sum& sum : adding_) sum = {.stages_left = held_.size()};
}

void StageWork::begin_evaluation(const StageValues& values,
                                 std::span<const std::span<const std::uint32_t>> samples,
                                 LayerGate* gate) {
  evaluates_ = true;
  step_ = {.values = values, .gate = gate};
  for (Micro& micro : micros_) micro = {};
  evaluated_ = samples;
  judgement_ = {};
}

void StageWork::stop() {
  for (Copy& copy : copies_) copy.number = -1;
  for (const auto& held : held_) {
    held->stage.close_all();
    for (MessagePool* pool : {&held->activations_in, &held->activations_out, &held->gradients_in,
                              &held->gradients_out}) {
      pool->give_all_back();
    }
  }
}

double StageWork::mean_loss() const {
  double loss = 0;
  for (const Micro& micro : micros_) loss += micro.loss;
  return loss / static_cast<double>(adding_.size());
}

Result<StageWork::Held*> StageWork::held(int stage) {
  for (const auto& one : held_) {
    if (one->number == stage) return one.get();
  }
  return Status(Code::kInternal, format("stage %d is not on this rank", stage));
}

std::span<const std::uint32_t> StageWork::samples_of(int micro) const {
  const auto at = static_cast<std::size_t>(micro);
  if (!evaluates_) return step_.batches[at].samples;
  return at < evaluated_.size() ? evaluated_[at] : std::span<const std::uint32_t>();
}

std::int64_t StageWork::rows_of(int micro) const {
  return static_cast<std::int64_t>(samples_of(micro).size());
}

Status StageWork::run(const PipelineOp& op) {
  GW_ASSIGN(Held* const there, held(op.stage));
  switch (op.kind) {
    case PipelineOpKind::kForward: return forward(*there, op);
    case PipelineOpKind::kBackward:
    case PipelineOpKind::kBackwardInput:
      if (!copies_.empty()) {
        GW_ASSIGN(const std::span<const float> params, version(op.version));
        GW_TRY(there->stage.read(op.micro, params));
      }
      GW_TRY(there->is_last ? derive_loss(*there, op.micro) : take_gradient(*there, op.micro));
      GW_TRY(op.kind == PipelineOpKind::kBackward
                 ? add_gradients(*there, op)
                 : there->stage.backward_input(op.micro, layer_gate()));
      GW_TRY(hand_gradient(*there, op.micro));
      if (op.kind == PipelineOpKind::kBackward) there->stage.close(op.micro);
      return {};
    case PipelineOpKind::kBackwardWeight:
      GW_TRY(add_gradients(*there, op));
      there->stage.close(op.micro);
      return {};
    case PipelineOpKind::kUnshard: return gather(*there, true);
    case PipelineOpKind::kReshard: return gather(*there, false);
    case PipelineOpKind::kReduceTied: return add_tied();
    case PipelineOpKind::kStashWeights: return stash(*there, op.version);
    case PipelineOpKind::kDropWeights: return drop(op.version);
    default:
      return {Code::kUnsupported,
              format("%s (stages serve F, B, I, W, RT, STASH and DROP)", to_string(op).c_str())};
  }
}

// The newest is where the optimizer steps it.
Result<std::span<const float>> StageWork::version(int number) const {
  const auto copy = std::ranges::find(copies_, number, &Copy::number);
  if (copy != copies_.end()) return std::span<const float>(copy->values());
  if (number == step_.newest || evaluates_) return step_.values.params;
  return Status(Code::kInternal, format("version %d of the weights is not here (expected %d, the "
                                        "newest, or one of %zu copies)",
                                        number, step_.newest, copies_.size()));
}

LayerGate* StageWork::gate_of(int version) const {
  const bool is_copy = std::ranges::find(copies_, version, &Copy::number) != copies_.end();
  return is_copy ? nullptr : layer_gate();
}

// Layer by layer, as a gate brings them.
Status StageWork::stash(const Held& held, int number) {
  const auto free = std::ranges::find(copies_, -1, &Copy::number);
  if (free == copies_.end() || number != step_.newest) {
    return {Code::kInternal,
            format("version %d of the weights beside %zu others (expected %d, beside fewer)",
                   number, copies_.size(), step_.newest)};
  }
  const ParameterTable& table = model_.parameters();
  const LayerRange& layers = held.stage.layers();
  for (std::size_t layer = layers.begin; layer < layers.end; ++layer) {
    const auto [first, end] = model_.parameters_of(layer);
    if (first == end) continue;
    if (layer_gate() != nullptr) GW_TRY(layer_gate()->open(layer, Way::kForward));
    const ParameterInfo& last = table[static_cast<std::size_t>(end) - 1];
    const auto begin = static_cast<std::size_t>(table[static_cast<std::size_t>(first)].offset);
    const auto count = static_cast<std::size_t>(last.offset + last.shape.elems()) - begin;
    GW_TRY(memory_.copy(step_.values.params.subspan(begin, count),
                        free->values().subspan(begin, count)));
    if (layer_gate() != nullptr) GW_TRY(layer_gate()->close(layer, Way::kForward));
  }
  free->number = number;
  return {};
}

Status StageWork::drop(int number) {
  const auto copy = std::ranges::find(copies_, number, &Copy::number);
  if (copy == copies_.end()) {
    return {Code::kInternal, format("version %d of the weights is not kept", number)};
  }
  copy->number = -1;
  return {};
}

// A stage's layers in their order, which is that of every pass.
Status StageWork::gather(const Held& held, bool opens) {
  const LayerRange& layers = held.stage.layers();
  for (std::size_t layer = layers.begin; step_.gate != nullptr && layer < layers.end; ++layer) {
    GW_TRY(opens ? step_.gate->open(layer, Way::kForward)
                 : step_.gate->close(layer, Way::kForward));
  }
  return {};
}

ModelPass<float> StageWork::pass_of(int micro) const {
  ModelPass<float> pass{step_.values.params, rows_of(micro)};
  pass.buffers = there_ == nullptr ? step_.values.buffers : there_->buffers();
  pass.statistics = there_ == nullptr ? step_.values.statistics : there_->statistics();
  if (!step_.seen.empty()) pass.statistics = step_.seen[static_cast<std::size_t>(micro)];
  pass.device = there_ == nullptr ? nullptr : &there_->kernels();
  pass.peers = peers_;
  pass.told = step_.told;
  pass.context.mode = PassMode::kEvaluate;
  if (!evaluates_) pass.context = step_.batches[static_cast<std::size_t>(micro)].context;
  return pass;
}

// Labels of the micro-batch are in labels_ on return.
Status StageWork::read_samples(int micro, std::span<float> input) {
  const std::int64_t rows = rows_of(micro);
  const auto at = static_cast<std::size_t>(micro);
  labels_.resize(static_cast<std::size_t>(rows * data_.labels_per_sample()));
  data_.take(evaluates_ ? data_.test() : data_.train(), samples_of(micro),
             there_ == nullptr ? input : there_->samples(rows, at), labels_);
  return there_ == nullptr ? Status() : there_->load_samples(input, at);
}

// On the host.
std::span<const std::uint32_t> StageWork::read_labels(int micro) {
  const std::int64_t rows = rows_of(micro);
  labels_.resize(static_cast<std::size_t>(rows * data_.labels_per_sample()));
  const std::span<std::uint32_t> labels =
      there_ == nullptr ? std::span(labels_)
                        : there_->labels(rows, static_cast<std::size_t>(micro));
  const auto inputs = static_cast<std::size_t>(rows * data_.shape().elems());
  data_.take(evaluates_ ? data_.test() : data_.train(), samples_of(micro),
             std::span(inputs_).first(inputs), labels);
  return labels;
}

Status StageWork::forward(Held& held, const PipelineOp& op) {
  const int micro = op.micro;
  ModelPass<float> pass = pass_of(micro);
  GW_ASSIGN(pass.params, version(op.version));
  GW_ASSIGN(const std::span<float> input, held.stage.open(micro, pass));
  if (held.is_first) {
    const TimedSpan span(step_.told, TrainerSpan::Kind::kLoad,
                         static_cast<std::int64_t>(pass.context.step));
    GW_TRY(read_samples(micro, input));
  } else {
    GW_ASSIGN(Held* const before,
              held.before_here ? this->held(held.number - 1) : Result<Held*>(&held));
    MessagePool& pool = held.before_here ? before->activations_out : held.activations_in;
    GW_ASSIGN(const std::span<float> message, pool.find(micro));
    GW_TRY(memory_.copy(message.first(input.size()), input));
    pool.give_back(micro);
  }
  if (pass.rows > 0) GW_TRY(held.stage.forward(micro, gate_of(op.version)).error());
  if (!held.is_last) {
    GW_ASSIGN(const std::span<const float> output, held.stage.output(micro));
    GW_ASSIGN(const std::span<float> message, held.activations_out.take(micro));
    GW_TRY(memory_.copy(output, message.first(output.size())));
  }
  if (!evaluates_) return {};
  if (held.is_last && pass.rows > 0) GW_TRY(judge(held, micro));
  held.stage.close(micro);
  return {};
}

Status StageWork::judge(Held& held, int micro) {
  const std::int64_t labels = data_.labels_of(samples_of(micro));
  const std::span<const std::uint32_t> here = read_labels(micro);
  GW_ASSIGN(const std::span<const float> all, held.stage.output(micro));
  const std::int64_t classes = model_.output().elems() / data_.labels_per_sample();
  const auto outputs = all.first(static_cast<std::size_t>(labels * classes));
  judgement_.labels += labels;
  if (there_ != nullptr) {
    const auto at = static_cast<std::size_t>(micro);
    GW_TRY(there_->load_labels(rows_of(micro), at));
    there_->judge(model_.loss(), labels, outputs, {}, at);
    micros_[at].judged = labels;
    return peers_ == nullptr ? Status() : peers_->status();
  }
  const auto judged = here.first(static_cast<std::size_t>(labels));
  judgement_.correct += output_loss_.count_correct(outputs, judged);
  judgement_.loss += output_loss_.mean(outputs, judged, {}) * static_cast<double>(labels);
  return peers_ == nullptr ? Status() : peers_->status();
}

Status StageWork::derive_loss(Held& held, int micro) {
  const auto at = static_cast<std::size_t>(micro);
  const MicroBatch& batch = step_.batches[at];
  const TimedSpan span(step_.told, TrainerSpan::Kind::kLoss,
                       static_cast<std::int64_t>(batch.context.step));
  const std::span<const std::uint32_t> labels = read_labels(micro);
  GW_ASSIGN(const std::span<const float> outputs, held.stage.output(micro));
  GW_ASSIGN(const std::span<float> by_outputs, held.stage.output_gradient(micro));
  if (there_ != nullptr) {
    GW_TRY(there_->load_labels(rows_of(micro), at));
    const auto count = static_cast<std::int64_t>(labels.size());
    there_->judge(model_.loss(), count, outputs, by_outputs, at);
    micros_[at].judged = count;
    if (batch.loss_scale != 1) there_->kernels().scale(by_outputs, batch.loss_scale);
    return peers_ == nullptr ? Status() : peers_->status();
  }
  micros_[at].loss = output_loss_.mean(outputs, labels, by_outputs);
  if (peers_ != nullptr) GW_TRY(peers_->status());
  if (batch.loss_scale == 1) return {};
  return scale(view_of<float>(by_outputs), batch.loss_scale, {});
}

Status StageWork::settle() {
  if (there_ == nullptr) return {};
  GW_ASSIGN(const std::span<const DeviceBatch::Found> found, there_->found());
  if (peers_ != nullptr) {
    peers_->finish();
    GW_TRY(peers_->status());
  }
  for (std::size_t at = 0; at < micros_.size(); ++at) {
    const std::int64_t judged = micros_[at].judged;
    if (judged == 0) continue;
    micros_[at].loss = found[at].loss;
    if (!evaluates_) continue;
    judgement_.correct += static_cast<std::int64_t>(found[at].correct);
    judgement_.loss += found[at].loss * static_cast<double>(judged);
  }
  return {};
}

Status StageWork::take_gradient(Held& held, int micro) {
  GW_ASSIGN(Held* const next, held.next_here ? this->held(held.number + 1) : Result<Held*>(&held));
  MessagePool& pool = held.next_here ? next->gradients_out : held.gradients_in;
  GW_ASSIGN(const std::span<float> message, pool.find(micro));
  GW_ASSIGN(const std::span<float> by_outputs, held.stage.output_gradient(micro));
  GW_TRY(memory_.copy(message.first(by_outputs.size()), by_outputs));
  pool.give_back(micro);
  return {};
}

Status StageWork::hand_gradient(Held& held, int micro) {
  if (held.is_first) return {};
  GW_ASSIGN(const std::span<const float> by_inputs, held.stage.input_gradient(micro));
  GW_ASSIGN(const std::span<float> message, held.gradients_out.take(micro));
  return memory_.copy(by_inputs, message.first(by_inputs.size()));
}

bool StageWork::is_shared(int parameter) const {
  return std::ranges::find(shared_, parameter) != shared_.end();
}

// Gradients of parameters that another rank holds, too: it has its share of them.
Status StageWork::add_tied() {
  for (const int index : shared_) {
    GW_TRY(tied_sum_(step_.fold->sum(index)));
    if (!step_.fold->needs_whole()) GW_TRY(step_.done(index));
  }
  return {};
}

// Of the stage's weights, to the fold.
Status StageWork::add_gradients(Held& held, const PipelineOp& op) {
  const int number = op.micro % static_cast<int>(adding_.size());
  Sum& sum = adding_[static_cast<std::size_t>(number)];
  if (sum.stages_left == held_.size()) {
    GW_ASSIGN(sum.grads, step_.fold->begin(number));
  }
  auto complete = [&](int index) {
    GW_TRY(sums_.add_micro_batch(*step_.fold, index, number));
    GW_ASSIGN(const bool done, step_.fold->ready(index, number));
    const int parameter = step_.fold->parameter_of(index);
    if (!done || is_shared(parameter)) return Status();
    GW_TRY(sums_.add(*step_.fold, parameter));
    return step_.done(parameter);
  };
  GW_TRY(op.kind == PipelineOpKind::kBackward
             ? held.stage.backward(op.micro, sum.grads, std::ref(complete), gate_of(op.version))
             : held.stage.backward_params(op.micro, sum.grads, std::ref(complete), layer_gate()));
  if (--sum.stages_left > 0) return {};
  return step_.fold->micro_batch_done(number, step_.batches[op.micro].loss_scale);
}

Result<std::span<float>> StageWork::taken(const PipelineOp& op) {
  GW_ASSIGN(Held* const there, held(op.stage));
  return goes_forward(op) ? there->activations_in.take(op.micro)
                          : there->gradients_in.take(op.micro);
}

Result<std::span<std::byte>> StageWork::room_for(const PipelineOp& receive) {
  GW_ASSIGN(const std::span<float> room, taken(receive));
  return std::as_writable_bytes(room);
}

Result<std::span<const std::byte>> StageWork::message(const PipelineOp& send) {
  GW_ASSIGN(Held* const there, held(send.stage));
  MessagePool& pool = goes_forward(send) ? there->activations_out : there->gradients_out;
  GW_ASSIGN(const std::span<float> values, pool.find(send.micro));
  return std::as_bytes(values);
}

void StageWork::sent(const PipelineOp& send) {
  const auto there = held(send.stage);
  if (!there.has_value()) return;
  MessagePool& pool =
      goes_forward(send) ? there.value()->activations_out : there.value()->gradients_out;
  pool.give_back(send.micro);
}

}  // namespace gradwire
