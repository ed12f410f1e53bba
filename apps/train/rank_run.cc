#include "apps/train/rank_run.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "adapters/trainer/agreement.h"
#include "adapters/trainer/compressor_check.h"
#include "adapters/trainer/divergence.h"
#include "adapters/trainer/sharded/tensor_shards.h"
#include "apps/job.h"
#include "apps/sim/pipeline_choice.h"
#include "apps/train/memory_table.h"
#include "apps/train/own_momentum.h"
#include "apps/train/run_estimate.h"
#include "apps/train/run_options.h"
#include "apps/train/run_strategy.h"
#include "base/hash.h"
#include "base/text.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"
#include "trainer/stages/stage_costs.h"
#include "trainer/stages/stage_memory.h"

namespace gradwire {
namespace {

Result<DataOptions> data_options(const TrainOptions& o) {
  DataOptions d;
  d.text_file = o.text_file;
  GW_ASSIGN(d.text.tokens, parse_token_kind(o.tokens));
  d.text.context = o.context;
  d.text.vocabulary_size = o.vocabulary_size;
  d.text.vocabulary_file = o.vocabulary;
  d.text.evaluated = o.evaluated_windows;
  d.valid_file = o.text_valid;
  return d;
}

// Without needless blanks, and with every key by its name: cast:bf16 is cast:type=bf16.
std::string canonical(const Registry& registry, const std::string& compressor) {
  auto rules = parse_spec_rules(with_present_names(compressor));
  if (!rules.has_value()) return compressor;
  std::string text;
  for (SpecRule& rule : rules.value()) {
    for (Spec& stage : rule.spec) {
      for (const Registry::Method& method : registry.methods()) {
        if (method.name != stage.name) continue;
        for (auto& [key, value] : stage.params) key = key.empty() ? method.main_key : key;
      }
    }
    const bool alone = rule.glob == "*" && rule.sizes == SizeRange() && rules.value().size() == 1;
    text += (text.empty() ? "" : ";") + (alone ? to_string(rule.spec) : to_string(rule));
  }
  return text;
}

// The rank's part of the model, all of it where --parallel divides none. Collective.
Result<std::unique_ptr<RankModel>> hold_model(const TrainOptions& o, const Problem& problem,
                                              MeshGroups& groups, const Stream& stream) {
  RankModelOptions options{.shared = problem.shared, .gathers = o.zero == 3, .stream = stream};
  if (o.parallel.has_stages()) {
    options.stream_rule = o.parallel.stream_rule(static_cast<int>(o.accumulate));
  }
  if (o.parallel.has_stages() && !options.stream_rule) {
    GW_ASSIGN(options.schedule, choose_pipeline(to_string(o.parallel.order), o.parallel.pp,
                                                static_cast<int>(o.accumulate)));
  }
  return RankModel::create(problem.model, options, groups);
}

// Of a run whose model is in stages.
Result<RunFacts::Pipeline> pipeline_facts(const TrainOptions& o, const Problem& problem,
                                          const StagePlan& plan, std::int64_t steps) {
  GW_ASSIGN(const double bubble, stage_bubble(problem.model, plan, steps));
  return RunFacts::Pipeline{to_string(o.parallel.order), bubble};
}

}  // namespace

ModelOptions model_options(const TrainOptions& o) {
  ModelOptions m{o.model, o.hidden};
  if (o.width > 0) m.width = o.width;
  m.layers = o.layers;
  m.heads = o.heads;
  m.tied = o.tied;
  if (o.dropout >= 0) m.dropout = o.dropout;
  if (o.init != "model") m.init = o.init;
  return m;
}

Shuffle shuffle_of(const TrainOptions& o, const DataSet& data) {
  if (o.shuffle == "auto") return data.is_text() ? Shuffle::kUniform : Shuffle::kEpoch;
  if (o.shuffle == "uniform") return Shuffle::kUniform;
  return o.shuffle == "none" ? Shuffle::kNone : Shuffle::kEpoch;
}

std::int64_t judged_labels(const DataSet& data) { return data.labels_of(data.evaluation()); }

Status check_problem(const TrainOptions& options) {
  const bool is_text = is_text_set(options.data);
  if (is_text == (options.model == "gpt")) return {};
  return {Code::kInvalidArgument,
          format("train: --model %s cannot train on --data %s (expected %s)", options.model.c_str(),
                 options.data.c_str(), is_text ? "--model gpt for a text" : "a text")};
}

Result<Problem> load_problem(const TrainOptions& options, const std::string& environment_dir) {
  GW_TRY(check_problem(options));
  GW_ASSIGN(const DataOptions how, data_options(options));
  GW_ASSIGN(DataSet data, load_data_set(options.data, {options.data_dir, environment_dir}, how));
  ModelOptions asked = model_options(options);
  GW_ASSIGN(Model<float> model, make_model<float>(asked, data.shape(), data.classes()));
  std::vector<Model<float>> shared;
  for (int rank = 0; options.parallel.tp > 1 && rank < options.parallel.tp; ++rank) {
    asked.share = options.parallel.share(rank);
    auto part = make_model<float>(asked, data.shape(), data.classes());
    if (!part.has_value()) {
      return part.error().with_context("train: --parallel " + to_string(options.parallel));
    }
    shared.push_back(std::move(part).value());
  }
  return Problem{std::move(data), std::move(model), std::move(shared)};
}

namespace {

// Of stages with a flush; null without, or where there are none.
Result<std::optional<PipelineSchedule>> flushed_schedule(const TrainOptions& o) {
  const int micro_batches = static_cast<int>(o.accumulate);
  if (!o.parallel.has_stages() || o.parallel.stream_rule(micro_batches)) {
    return std::optional<PipelineSchedule>();
  }
  GW_ASSIGN(PipelineSchedule schedule,
            choose_pipeline(to_string(o.parallel.order), o.parallel.pp, micro_batches));
  return std::optional(std::move(schedule));
}

}  // namespace

Status check_stages(const TrainOptions& options, const Problem& problem) {
  auto schedule = flushed_schedule(options);
  if (!schedule.has_value()) return schedule.error().with_context("train");
  if (!schedule.value()) return {};
  return plan_stages(problem.model, *schedule.value(), 0, {}).error().with_context("train");
}

Status check_recompute(const TrainOptions& options, const Problem& problem) {
  if (options.recompute == "none") return {};
  GW_ASSIGN(const auto schedule, flushed_schedule(options));
  if (!schedule) return {};
  const auto check = [&](const StagePlan& plan) -> Status {
    const Model<float> part = problem.model.part(plan.layers());
    for (const StagePlace& place : plan.stages) {
      GW_TRY(context_bytes(part, place, 1, options.recompute).error());
    }
    return {};
  };
  return for_each_stage_plan(problem.model, *schedule, {}, false, check).with_context("train");
}

RankRun::RankRun(const TrainOptions& options, const Problem& problem, Communicator& communicator,
                 RunReport* report, std::unique_ptr<RankModel> held, Trainer trainer)
    : options_(options),
      problem_(problem),
      communicator_(communicator),
      report_(report),
      held_(std::move(held)),
      trainer_(std::move(trainer)) {}

Result<std::unique_ptr<RankRun>> RankRun::create(const TrainOptions& options,
                                                 const Problem& problem, Communicator& communicator,
                                                 RunReport* report, Interruption* interruption) {
  GW_ASSIGN(const MeshSizes sizes, options.parallel.mesh(communicator.size()));
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(communicator, sizes));
  GW_ASSIGN(TrainingOptions training, training_options(options, problem.data, groups));
  GW_ASSIGN(const Demands demands, strategy_demands(options));
  auto made = hold_model(options, problem, groups, training.places.device.stream());
  if (!made.has_value()) return made.error().with_context("train");
  RankModel& held = *made.value();
  held.use_in(training);
  if (options.memory) {
    GW_TRY(planned_memory(options, problem, groups.coordinates(), sizes, held.plan()).error());
  }
  auto trainer = Trainer::create(held.model(), problem.data, training, demands, held.source());
  if (!trainer.has_value()) return trainer.error().with_context("train");
  std::unique_ptr<RankRun> run(new RankRun(options, problem, communicator, report,
                                           std::move(made).value(), std::move(trainer).value()));
  // The views stay valid: the trainer does not move any more.
  if (!options.trace.empty()) {
    run->trace_ = std::make_unique<RankTrace>(0, options.trace_steps);
    run->trainer_.tell(run->trace_->of_trainer());
    held.tell(run->trace_->of_trainer());
  }
  GW_ASSIGN(run->strategy_,
            make_strategy(options, problem, std::move(groups), run->trainer_, run->trace_.get()));
  if (report != nullptr && held.plan() != nullptr) {
    GW_ASSIGN(run->pipeline_,
              pipeline_facts(options, problem, *held.plan(), run->trainer_.steps()));
  }
  run->interruption_ = interruption;
  run->strategy_->heed(interruption);
  if (options.measure_every > 0) {
    // With an account of its own: what is measured is no part of what --memory counts.
    GW_ASSIGN(Communicator* const replicas, run->strategy_->groups().group(MeshScope::kDp));
    GW_ASSIGN(run->measured_,
              MeasuredGradients::create(
                  *run->strategy_, *replicas, options.measure_every, run->trainer_.gradients(),
                  {.memory = MemoryArena(Stream(), pages_of(options)),
                   .share = held.divides() ? &held.parts().share() : nullptr}));
  }
  return run;
}

std::string RankRun::headline() {
  const bool there = options_.place.space == MemorySpace::kCuda;
  const std::string where =
      there ? ", this one on " + launch::to_string(options_.place) + "," : std::string();
  return format(
      "train %s on %s: %lld parameters, %d rank%s%s over %s, %s%s, %lld step%s of %lld samples, "
      "seed %llu",
      options_.model.c_str(), options_.data.c_str(),
      static_cast<long long>(parameter_elems(problem_.model.parameters())), communicator_.size(),
      communicator_.size() == 1 ? "" : "s", where.c_str(), transport_of(communicator_).c_str(),
      options_.compressor.c_str(), own_momentum_text(options_).c_str(),
      static_cast<long long>(trainer_.steps()), trainer_.steps() == 1 ? "" : "s",
      static_cast<long long>(options_.batch), static_cast<unsigned long long>(options_.seed));
}

std::string RankRun::drains_text() const {
  const int idle = held_->plan()->stream->ranks - 1;
  return format(
      "%s has no flush: the pipeline drains before evaluations, checkpoints (--checkpoint-every) "
      "and the end, a signal's too; a drain costs the time of %d micro-batch%s",
      to_string(options_.parallel.order).c_str(), idle, idle == 1 ? "" : "es");
}

// What a file of parameters holds: all in fp32, in `wide` where the trainer has them in 16 bits;
// running statistics too.
std::vector<NamedTensor> RankRun::saved_tensors(std::vector<float>& wide) {
  std::vector<NamedTensor> all = trainer_.parameters();
  if (all.front().tensor.dtype() != DType::kF32) {
    const ParameterTable& table = held_->model().parameters();
    wide.resize(static_cast<std::size_t>(parameter_elems(table)));
    all = named_tensors(table, wide);
  }
  for (NamedTensor& buffer : trainer_.buffers()) all.push_back(std::move(buffer));
  return all;
}

// Rank 0 reads the file: other hosts need not have it. What it reads replaces the others' when the
// strategy starts; where that holds the parameters in fp32, or ranks hold parts, here.
Status RankRun::load_parameters() {
  std::vector<float> wide;
  const std::vector<NamedTensor> tensors = saved_tensors(wide);
  if (held_->divides()) {
    WholeModel whole;
    Status read;
    if (communicator_.rank() == 0) {
      whole = held_->parts().whole_model();
      read = load_safetensors(options_.load_params, whole.tensors);
    }
    // Who waits for a broadcast of a rank that has left would blame that.
    GW_TRY(share_outcome(communicator_, read, {}, options_.deadline).error());
    GW_TRY(held_->parts().spread(communicator_, whole, tensors).with_context(options_.load_params));
    return wide.empty() ? Status() : trainer_.start_from(std::move(wide));
  }
  if (communicator_.rank() == 0) GW_TRY(load_safetensors(options_.load_params, tensors));
  if (wide.empty()) return {};
  GW_ASSIGN(Work work, communicator_.broadcast(view_of(std::span<float>(wide)), 0));
  GW_TRY(work.wait().with_context(options_.load_params));
  return trainer_.start_from(std::move(wide));
}

Status RankRun::start() {
  const bool from_file = !options_.load_params.empty();
  if (report_ != nullptr && !options_.save_params.empty()) {
    GW_TRY(check_save_path(options_.save_params));
  }
  if (report_ != nullptr && trace_ != nullptr) {
    GW_ASSIGN(trace_file_, TraceFile::create(options_.trace));
  }
  if (from_file) GW_TRY(load_parameters());
  GW_TRY(start_checkpoints());
  judged_ = trainer_.steps_done();
  if (trace_ != nullptr) trace_->continue_from(trainer_.steps_done());
  if (measured_ != nullptr) measured_->continue_from(trainer_.steps_done());
  const bool from_rank_0 = from_file && !held_->divides();
  GW_TRY(strategy_->start(from_rank_0 ? ReplicaStart::kBroadcast : ReplicaStart::kCompare));
  for (const NamedTensor& buffer : trainer_.buffers()) {
    if (!from_rank_0) break;
    GW_ASSIGN(Work work, communicator_.broadcast(buffer.tensor, 0));
    GW_TRY(work.wait().with_context("buffer '" + buffer.name + "'"));
  }
  if (report_ != nullptr) {
    report_->warn(strategy_->warnings());
    const bool streams = held_->plan() != nullptr && held_->plan()->stream;
    report_->start(headline() + (streams ? "\n" + drains_text() : ""), trainer_.steps());
  }
  aggregated_ = strategy_->stats();
  bytes_sent_ = communicator_.transport_stats().bytes_sent;
  traffic_ = traffic_bytes();
  return {};
}

Status RankRun::start_checkpoints() {
  if (options_.checkpoint.empty()) return {};
  checkpoints_ = std::make_unique<RunCheckpoints>(
      options_, canonical(Registry::builtin(), options_.compressor), problem_.data, communicator_,
      trainer_, *strategy_);
  checkpoints_->heed(interruption_);
  GW_ASSIGN(const std::string what, checkpoints_->start());
  if (report_ == nullptr) return {};
  report_->warn(checkpoints_->notices());
  return report_->go_on(what, trainer_.steps_done());
}

// Rows before the checkpoint: what was trained for good has been told of.
Status RankRun::on_step(const StepReport& step) {
  // Exchanges are built with the first step.
  const auto exchanges = static_cast<std::int64_t>(strategy_->stats().held_bytes);
  trainer_.places().device.hold(MemoryClass::kCommunication, exchanges - exchanges_held_);
  exchanges_held_ = exchanges;
  const TrafficBytes sent = bytes_since();
  if (trace_ != nullptr) trace_->count(step.step, sent);
  if (report_ != nullptr) GW_TRY(report_step(step, sent));
  if (const Status finite = check_losses(step); !finite.ok()) return diverged(finite);
  if (checkpoints_ == nullptr) return {};
  const Status saved = checkpoints_->after_step(step);
  return checkpoints_->diverged() ? diverged(saved) : saved;
}

// Of a step that ranks made alone the loss is known, and is the same on all of them, when they
// meet; where it is known earlier they end where they meet all the same.
Status RankRun::check_losses(const StepReport& step) {
  for (const double loss : step.late_losses) {
    const std::int64_t made = judged_++;
    if (late_.ok()) late_ = check_loss("loss", made, loss);
  }
  if (!step.averaged) return {};
  GW_TRY(late_);
  judged_ = step.step + 1;
  std::int64_t made = step.step - static_cast<std::int64_t>(step.earlier_losses.size());
  for (const double loss : step.earlier_losses) GW_TRY(check_loss("loss", made++, loss));
  GW_TRY(check_loss("loss", step.step, step.loss));
  return step.test_loss ? check_loss("test loss", step.step, *step.test_loss) : Status();
}

Status RankRun::diverged(const Status& why) {
  if (report_ != nullptr) GW_TRY(report_->diverged(facts()));
  return why.with_context("train");
}

TrafficBytes RankRun::traffic_bytes() const {
  TrafficBytes all = strategy_->traffic_bytes();
  const TrafficBytes between = held_->traffic_bytes();
  for (std::size_t i = 0; i < all.size(); ++i) all[i] += between[i];
  return all;
}

// What no exchange of the strategy sent, nor parts of the model, is losses, norms, comparisons of
// replicas and heartbeats.
TrafficBytes RankRun::bytes_since() {
  const std::uint64_t sent = communicator_.transport_stats().bytes_sent -
                             (measured_ == nullptr ? 0 : measured_->bytes_sent());
  const TrafficBytes now = traffic_bytes();
  TrafficBytes since{};
  std::uint64_t rest = sent - bytes_sent_;
  for (std::size_t i = 0; i < now.size(); ++i) {
    since[i] = std::min(now[i] - traffic_[i], rest);
    rest -= since[i];
  }
  bytes_of(since, TrafficClass::kStatistics) += rest;
  bytes_sent_ = sent;
  traffic_ = now;
  return since;
}

StepRow RankRun::row_of(const StepReport& step, const TrafficBytes& sent) {
  const AggregateStats now = strategy_->stats();
  // What was spent on measuring is no part of the training.
  const double measured = measured_ == nullptr ? 0 : measured_->seconds();
  StepRow row;
  row.step = step.step;
  row.loss = step.loss;
  row.accuracy = step.accuracy;
  row.test_loss = step.test_loss;
  if (problem_.data.is_text()) row.tokens = options_.batch * problem_.data.labels_per_sample();
  row.lr = step.lr;
  row.gradient_norm = step.gradient_norm;
  row.loss_scale = step.loss_scale;
  row.skipped = step.skipped;
  row.bytes_sent = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
  row.traffic = sent;
  row.payload_bytes = now.payload_bytes - aggregated_.payload_bytes;
  // Of every step that was made, also where ranks exchange more rarely, or otherwise.
  if (!step.skipped) {
    const MeshGroups& groups = strategy_->groups();
    row.dense_bytes = dense_ring_bytes(parameter_elems(held_->model().parameters()),
                                       groups.coordinates().dp, groups.sizes().dp);
  }
  row.step_seconds = step.compute_seconds + step.exchange_seconds - (measured - measured_seconds_);
  row.compute_seconds = step.compute_seconds;
  row.encode_seconds = now.encode_seconds - aggregated_.encode_seconds;
  row.wire_seconds = now.exchange_seconds - aggregated_.exchange_seconds;
  row.decode_seconds = now.decode_seconds - aggregated_.decode_seconds;
  row.exposed_seconds = now.exposed_seconds - aggregated_.exposed_seconds + step.stage_wait_seconds;
  if (held_->divides()) row.stage_wait_seconds = step.stage_wait_seconds;
  if (measured_ != nullptr && measured_->errors()) {
    row.nmse = measured_->errors()->nmse;
    row.exact_norm = measured_->errors()->exact_norm;
    row.residual_norm = measured_->errors()->residual_norm;
  }
  aggregated_ = now;
  measured_seconds_ = measured;
  return row;
}

// Rows wait for their losses, which ranks average when they meet.
Status RankRun::report_step(const StepReport& step, const TrafficBytes& sent) {
  const StepRow row = row_of(step, sent);
  report_->warn(strategy_->warnings());
  for (std::size_t i = 0; i < step.late_losses.size(); ++i) {
    waiting_[i].loss = step.late_losses[i];
    GW_TRY(report_->step(waiting_[i]));
  }
  waiting_.erase(waiting_.begin(),
                 waiting_.begin() + static_cast<std::ptrdiff_t>(step.late_losses.size()));
  if (!step.averaged) {
    waiting_.push_back(row);
    report_->progress(row);
    return {};
  }
  for (std::size_t i = 0; i < waiting_.size(); ++i) {
    waiting_[i].loss = step.earlier_losses[i];
    GW_TRY(report_->step(waiting_[i]));
  }
  waiting_.clear();
  return report_->step(row);
}

RunFacts RankRun::facts() const {
  RunFacts facts;
  facts.model = options_.model;
  facts.data = options_.data;
  facts.compressor = canonical(Registry::builtin(), options_.compressor);
  facts.algorithm = all_reduce_name(options_);
  facts.transport = transport_of(communicator_);
  facts.ranks = communicator_.size();
  if (held_->divides()) {
    ParallelSpec all = options_.parallel;
    all.dp = strategy_->groups().sizes().dp / all.pipes();
    facts.parallel = to_string(all);
  }
  facts.pipeline = pipeline_;
  facts.accumulate = options_.accumulate;
  facts.optimizer = options_.optimizer;
  facts.precision = options_.precision;
  facts.batch = options_.batch;
  facts.parameters = parameter_elems(problem_.model.parameters());
  facts.lr = options_.lr;
  facts.momentum = options_.momentum;
  facts.seed = options_.seed;
  facts.test_samples = judged_labels(problem_.data);
  facts.is_text = problem_.data.is_text();
  return facts;
}

Status RankRun::save_and_hash(RunFacts& facts) {
  if (held_->divides()) return save_and_hash_whole(facts);
  std::vector<float> wide;
  std::vector<NamedTensor> saved;
  if (!options_.save_params.empty()) saved = saved_tensors(wide);
  if (!wide.empty()) GW_TRY(strategy_->keeper().gather_master(wide));
  if (report_ == nullptr) return {};
  if (!options_.save_params.empty()) GW_TRY(save_safetensors(options_.save_params, saved));
  GW_ASSIGN(facts.params_hash, trainer_.parameter_hash());
  return {};
}

// Of a model that is divided, what is read of it.
Status RankRun::hash_whole(const WholeModel& whole, RunFacts& facts) const {
  GW_ASSIGN(const Precision precision, parse_precision(options_.precision));
  if (precision == Precision::kF32) {
    facts.params_hash = hash_bytes(std::as_bytes(std::span(whole.parameters)));
    return {};
  }
  std::vector<std::uint16_t> read(whole.parameters.size());
  store(precision, whole.parameters, read);
  facts.params_hash = hash_bytes(std::as_bytes(std::span(read)));
  return {};
}

// Likewise; the hash is that of a rank that holds all of it.
Status RankRun::save_and_hash_whole(RunFacts& facts) {
  std::vector<NamedTensor> read = trainer_.parameters();
  for (NamedTensor& buffer : trainer_.buffers()) read.push_back(std::move(buffer));
  GW_ASSIGN(WholeModel whole, held_->parts().gather(read));
  if (report_ != nullptr) GW_TRY(hash_whole(whole, facts));
  if (options_.save_params.empty()) return {};
  std::vector<float> wide;
  const std::vector<NamedTensor> saved = saved_tensors(wide);
  if (!wide.empty()) {
    GW_TRY(strategy_->keeper().gather_master(wide));
    GW_ASSIGN(whole, held_->parts().gather(saved));
  }
  return report_ == nullptr ? Status() : save_safetensors(options_.save_params, whole.tensors);
}

namespace {

// Collective. Of every rank that holds a part of the first replica, on the first of them.
Result<std::vector<MemoryTable>> tables_of_parts(MeshGroups& groups, const MemoryTable& own) {
  if (!groups.sizes().both_ways) {
    GW_ASSIGN(Communicator* const all, groups.group(MeshScope::kModel));
    return gather_tables(*all, own);
  }
  // Of both directions the pipeline's ranks are two copies of the model, whose tensors peers share.
  GW_ASSIGN(Communicator* const pipeline, groups.group(MeshScope::kPp));
  GW_ASSIGN(std::vector<MemoryTable> tables, gather_tables(*pipeline, own));
  if (groups.sizes().tp == 1) return tables;
  GW_ASSIGN(Communicator* const peers, groups.group(MeshScope::kTp));
  std::vector<MemoryTable> all;
  // The first ranks of pipelines, which have tables, are peers.
  for (const MemoryTable& one : tables) {
    GW_ASSIGN(const std::vector<MemoryTable> shared, gather_tables(*peers, one));
    all.insert(all.end(), shared.begin(), shared.end());
  }
  return all;
}

}  // namespace

Status RankRun::finish(double accuracy) {
  std::optional<MemoryTable> memory;
  std::vector<MemoryTable> part_memory;
  if (options_.memory) {
    MeshGroups& groups = strategy_->groups();
    GW_ASSIGN(const RunMemory planned, planned_memory(options_, problem_, groups.coordinates(),
                                                      groups.sizes(), held_->plan()));
    memory = memory_table(planned, trainer_.places());
    if (held_->divides()) {
      GW_ASSIGN(part_memory, tables_of_parts(groups, *memory));
    }
  }
  GW_TRY(strategy_->keeper().gather());
  if (options_.check_every > 0) GW_TRY(strategy_->check_replicas("after the last step"));
  if (trace_ != nullptr) {
    GW_TRY(write_trace(communicator_, *trace_, trace_file_ ? &*trace_file_ : nullptr));
  }
  if (checkpoints_ != nullptr) GW_TRY(checkpoints_->settle());
  RunFacts done = facts();
  GW_TRY(save_and_hash(done));
  if (report_ == nullptr) return {};
  done.accuracy = accuracy;
  done.test_loss = trainer_.test_loss();
  if (checkpoints_ != nullptr) done.best = checkpoints_->best();
  done.memory = std::move(memory);
  done.part_memory = std::move(part_memory);
  return report_->finish(done);
}

Status RankRun::run() {
  if (options_.dry_run) {
    if (report_ == nullptr) return {};
    GW_ASSIGN(const RunEstimate estimate, estimate_run(options_, problem_, communicator_.size()));
    return report_->plan(headline(), trainer_.steps(), estimate);
  }
  GW_TRY(start());
  Strategy& strategy = measured_ == nullptr ? static_cast<Strategy&>(*strategy_) : *measured_;
  GW_ASSIGN(const double accuracy,
            trainer_.run(strategy, [this](const StepReport& step) { return on_step(step); }));
  return finish(accuracy);
}

}  // namespace gradwire
