#include "trainer/stages/stage_source.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

// Null on the host.
Result<std::unique_ptr<DeviceBatch>> device_batch(const SourceParts& parts, const StagePlan& plan) {
  const MemoryArena& memory = parts.options.places.device;
  if (memory.device().space != MemorySpace::kCuda) return std::unique_ptr<DeviceBatch>();
  const int last = plan.schedule.stages() - 1;
  const auto holds = [&](int stage) {
    return std::ranges::find(plan.stages, stage, &StagePlace::stage) != plan.stages.end();
  };
  return DeviceBatch::create(parts.model,
                             {.rows = parts.options.shares().samples(parts.options.batch),
                              .labels = parts.data.labels_per_sample(),
                              .at_once = static_cast<std::size_t>(plan.schedule.micro_batches),
                              .reads = holds(0),
                              .judges = holds(last),
                              .peers = parts.options.peers},
                             memory);
}

}  // namespace

StageSource::StageSource(const SourceParts& parts, const StagePlan& plan,
                         PipelineTransfers& transfers, std::unique_ptr<DeviceBatch> there,
                         StageStatistics statistics)
    : model_(parts.model),
      data_(parts.data),
      parameters_(parts.parameters),
      fold_(parts.fold),
      transfers_(transfers),
      micro_batches_(parts.data, parts.options,
                     replica_of_pipe(parts.options.rank, plan.pipes(), 0)),
      peers_(parts.options.peers),
      there_(std::move(there)),
      statistics_(std::move(statistics)),
      replica_(parts.options.rank),
      replicas_(parts.options.ranks),
      pipes_(plan.pipes()),
      evaluated_(BatchPass::evaluated_at_once(parts.options.shares().samples(parts.options.batch))),
      batches_(static_cast<std::size_t>(plan.schedule.micro_batches)),
      evaluation_(batches_.size()),
      done_(parts.model.parameters().size()),
      gathers_(plan.gathers),
      rule_(plan.stream.value_or(StreamRule())),
      stage_(plan.rank),
      steps_per_epoch_(parts.data.epoch_samples() / parts.options.batch) {
  for (std::size_t layer = 0; layer < parts.model.layers(); ++layer) {
    const int end = parts.model.parameters_of(layer).second;
    layer_ends_.resize(static_cast<std::size_t>(end), end);
  }
}

Result<std::unique_ptr<StepGradientSource>> StageSource::create(const SourceParts& parts,
                                                                const StagePlan& plan,
                                                                PipelineTransfers& transfers,
                                                                TiedSum tied_sum) {
  const TrainingOptions& options = parts.options;
  if (parts.fold.hands_each_over()) {
    return Status(Code::kUnsupported,
                  "stages of a pipeline that hand each micro-batch's gradients over (expected "
                  "their sum)");
  }
  const bool at_worker = options.momentum > 0 && options.momentum_at == MomentumAt::kWorker;
  if (!plan.shared.empty() && at_worker) {
    return Status(Code::kUnsupported,
                  "momentum at the worker of " + plan.shared.front() +
                      ", which two stages hold (expected momentum at the optimizer)");
  }
  if (options.accumulate != plan.micro_batches()) {
    return Status(Code::kInvalidArgument,
                  format("a schedule of %d micro-batches a pipe for accumulate %d (expected as "
                         "many)",
                         plan.micro_batches(), options.accumulate));
  }
  if (!divides_evenly(options.ranks, plan.pipes())) {
    return Status(Code::kInvalidArgument,
                  format("%d replicas for a schedule of %d pipes (expected a multiple)",
                         options.ranks, plan.pipes()));
  }
  GW_TRY(parts.model.check_peers(options.peers));
  GW_ASSIGN(std::unique_ptr<DeviceBatch> there, device_batch(parts, plan));
  GW_ASSIGN(StageStatistics statistics,
            StageStatistics::create(parts.model, options.places.device, there.get()));
  std::unique_ptr<StageSource> made(
      new StageSource(parts, plan, transfers, std::move(there), std::move(statistics)));
  GW_ASSIGN(made->work_, StageWork::create(parts.model, parts.data, plan,
                                           {.max_rows = options.shares().samples(options.batch),
                                            .recompute = options.recompute,
                                            .memory = options.places.device,
                                            .there = made->there_.get(),
                                            .peers = options.peers,
                                            .tied_sum = made->timed(std::move(tied_sum))}));
  if (plan.stream) {
    GW_TRY(made->check_stream_served(options));
    made->samples_.resize(made->batches_.size());
    made->seen_.assign(made->batches_.size(),
                       std::vector<double>(made->statistics_.statistics().size()));
    GW_ASSIGN(made->streaming_,
              StreamExecutor::create(*plan.stream, plan.rank, plan.stages.front().room, true,
                                     *made->work_, transfers));
  } else {
    GW_ASSIGN(made->training_, PipelineExecutor::create(plan.schedule, plan.rank, plan.how,
                                                        *made->work_, transfers));
  }
  GW_ASSIGN(made->evaluating_, PipelineExecutor::create(plan.forwards, plan.rank, plan.evaluation,
                                                        *made->work_, transfers));
  return std::unique_ptr<StepGradientSource>(std::move(made));
}

std::vector<std::size_t> StageSource::openings(Way way) const {
  std::vector<std::size_t> layers;
  if (!gathers_ || way == Way::kBack) return layers;
  for (std::size_t layer = 0; layer < model_.layers(); ++layer) layers.push_back(layer);
  return layers;
}

void StageSource::tell(const OnTrainerSpan* told) {
  told_ = told;
  const OnPipelineOp* const on_op = told == nullptr ? nullptr : &on_op_;
  if (training_) training_->tell(on_op);
  if (streaming_) streaming_->tell(on_op);
}

double StageSource::waited() const {
  return transfers_.waited_seconds() + (peers_ == nullptr ? 0 : peers_->waited_seconds());
}

// The sum is an exchange: all of it is spent with the other rank.
TiedSum StageSource::timed(TiedSum tied_sum) {
  if (!tied_sum) return tied_sum;
  return [this, sum = std::move(tied_sum)](const TensorView& tensor) {
    const auto begin = std::chrono::steady_clock::now();
    const Status status = sum(tensor);
    waited_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return status;
  };
}

// By the names that a simulated trace has.
void StageSource::tell_of(const PipelineOpTime& time) const {
  using Kind = TrainerSpan::Kind;
  const bool message = time.to >= 0;
  const std::string name = message ? message_text(time.op, time.to) : to_string(time.op);
  (*told_)({.kind = message ? Kind::kMessage : Kind::kOperation,
            .layer = name,
            .step = step_,
            .begin = time.begin,
            .end = time.end});
}

StageValues StageSource::values() {
  return {parameters_.values(), statistics_.buffer_values(), statistics_.statistics()};
}

// Gradients become complete in the schedule's order, and are handed over in the parameters'.
Status StageSource::hand_over(int index, const Ready& ready) {
  done_[static_cast<std::size_t>(index)] = true;
  for (; next_ >= 0 && done_[static_cast<std::size_t>(next_)]; --next_) {
    GW_TRY(ready(next_, layer_ends_[static_cast<std::size_t>(next_)]));
  }
  return {};
}

// Behind the whole list: what it found is known, or nothing of it is under way.
Status StageSource::settled(const Status& ran) {
  if (ran.ok()) return work_->settle();
  work_->stop();
  return ran;
}

// Ranks of the model meet in a step for each of these.
Status StageSource::check_stream_served(const TrainingOptions& options) const {
  const auto refuse = [](const std::string& what, const char* wanted) {
    return Status(Code::kUnsupported, what + " without a flush (expected " + wanted + ")");
  };
  if (there_ != nullptr) return refuse("a CUDA device", "the CPU");
  if (options.loss_scale.active()) return refuse("a loss scale", "fp32 or bf16");
  if (options.clip > 0) return refuse("clipping by the norm of all stages", "clip 0");
  if (options.offload != Offload::kNone) return refuse("an offload", "none");
  if (options.optimizer.name == "lamb") return refuse("lamb", "sgd, nesterov or adamw");
  return {};
}

void StageSource::choose_step(const StepPlace& place) {
  for (std::size_t micro = 0; micro < batches_.size(); ++micro) {
    batches_[micro] = micro_batches_.at(place, static_cast<int>(micro));
  }
}

// The first rank has begun as many micro-batches as there are ranks behind it, and has posted the
// receive of one more.
std::int64_t StageSource::steps_to_drain() const {
  if (!streaming_) return 0;
  return rule_.window() / rule_.micro_batches - 1;
}

// Those whose forwards begin in this step, which are of this and of later ones.
void StageSource::choose_stream(const StepPlace& place) {
  if (step_in_stream_ == 0) begun_ = 0;
  steps_of_stream_ = step_in_stream_ + place.steps_left;
  const std::int64_t m = rule_.micro_batches;
  const std::int64_t end =
      std::min((step_in_stream_ + 1) * m + rule_.ahead(stage_), steps_of_stream_ * m);
  for (; begun_ < end; ++begun_) {
    const std::int64_t step = place.step - step_in_stream_ + begun_ / m;
    const StepPlace own{.step = step,
                        .epoch = step / steps_per_epoch_,
                        .loss_scale = place.loss_scale,
                        .steps_left = 1};
    const auto number = static_cast<std::size_t>(begun_) % batches_.size();
    batches_[number] = micro_batches_.at(own, static_cast<int>(begun_ % m));
    samples_[number].assign(batches_[number].samples.begin(), batches_[number].samples.end());
    batches_[number].samples = samples_[number];
    std::ranges::fill(seen_[number], 0.0);
  }
}

// What the step's micro-batches saw, in their order.
void StageSource::add_seen() {
  const std::span<double> sums = statistics_.statistics();
  const std::int64_t m = rule_.micro_batches;
  for (std::int64_t micro = step_in_stream_ * m; micro < (step_in_stream_ + 1) * m; ++micro) {
    const std::vector<double>& seen = seen_[static_cast<std::size_t>(micro) % seen_.size()];
    std::ranges::transform(sums, seen, sums.begin(), std::plus());
  }
}

Status StageSource::run_stream() {
  GW_TRY(streaming_->run(step_in_stream_, steps_of_stream_));
  add_seen();
  step_in_stream_ = (step_in_stream_ + 1) % steps_of_stream_;
  return step_in_stream_ == 0 ? streaming_->drain() : Status();
}

Result<double> StageSource::run(const StepPlace& place, const Ready& ready, const Over& over) {
  step_ = place.step;
  streaming_ ? choose_stream(place) : choose_step(place);
  done_.assign(done_.size(), false);
  next_ = static_cast<int>(done_.size()) - 1;
  work_->begin_step({.values = values(),
                     .batches = batches_,
                     .fold = &fold_,
                     .done = [&](int index) { return hand_over(index, ready); },
                     .gate = gate_,
                     .newest = static_cast<int>(step_in_stream_ % rule_.version_window()),
                     .seen = seen_,
                     .told = told_});
  const double before = waited();
  const Status ran = streaming_ ? run_stream() : training_->run();
  waited_seconds_ += waited() - before;
  GW_TRY(settled(ran));
  GW_TRY(work_->add_whole_sums());
  for (int complete = 1; complete <= micro_batches_.size(); ++complete) GW_TRY(over(complete));
  return tells_loss() ? work_->mean_loss() : 0.0;
}

// The samples of the pipe's passes of a round, of its replica's share.
void StageSource::choose_evaluated(Range share, int pipe, std::int64_t round) {
  const std::size_t passes = evaluation_.size() / static_cast<std::size_t>(pipes_);
  const std::size_t first = passes * static_cast<std::size_t>(pipe);
  std::int64_t at = share.begin + round * evaluated_ * static_cast<std::int64_t>(passes);
  for (std::size_t pass = first; pass < first + passes; ++pass) {
    const std::int64_t rows = std::clamp<std::int64_t>(share.end - at, 0, evaluated_);
    evaluation_[pass] = rows == 0 ? std::span<const std::uint32_t>()
                                  : data_.evaluation().subspan(static_cast<std::size_t>(at),
                                                               static_cast<std::size_t>(rows));
    at += rows;
  }
}

// As many rounds of the schedule's forwards as the largest share has passes for. Of two pipes each
// has the share of one of this pipeline's replicas, of which `share` is one.
Result<Judgement> StageSource::judge(Range share, std::int64_t most, LayerGate* gate) {
  const auto passes = static_cast<std::int64_t>(evaluation_.size()) / pipes_;
  const auto samples = static_cast<std::int64_t>(data_.evaluation().size());
  Judgement sum;
  GW_TRY(statistics_.use_values());
  for (std::int64_t round = 0; round * evaluated_ * passes < most; ++round) {
    for (int pipe = 0; pipe < pipes_; ++pipe) {
      const Range own =
          pipes_ == 1 ? share
                      : even_part(samples, replicas_, replica_of_pipe(replica_, pipes_, pipe));
      choose_evaluated(own, pipe, round);
    }
    work_->begin_evaluation(values(), evaluation_, gate);
    GW_TRY(settled(evaluating_->run()));
    if (!tells_loss()) continue;
    sum.labels += work_->judgement().labels;
    sum.correct += work_->judgement().correct;
    sum.loss += work_->judgement().loss;
  }
  return sum;
}

}  // namespace gradwire
