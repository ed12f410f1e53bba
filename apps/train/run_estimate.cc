#include "apps/train/run_estimate.h"

#include <algorithm>
#include <numeric>

#include "adapters/launch/rank_place.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "apps/memory_room.h"
#include "apps/sim/pipeline_choice.h"
#include "apps/sim/sim_text.h"
#include "apps/train/mode_flags.h"
#include "apps/train/run_options.h"
#include "apps/train/run_strategy.h"
#include "base/text.h"
#include "trainer/stages/stage_plan.h"
#include "trainer/step/gradient_fold.h"

namespace gradwire {
namespace {

// In which form they are handed over, and when.
Status settle_gradients(const TrainOptions& o, RunMemoryQuestion& q) {
  GW_ASSIGN(const Demands demands, strategy_demands(o));
  TrainingOptions t;
  t.precision = q.precision;
  t.accumulate = q.accumulate;
  t.main_gradients = q.main_gradients;
  t.clip_worker = o.clip_worker;
  t.momentum = o.momentum;
  t.momentum_at = q.momentum_at_worker ? MomentumAt::kWorker : MomentumAt::kServer;
  GW_ASSIGN(t.loss_scale, loss_scale_of(o));
  q.wide_gradients = GradientFold::form_of(t, demands) == GradientFold::Form::kWide;
  q.whole_gradients = GradientFold::needs_whole(t, demands);
  return {};
}

Result<RunMemoryQuestion> question_of(const TrainOptions& o, const Problem& problem, int rank,
                                      int ranks) {
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(o.optimizer));
  const int accumulate = static_cast<int>(o.accumulate) / o.parallel.pipes();
  RunMemoryQuestion q;
  q.micro_batch = std::max<std::int64_t>(BatchShares{ranks, accumulate}.samples(o.batch), 1);
  q.accumulate = accumulate;
  q.reduce_each = o.accumulate_policy == "reduce-each";
  q.recompute = o.recompute;
  GW_ASSIGN(q.precision, parse_precision(o.precision));
  q.optimizer = choice.optimizer.name;
  q.momentum = o.momentum;
  q.momentum_at_worker = o.momentum_at == "worker";
  q.stage = static_cast<int>(o.zero);
  q.rank = rank;
  q.ranks = ranks;
  GW_ASSIGN(q.offload, parse_offload(o.offload));
  q.offload_chunk = o.offload_chunk;
  q.main_gradients = !o.no_main_grads;
  q.space = o.place.space;
  q.clips_worker = o.clip_worker > 0;
  q.exact_parameters = o.parameter_compressor == "none";
  GW_TRY(settle_gradients(o, q));
  q.labels = problem.data.labels_per_sample();
  return q;
}

// The whole model, or the rank's part of it.
Model<float> held_by(const Problem& problem, int tp, const StagePlan* stages) {
  const Model<float>& model =
      problem.shared.empty() ? problem.model : problem.shared[static_cast<std::size_t>(tp)];
  return stages == nullptr ? model : model.part(stages->layers());
}

Result<RunMemory> memory_of(const Model<float>& held, RunMemoryQuestion q,
                            const StagePlan* stages) {
  q.stages = stages;
  return run_memory(held, q);
}

// What MeasuredGradients takes: copies of all gradients in fp32, and of the averages of those that
// the host cannot compare where they are.
std::int64_t measuring_bytes(const TrainOptions& o, const Model<float>& held,
                             const RunMemoryQuestion& q) {
  constexpr std::int64_t kCopy = 4;
  if (o.measure_every == 0) return 0;
  const bool narrow = q.precision != Precision::kF32 && !q.wide_gradients;
  const bool twice = narrow || q.space == MemorySpace::kCuda;
  return (twice ? 2 : 1) * kCopy * parameter_elems(held.parameters());
}

struct RankNeeds {
  RunMemory memory = {};
  std::int64_t measuring = 0;

  // Of main memory.
  std::int64_t sum(bool there) const {
    std::int64_t sum = measuring;
    for (std::size_t i = 0; i < kMemoryClasses; ++i) {
      sum += memory.host[i] + (there ? 0 : memory.device[i]);
    }
    return sum;
  }
};

// Of the rank with most.
Result<RankNeeds> most_of(const TrainOptions& o, const Problem& problem,
                          const RunMemoryQuestion& question, RunEstimate& estimate) {
  const bool there = o.place.space == MemorySpace::kCuda;
  RankNeeds most;
  // Of the ranks that share the same tensors; returns what the one with most has.
  const auto add = [&](const StagePlan* plan) -> Result<std::int64_t> {
    std::int64_t largest = 0;
    for (int tp = 0; tp < o.parallel.tp; ++tp) {
      const Model<float> held = held_by(problem, tp, plan);
      GW_ASSIGN(const RunMemory memory, memory_of(held, question, plan));
      const RankNeeds needs{memory, measuring_bytes(o, held, question)};
      largest = std::max(largest, needs.sum(there));
      if (needs.sum(there) > most.sum(there)) most = needs;
    }
    return largest;
  };
  if (!o.parallel.has_stages()) {
    GW_TRY(add(nullptr).error());
    return most;
  }
  const auto add_stage = [&](const StagePlan& plan) -> Status {
    GW_ASSIGN(const std::int64_t largest, add(&plan));
    estimate.by_stage.push_back(largest);
    return Status();
  };
  const auto rule = o.parallel.stream_rule(static_cast<int>(o.accumulate));
  for (int rank = 0; rule && rank < rule->ranks; ++rank) {
    GW_ASSIGN(const StagePlan plan, plan_stream(problem.model, *rule, rank));
    GW_TRY(add_stage(plan));
  }
  if (rule) return most;
  GW_ASSIGN(
      const PipelineSchedule schedule,
      choose_pipeline(to_string(o.parallel.order), o.parallel.pp, static_cast<int>(o.accumulate)));
  GW_TRY(for_each_stage_plan(problem.model, schedule, {}, o.zero == 3, add_stage));
  return most;
}

// Of a mode, or an optimizer that exchanges: what every one of them has.
RunMemoryQuestion least_of(RunMemoryQuestion q) {
  q.optimizer = "sgd";
  q.momentum = 0;
  q.stage = 0;
  return q;
}

}  // namespace

Result<RunMemory> planned_memory(const TrainOptions& o, const Problem& problem,
                                 const MeshCoordinates& at, const MeshSizes& sizes,
                                 const StagePlan* stages) {
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(o.optimizer));
  if (choice.method) {
    return Status(Code::kInvalidArgument,
                  "train: --memory requires --optimizer sgd, nesterov, adamw or lamb (got one that "
                  "sends momenta or updates)");
  }
  GW_ASSIGN(const RunMemoryQuestion question, question_of(o, problem, at.dp, sizes.dp));
  return memory_of(held_by(problem, at.tp, stages), question, stages);
}

std::int64_t RunEstimate::of_rank() const {
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : classes) sum += bytes;
  return sum;
}

// Of as many pipelines as there are ranks for, the last of which need not be whole.
std::int64_t RunEstimate::total() const {
  const std::int64_t at_most = of_rank() * ranks;
  if (by_stage.empty()) return at_most;
  const auto replica = static_cast<std::int64_t>(by_stage.size()) * tensor_ranks;
  const std::int64_t one =
      tensor_ranks * std::accumulate(by_stage.begin(), by_stage.end(), std::int64_t{0});
  return std::min(at_most, one * ((ranks + replica - 1) / replica));
}

Result<RunEstimate> estimate_run(const TrainOptions& o, const Problem& problem, int ranks) {
  RunEstimate estimate;
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(o.optimizer));
  estimate.parameters = parameter_elems(problem.model.parameters());
  estimate.at_least = choice.method.has_value() || o.mode.name != "sync";
  estimate.ranks = ranks;
  if (o.mode.name != "sync") {
    GW_ASSIGN(estimate.ranks, workers_among(o, ranks));
  }
  estimate.tensor_ranks = o.parallel.tp;
  const int pipelines = std::max(estimate.ranks / (o.parallel.pp * o.parallel.tp), 1);
  const int replicas = pipelines * o.parallel.pipes();
  GW_ASSIGN(RunMemoryQuestion question, question_of(o, problem, 0, replicas));
  if (estimate.at_least) question = least_of(question);
  GW_ASSIGN(const RankNeeds most, most_of(o, problem, question, estimate));
  const bool there = o.place.space == MemorySpace::kCuda;
  // hogwild's threads share the parameters.
  const bool shared = o.mode.name == "hogwild";
  for (std::size_t i = 0; i < kMemoryClasses; ++i) {
    const auto what = static_cast<MemoryClass>(i);
    const std::int64_t bytes = most.memory.host[i] + (there ? 0 : most.memory.device[i]);
    if (bytes == 0 || (shared && what == MemoryClass::kParameters)) continue;
    estimate.classes.emplace_back(to_string(what), bytes);
  }
  if (most.measuring > 0) estimate.classes.emplace_back("measurements", most.measuring);
  return estimate;
}

std::string to_text(const RunEstimate& estimate) {
  std::string parts;
  for (const auto& [name, bytes] : estimate.classes) {
    parts += (parts.empty() ? "" : ", ") + name + " " + size_text(bytes);
  }
  std::string text = (estimate.at_least ? "at least " : "") + size_text(estimate.of_rank());
  if (!parts.empty()) text += " (" + parts + ")";
  if (estimate.by_stage.empty()) {
    return text + (estimate.ranks > 1 ? format(" for each of %d ranks", estimate.ranks) : "");
  }
  std::string stages;
  for (const std::int64_t bytes : estimate.by_stage) {
    stages += (stages.empty() ? "" : ", ") + size_text(bytes);
  }
  return text + " on the ranks whose stages have most; by rank of a pipeline " + stages;
}

Status check_room(const TrainOptions& options, const Problem& problem, int ranks, int ranks_here,
                  bool one_process) {
  TrainOptions placed = options;
  GW_ASSIGN(const launch::DeviceName device, launch::parse_device(options.device));
  placed.place.space = device.space;
  // What no closed form fits is refused later, by those that know why.
  const auto made = estimate_run(placed, problem, ranks);
  if (!made.has_value()) return {};
  RunEstimate here = made.value();
  here.ranks = std::min(here.ranks, ranks_here);
  const auto refuse = [&](std::int64_t needed, const MemoryRoom& room) {
    return Status(
        Code::kOutOfMemory,
        format(
            "train: the run does not fit into memory (needs %s on this host, %s are available by "
            "%s): %s; use a smaller model or batch, --recompute, --zero over more hosts or fewer "
            "ranks%s",
            size_text(needed).c_str(), size_text(room.bytes).c_str(), room.limit.c_str(),
            to_text(here).c_str(),
            options.allow_overcommit ? "" : ", or --allow-overcommit to try"));
  };
  const std::int64_t own = one_process ? here.total() : here.of_rank();
  // Ranks of other processes may have taken theirs already: of what is free now only this one's
  // part is sure to be wanted.
  if (const MemoryRoom now = free_memory(); own > now.bytes) return refuse(own, now);
  if (const MemoryRoom all = host_memory(); here.total() > all.bytes) {
    return refuse(here.total(), all);
  }
  return {};
}

}  // namespace gradwire
