#include "apps/train/mode_run.h"

#include <algorithm>
#include <utility>

#include "adapters/trainer/divergence.h"
#include "adapters/trainer/modes/easgd.h"
#include "adapters/trainer/modes/fedavg.h"
#include "adapters/trainer/modes/hogwild.h"
#include "adapters/trainer/modes/mode_state.h"
#include "adapters/trainer/modes/server/async_eamsgd.h"
#include "adapters/trainer/modes/server/ps_sync.h"
#include "adapters/trainer/modes/sync_easgd.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "adapters/trainer/replicas.h"
#include "apps/job.h"
#include "apps/train/mode_warnings.h"
#include "apps/train/own_momentum.h"
#include "apps/train/run_estimate.h"
#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "trainer/checkpoint/safetensors.h"

namespace gradwire {
namespace {

ModeOptions mode_options(const TrainOptions& o, std::int64_t steps) {
  ModeOptions mode;
  mode.steps = steps;
  mode.lr = o.lr;
  mode.schedule = o.lr_schedule;
  mode.momentum = o.momentum;
  mode.deadline_seconds = o.deadline;
  return mode;
}

Result<ServerOptions> server_options(const TrainOptions& o) {
  ServerOptions server;
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(o.optimizer));
  if (choice.method) {
    return Status(Code::kInvalidArgument,
                  "train: --optimizer " + o.optimizer + " requires --mode sync (got --mode " +
                      o.mode.name + "; the other modes take sgd, nesterov, adamw and lamb)");
  }
  server.optimizer = choice.optimizer;
  server.optimizer.weight_decay = o.weight_decay;
  server.servers = static_cast<int>(o.mode.servers);
  server.push = o.compressor;
  server.pull = o.mode.pull_compressor;
  server.allow_unsafe = o.allow_unsafe;
  server.seed = o.seed;
  return server;
}

Elasticity elasticity_of(const TrainOptions& o, int workers) {
  if (o.mode.alpha > 0) return {.alpha = o.mode.alpha};
  return {.rho = o.mode.rho > 0 ? o.mode.rho : o.mode.moving_rate / (workers * o.lr)};
}

Result<std::unique_ptr<ModelGradients>> gradients(const TrainOptions& o, const Problem& problem,
                                                  int worker, int workers) {
  auto made = ModelGradients::create(
      problem.model, problem.data,
      {o.batch, worker, workers, o.seed, shuffle_of(o, problem.data),
       MemoryArena(Stream(), o.dry_run ? MemoryArena::Pages::kWritten : MemoryArena::Pages::kNow)});
  if (!made.has_value()) return made.error().with_context("train");
  return made;
}

// What a file of parameters holds: running statistics too.
std::vector<NamedTensor> saved_tensors(const Problem& problem, std::span<float> params,
                                       ModelGradients& source) {
  std::vector<NamedTensor> all = named_tensors(problem.model.parameters(), params);
  for (NamedTensor& buffer : source.buffers()) all.push_back(std::move(buffer));
  return all;
}

Status initial_parameters(const TrainOptions& o, const Problem& problem, bool reads_file,
                          std::vector<float>& params, ModelGradients& source) {
  ParameterTable table = problem.model.parameters();
  if (o.dry_run) return {};
  params.resize(static_cast<std::size_t>(parameter_elems(table)));
  if (o.mode.name == "easgd") {  // as its algorithm says
    for (ParameterInfo& info : table) (void)set_init(info, "xavier");
  }
  init_parameters<float>(table, o.seed, params);
  if (o.load_params.empty() || !reads_file) return {};
  return load_safetensors(o.load_params, saved_tensors(problem, params, source));
}

std::int64_t steps_of(const TrainOptions& o, const ModelGradients& source) {
  return o.epochs > 0 ? o.epochs * source.steps_per_epoch() : o.steps;
}

RunFacts facts_of(const TrainOptions& o, const Problem& problem, const std::string& transport,
                  int ranks) {
  RunFacts facts;
  facts.transport = transport;
  facts.ranks = ranks;
  facts.mode = o.mode.name;
  facts.model = o.model;
  facts.data = o.data;
  facts.compressor = o.compressor;
  facts.algorithm = o.algorithm;
  facts.optimizer = o.optimizer;
  facts.batch = o.batch;
  facts.parameters = parameter_elems(problem.model.parameters());
  facts.lr = o.lr;
  facts.momentum = o.momentum;
  facts.seed = o.seed;
  facts.test_samples = judged_labels(problem.data);
  return facts;
}

// The end of a run, by rank 0 with its report: the model's accuracy, unless it is no model any
// more.
Status report_end(RunReport* report, RunFacts facts, const Status& finite, double accuracy,
                  std::span<const float> params) {
  if (report == nullptr) return finite;
  if (!finite.ok()) {
    GW_TRY(report->diverged(facts));
    return finite;
  }
  facts.accuracy = accuracy;
  facts.params_hash = hash_bytes(std::as_bytes(params));
  return report->finish(facts);
}

// Whether a run ended because its model, which was to be saved, is not finite.
bool is_refused(const OpenedCheckpoint& checkpoint, const Status& trained) {
  return !trained.ok() && checkpoint.saver != nullptr && checkpoint.saver->diverged();
}

std::string headline_of(const TrainOptions& o, std::int64_t elems, const std::string& who,
                        std::int64_t steps) {
  return format(
      "train %s on %s, mode %s: %lld parameters, %s, %s%s, %lld step(s) of %lld samples, "
      "seed %llu",
      o.model.c_str(), o.data.c_str(), o.mode.name.c_str(), static_cast<long long>(elems),
      who.c_str(), o.compressor.c_str(), own_momentum_text(o).c_str(),
      static_cast<long long>(steps), static_cast<long long>(o.batch),
      static_cast<unsigned long long>(o.seed));
}

Status save(const TrainOptions& o, const Problem& problem, std::span<float> params,
            ModelGradients& source) {
  if (o.save_params.empty()) return {};
  return save_safetensors(o.save_params, saved_tensors(problem, params, source));
}

}  // namespace

Result<std::unique_ptr<ModeRun>> ModeRun::create(const TrainOptions& options,
                                                 const Problem& problem, Communicator& communicator,
                                                 RunReport* report, Interruption* interruption) {
  GW_ASSIGN(const int workers, workers_among(options, communicator.size()));
  std::unique_ptr<ModeRun> run(new ModeRun(options, problem, communicator, report, workers));
  GW_ASSIGN(run->source_, gradients(options, problem, std::max(run->worker(), 0), workers));
  run->steps_ = steps_of(options, *run->source_);
  run->interruption_ = interruption;
  GW_TRY(
      initial_parameters(options, problem, communicator.rank() == 0, run->params_, *run->source_));
  const auto elems = parameter_elems(problem.model.parameters());
  run->rows_ = std::make_unique<ModeRows>(
      options, *run->source_, judged_labels(problem.data), &communicator, report,
      dense_ring_bytes(elems, std::max(run->worker(), 0), workers));
  return run;
}

std::string ModeRun::headline() const {
  const std::string who =
      workers_ == communicator_.size()
          ? format("%d rank(s)", workers_)
          : format("%d worker(s) and %d other rank(s)", workers_, communicator_.size() - workers_);
  return headline_of(options_, parameter_elems(problem_.model.parameters()),
                     who + " over " + transport_of(communicator_), steps_);
}

Status ModeRun::start() {
  if (report_ != nullptr && !options_.save_params.empty()) {
    GW_TRY(check_save_path(options_.save_params));
  }
  if (!options_.load_params.empty()) {
    GW_ASSIGN(Work work, communicator_.broadcast(view_of(std::span(params_)), 0));
    GW_TRY(work.wait());
    GW_TRY(share_running(communicator_, source_.get(), options_.deadline));
  }
  GW_ASSIGN(checkpoint_, open_mode_checkpoint(options_, problem_.data, communicator_, steps_));
  if (report_ == nullptr) return {};
  if (checkpoint_.saver != nullptr) {
    GW_TRY(report_->go_on(checkpoint_.says, checkpoint_.steps_done));
  }
  report_->start(headline(), steps_);
  // What is wrong with a spec the run itself says, on all ranks.
  const auto warnings = mode_warnings(options_, problem_.model.parameters());
  if (warnings.has_value()) report_->warn(warnings.value());
  return {};
}

RunFacts ModeRun::facts() const {
  return facts_of(options_, problem_, transport_of(communicator_), communicator_.size());
}

ElasticOptions ModeRun::elastic_options() {
  ElasticOptions elastic;
  const Elasticity elasticity = elasticity_of(options_, workers_);
  elastic.rho = elasticity.rho;
  elastic.alpha = elasticity.alpha;
  elastic.period = options_.mode.period;
  elastic.algorithm = dense_algorithm(options_);
  elastic.compressor = options_.compressor;
  elastic.allow_unsafe = options_.allow_unsafe;
  elastic.seed = options_.seed;
  if (const std::string warning = elastic_warning(options_.lr, elasticity, workers_);
      report_ != nullptr && !warning.empty()) {
    report_->warn({warning});
  }
  return elastic;
}

Status ModeRun::train_elastic(const ModeOptions& mode) {
  const ElasticOptions elastic = elastic_options();
  std::vector<float> own = params_;
  return run_sync_easgd(communicator_, Registry::builtin(), *source_, mode, elastic, own, params_,
                        [this](const ModeStep& step) { return rows_->step(step); });
}

Status ModeRun::train_async_elastic(const ModeOptions& mode) {
  const ElasticOptions elastic = elastic_options();
  std::vector<float> own = params_;
  return run_async_eamsgd(communicator_, Registry::builtin(), source_.get(),
                          problem_.model.parameters(), mode, elastic, own, params_,
                          [this](const ModeStep& step) { return rows_->step(step); })
      .error();
}

Status ModeRun::train_easgd(const ModeOptions& mode) {
  GW_TRY(run_easgd(communicator_, source_.get(), mode, elasticity_of(options_, workers_), params_,
                   [this](const ModeStep& step) { return rows_->step(step); }));
  // The centre is the model.
  OpOptions how;
  how.deadline = deadline_in(options_.deadline * communicator_.size());
  GW_ASSIGN(Work work, communicator_.broadcast(view_of(std::span(params_)), 0, how));
  GW_TRY(work.wait());
  return share_running(communicator_, source_.get(), options_.deadline);
}

Status ModeRun::train_fedavg(const ModeOptions& mode) {
  FedAvgOptions fedavg;
  fedavg.local_steps = options_.mode.local_steps;
  fedavg.participation = options_.mode.participation;
  fedavg.seed = options_.seed;
  AggregatorOptions& aggregator = fedavg.aggregator;
  aggregator.compressor = options_.compressor;
  aggregator.bucket_bytes = options_.bucket_bytes;
  aggregator.threads = static_cast<int>(options_.threads);
  aggregator.seed = options_.seed;
  aggregator.algorithm = dense_algorithm(options_);
  aggregator.allow_unsafe = options_.allow_unsafe;
  aggregator.momentum = 0;  // what there is of it is the workers'
  if (report_ != nullptr) {
    fedavg.warn = [this](const std::vector<std::string>& warnings) { report_->warn(warnings); };
  }
  return run_fedavg(communicator_, Registry::builtin(), *source_, mode, fedavg, params_,
                    [this](const ModeStep& step) { return rows_->step(step); });
}

Status ModeRun::train_sync(const ModeOptions& mode) {
  SyncServerOptions sync;
  GW_ASSIGN(sync.server, server_options(options_));
  sync.momentum_at_worker = options_.momentum_at == "worker";
  return run_ps_sync(communicator_, Registry::builtin(), source_.get(), problem_.model.parameters(),
                     mode, sync, params_,
                     [this](const ModeStep& step) { return rows_->step(step); });
}

Status ModeRun::train_async(const ModeOptions& mode) {
  AsyncServerOptions async;
  GW_ASSIGN(async.server, server_options(options_));
  if (options_.mode.staleness >= 0) async.staleness = options_.mode.staleness;
  async.damped = options_.mode.staleness_lr;
  async.period = options_.mode.period;
  GW_ASSIGN(async_, run_ps_async(communicator_, Registry::builtin(), source_.get(),
                                 problem_.model.parameters(), mode, async, params_,
                                 [this](const ModeStep& step) { return rows_->step(step); }));
  return {};
}

Status ModeRun::train() {
  ModeOptions mode = mode_options(options_, steps_);
  mode.saver = checkpoint_.saver.get();
  mode.interruption = interruption_;
  const std::string& name = options_.mode.name;
  if (name == "ps-sync") return train_sync(mode);
  if (name == "ps-async") return train_async(mode);
  if (name == "easgd") return train_easgd(mode);
  if (name == "fedavg") return train_fedavg(mode);
  if (options_.mode.asynchronous) return train_async_elastic(mode);
  return train_elastic(mode);
}

Status ModeRun::finish() {
  GW_ASSIGN(const double accuracy, rows_->evaluate(params_, true));
  const Status finite = check_model(params_).with_context("train");
  if (checkpoint_.saver != nullptr && finite.ok()) GW_TRY(checkpoint_.saver->settle());
  if (report_ != nullptr && finite.ok()) GW_TRY(save(options_, problem_, params_, *source_));
  RunFacts done = facts();
  if (async_) {
    done.staleness_mean = async_->mean_staleness();
    done.staleness_most = async_->most_staleness();
  }
  return report_end(report_, done, finite, accuracy, params_);
}

Status ModeRun::run() {
  if (options_.dry_run) {
    if (report_ == nullptr) return {};
    GW_ASSIGN(const RunEstimate estimate, estimate_run(options_, problem_, communicator_.size()));
    return report_->plan(headline(), steps_, estimate);
  }
  GW_TRY(start());
  rows_->start(facts());
  const Status trained = train();
  if (is_refused(checkpoint_, trained)) {
    return report_end(report_, facts(), trained.with_context("train"), 0, params_);
  }
  GW_TRY(trained);
  return finish();
}

Status run_hogwild_threads(const TrainOptions& options, const Problem& problem, int threads,
                           RunReport& report, Interruption* interruption) {
  std::vector<std::unique_ptr<ModelGradients>> own;
  std::vector<GradientSource*> sources;
  for (int thread = 0; thread < threads; ++thread) {
    GW_ASSIGN(auto source, gradients(options, problem, thread, threads));
    sources.push_back(source.get());
    own.push_back(std::move(source));
  }
  GW_ASSIGN(const auto evaluator, gradients(options, problem, 0, 1));
  std::vector<float> params;
  GW_TRY(initial_parameters(options, problem, true, params, *evaluator));
  if (!options.save_params.empty()) GW_TRY(check_save_path(options.save_params));
  const std::int64_t steps = steps_of(options, *evaluator);
  ModeRows rows(options, *evaluator, judged_labels(problem.data), nullptr, &report, 0);
  const std::string heading = headline_of(options, parameter_elems(problem.model.parameters()),
                                          format("%d thread(s)", threads), steps);
  if (options.dry_run) {
    GW_ASSIGN(const RunEstimate estimate, estimate_run(options, problem, threads));
    return report.plan(heading, steps, estimate);
  }
  // Checkpoints are of ranks; these threads are one.
  GW_ASSIGN(auto alone, make_inproc_communicators(1, {}));
  GW_ASSIGN(OpenedCheckpoint checkpoint,
            open_mode_checkpoint(options, problem.data, *alone[0], steps));
  if (checkpoint.saver != nullptr) GW_TRY(report.go_on(checkpoint.says, checkpoint.steps_done));
  report.start(heading, steps);
  const RunFacts facts = facts_of(options, problem, "shared memory of one process", threads);
  rows.start(facts);
  ModeOptions mode = mode_options(options, steps);
  mode.saver = checkpoint.saver.get();
  mode.interruption = interruption;
  if (interruption != nullptr) interruption->listen();
  const Status trained = run_hogwild(sources, mode, params, evaluator->running(),
                                     [&](const ModeStep& step) { return rows.step(step); });
  if (is_refused(checkpoint, trained)) {
    return report_end(&report, facts, trained.with_context("train"), 0, params);
  }
  GW_TRY(trained);
  GW_ASSIGN(const double accuracy, rows.evaluate(params, false));
  const Status finite = check_model(params).with_context("train");
  if (checkpoint.saver != nullptr && finite.ok()) GW_TRY(checkpoint.saver->settle());
  if (finite.ok()) GW_TRY(save(options, problem, params, *evaluator));
  return report_end(&report, facts, finite, accuracy, params);
}

}  // namespace gradwire
