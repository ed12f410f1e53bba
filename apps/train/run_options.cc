#include "apps/train/run_options.h"

#include <utility>

#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

MemoryArena::Pages pages_of(const TrainOptions& o) {
  return o.dry_run ? MemoryArena::Pages::kWritten : MemoryArena::Pages::kNow;
}

Result<LossScaleOptions> loss_scale_of(const TrainOptions& o) {
  if (!o.loss_scale.empty()) return LossScaleOptions::parse(o.loss_scale);
  return LossScaleOptions::parse(o.precision == "fp16" ? "dynamic" : "none");
}

Result<TrainingOptions> training_options(const TrainOptions& o, const DataSet& data,
                                         const MeshGroups& groups) {
  TrainingOptions t;
  t.batch = o.batch;
  t.rank = groups.coordinates().dp;
  t.ranks = groups.sizes().dp;
  t.accumulate = static_cast<int>(o.accumulate) / o.parallel.pipes();
  if (o.epochs > 0) {
    t.epochs = o.epochs;
  } else {
    t.steps = o.steps;
  }
  if (!o.checkpoint.empty()) t.drain_every = o.checkpoint_every;
  t.lr = o.lr;
  t.clip = o.clip;
  t.clip_worker = o.clip_worker;
  GW_ASSIGN(t.precision, parse_precision(o.precision));
  t.main_gradients = !o.no_main_grads;
  if (o.no_main_grads && o.measure_every > 0) {
    return Status(Code::kInvalidArgument,
                  "train: --no-main-grads and --measure-every exclude each other (got both)");
  }
  GW_ASSIGN(t.loss_scale, loss_scale_of(o));
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(o.optimizer));
  t.optimizer = choice.optimizer;
  t.optimizer.weight_decay = o.weight_decay;
  t.recompute = o.recompute;
  // CUDA's default stream, for which all of gradwire's wait; null on the host.
  const MemoryArena::Pages pages = pages_of(o);
  t.places.device = MemoryArena(Stream{o.place, nullptr}, pages);
  t.places.host = MemoryArena(Stream(), pages);
  t.draws = !o.dry_run;
  GW_ASSIGN(t.offload, parse_offload(o.offload));
  if (o.place.space == MemorySpace::kCuda && t.offload != Offload::kNone) {
    t.places.host = MemoryArena(Stream{{MemorySpace::kPinnedHost, 0}, nullptr});
  }
  t.offload_chunk = o.offload_chunk;
  t.offload_overlap = o.offload_overlap == "on";
  t.momentum = o.momentum;
  t.momentum_at = o.momentum_at == "worker" ? MomentumAt::kWorker : MomentumAt::kServer;
  t.schedule = o.lr_schedule;
  t.seed = o.seed;
  t.shuffle = shuffle_of(o, data);
  t.eval_every = o.eval_every;
  return t;
}

DataParallelOptions parallel_options(const TrainOptions& o, RankTrace* trace) {
  DataParallelOptions p;
  p.aggregator.compressor = o.compressor;
  p.aggregator.bucket_bytes = o.bucket_bytes;
  p.aggregator.threads = static_cast<int>(o.threads);
  p.aggregator.seed = o.seed;
  p.aggregator.algorithm = dense_algorithm(o);
  p.aggregator.allow_unsafe = o.allow_unsafe;
  if (o.optimizer == "sgd" || o.optimizer == "nesterov") {
    p.aggregator.momentum = o.momentum_at == "worker" ? 0 : o.momentum;
  }
  p.reduce_each = o.accumulate > 1 && o.accumulate_policy == "reduce-each";
  p.check_every = o.check_every;
  if (trace != nullptr) p.aggregator.on_span = trace->of_aggregator();
  return p;
}

Result<ShardedOptions> sharded_options(const TrainOptions& o, OptimizerOptions optimizer,
                                       RankTrace* trace) {
  ShardedOptions s;
  GW_ASSIGN(s.offload, parse_offload(o.offload));
  s.offload_chunk = o.offload_chunk;
  s.stage = static_cast<int>(o.zero);
  s.parallel = parallel_options(o, trace);
  s.parameters = o.parameter_compressor;
  s.optimizer = std::move(optimizer);
  s.optimizer.weight_decay = o.weight_decay;
  s.optimizer.momentum = o.momentum_at == "worker" ? 0 : o.momentum;
  return s;
}

}  // namespace gradwire
