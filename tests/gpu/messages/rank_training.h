// Ranks as threads that train on a device, or on the host, whole or sharded.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/measured_gradients.h"
#include "adapters/trainer/sharded/sharded.h"
#include "adapters/trainer/training_checkpoint.h"
#include "device/cuda/stream.h"
#include "tests/gpu/small_problems.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::gpu {

inline constexpr Device kDevice{MemorySpace::kCuda, 0};
inline constexpr std::int64_t kSteps = 8;
inline constexpr std::int64_t kHalf = 4;

struct RankJob {
  std::size_t family = 0;
  std::string compressor = "none";
  int ranks = 2;
  std::string optimizer = "sgd";
  Precision precision = Precision::kF32;
  bool main_gradients = true;
  int stage = 0;  // of sharding
  std::string parameters = "none";
  double clip = 0;
  Offload offload = Offload::kNone;
  std::string resume_from = {};
  std::string save_to = {};
  std::int64_t measure_every = 0;
};

struct RankOutcome {
  std::string fault;
  Code code = Code::kOk;
  std::vector<double> losses;
  std::vector<GradientErrors> errors;  // of the steps that were measured
  std::vector<std::vector<float>> parameters;
  std::vector<std::vector<float>> buffers;
  MemoryUse device;  // between steps
  MemoryUse host;
};

inline TrainingCheckpointOptions files_in(const std::string& folder) {
  TrainingCheckpointOptions options;
  options.files.folder = folder;
  options.files.seconds = 30;
  options.batch = 8;
  options.seed = 3;
  return options;
}

inline ShardedOptions sharded_options(const RankJob& job) {
  ShardedOptions options;
  options.parallel.aggregator.compressor = job.compressor;
  options.parallel.aggregator.algorithm = "canonical";
  options.parallel.aggregator.seed = 3;
  options.parallel.aggregator.bucket_bytes = 4000;  // several of them
  options.parallel.check_every = 1;
  options.stage = job.stage;
  options.parameters = job.parameters;
  options.optimizer.name = job.optimizer;
  options.offload = job.offload;
  options.offload_chunk = 777;
  return options;
}

inline Demands demands_of(const RankJob& job) {
  const ShardedOptions options = sharded_options(job);
  const Demands demands = job.stage == 0 ? DataParallelStrategy::demands_of(options.parallel)
                                         : ShardedStrategy::demands_of(options);
  return job.measure_every > 0 ? MeasuredGradients::demands_of(demands) : demands;
}

// What exchanges gradients: whole ones, or shards.
inline Result<std::unique_ptr<DistributedStrategy>> strategy_of(Communicator& world,
                                                                const RankJob& job,
                                                                Trainer& trainer) {
  const ShardedOptions options = sharded_options(job);
  if (job.stage == 0) {
    const std::vector<NamedTensor> gradients = trainer.gradients();
    GW_ASSIGN(auto whole,
              DataParallelStrategy::create(MeshGroups::of_replicas(world), Registry::builtin(),
                                           options.parallel, trainer.parameters(), gradients));
    return std::unique_ptr<DistributedStrategy>(std::move(whole));
  }
  GW_ASSIGN(auto shards, ShardedStrategy::create(MeshGroups::of_replicas(world),
                                                 Registry::builtin(), options, trainer.memory()));
  return std::unique_ptr<DistributedStrategy>(std::move(shards));
}

inline Status train_rank(Communicator& world, const SmallProblem& problem, const RankJob& job,
                         Device device, RankOutcome& outcome) {
  GW_ASSIGN(const cuda::OwnedStream stream, cuda::OwnedStream::create(kDevice));
  TrainingOptions options;
  options.batch = 8;
  options.rank = world.rank();
  options.ranks = world.size();
  options.steps = kSteps;
  options.offload_chunk = 777;
  options.lr = 0.02;
  options.seed = 3;
  options.optimizer.name = job.optimizer;
  options.precision = job.precision;
  options.main_gradients = job.main_gradients;
  if (job.precision == Precision::kF16) {
    GW_ASSIGN(options.loss_scale, LossScaleOptions::parse("dynamic"));
    options.loss_scale.initial = 0x1p22;  // some steps overflow
  }
  options.clip = job.clip;
  options.offload = job.offload;
  options.offload_chunk = 777;
  if (device.space == MemorySpace::kCuda) options.places.device = MemoryArena(stream.stream());
  const MemoryPlaces places = options.places;
  GW_ASSIGN(Trainer trainer,
            Trainer::create(problem.model, problem.data, options, demands_of(job)));
  GW_ASSIGN(const auto strategy, strategy_of(world, job, trainer));
  if (!job.resume_from.empty()) {
    TrainingCheckpoint old(world, trainer, *strategy, files_in(job.resume_from));
    GW_ASSIGN(const auto from, old.resume());
    EXPECT_TRUE(from.has_value() && from->step == kHalf);
  }
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  TrainingCheckpoint checkpoint(world, trainer, *strategy, files_in(job.save_to));
  std::unique_ptr<MeasuredGradients> measured;
  if (job.measure_every > 0) {
    GW_ASSIGN(measured, MeasuredGradients::create(dynamic_cast<DataParallelStrategy&>(*strategy),
                                                  world, job.measure_every, trainer.gradients()));
  }
  GW_TRY(trainer
             .run(measured ? static_cast<Strategy&>(*measured) : *strategy,
                  [&](const StepReport& report) {
                    outcome.losses.push_back(report.loss);
                    if (measured && measured->errors())
                      outcome.errors.push_back(*measured->errors());
                    const bool saves = !job.save_to.empty() && report.step + 1 == kHalf;
                    return saves ? checkpoint.save(report.lr, 1) : Status();
                  })
             .error());
  outcome.device = places.device.use();
  outcome.host = places.host.use();
  GW_TRY(strategy->keeper().gather());
  GW_TRY(strategy->check_replicas("at the end"));
  outcome.parameters = contents(trainer.parameters());
  if (trainer.parameters().front().tensor.dtype() != DType::kF32) {
    const ParameterTable table = trainer.memory().table;
    std::vector<float> whole(static_cast<std::size_t>(parameter_elems(table)));
    GW_TRY(strategy->keeper().gather_master(whole));
    outcome.parameters = contents(named_tensors(table, whole));
  }
  outcome.buffers = contents(trainer.buffers());
  return {};
}

inline std::vector<RankOutcome> train_ranks(const RankJob& job, Device device) {
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(job.ranks));
  const SmallProblem problem = small_problem(families()[job.family]);
  auto made = make_inproc_communicators(job.ranks);
  EXPECT_TRUE(made.has_value());
  if (!made.has_value()) return outcomes;
  on_threads<int>(job.ranks, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const Status status = train_rank(*made.value()[at], problem, job, device, outcomes[at]);
    if (!status.ok()) outcomes[at].fault = std::string(status.message());
    outcomes[at].code = status.code();
    return 0;
  });
  return outcomes;
}

inline double distance(const std::vector<std::vector<float>>& a,
                       const std::vector<std::vector<float>>& b) {
  double off = 0;
  double whole = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      off = std::hypot(off, static_cast<double>(a[t][i]) - static_cast<double>(b[t][i]));
      whole = std::hypot(whole, static_cast<double>(a[t][i]));
    }
  }
  return off / whole;
}

inline void expect_equal_replicas(const std::vector<RankOutcome>& ranks) {
  for (const RankOutcome& rank : ranks) {
    ASSERT_EQ(rank.fault, "");
    EXPECT_EQ(rank.losses, ranks[0].losses);
    EXPECT_EQ(rank.parameters, ranks[0].parameters);
    EXPECT_EQ(rank.buffers, ranks[0].buffers);
  }
}

// Of families().
inline constexpr std::size_t kMlp = 0;
inline constexpr std::size_t kCnn = 3;
inline constexpr std::size_t kResnet8 = 4;

}  // namespace gradwire::gpu
