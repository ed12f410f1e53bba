// Ranks that train the stages of a pipeline, and share tensors, on a device or on the host, with
// replicas or without.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/mesh/rank_model.h"
#include "device/host_copy.h"
#include "tests/gpu/small_problems.h"
#include "trainer/pipeline/generate.h"

namespace gradwire::gpu {

struct StageJob {
  Family family = {};
  PipelineSpec spec = {};
  int stages = 1;  // ranks of a replica; 1: without a pipeline
  int replicas = 1;
  int tensors = 1;  // ranks that share them
  bool sequence = false;
  int micro_batches = 4;
  std::int64_t steps = 3;
  std::string optimizer = "sgd";
  Precision precision = Precision::kF32;
  double clip = 0;
  std::string recompute = "none";
  std::int64_t eval_every = 0;
  std::string algorithm = "canonical";  // of replicas
  LossScaleOptions loss_scale = {};
  int ranks() const { return stages * replicas * tensors; }
};

// With as many layers as schedules want stages; with batch norm; with tied ends and dropout.
inline Family stage_mlp() { return {"mlp", {"mlp", {24, 20, 16, 20, 12, 14}}, {1, 8, 8}}; }
inline Family stage_resnet() { return {"resnet8", {"resnet8", {}, 4}, {3, 8, 8}}; }
inline Family stage_gpt() {
  ModelOptions options{"gpt", {}, 8};
  options.heads = 2;
  options.layers = 2;
  options.tied = true;
  options.dropout = 0.2;
  return {"gpt", options, {0, 0, 0}};
}

// What one rank is left with.
struct StageOutcome {
  std::string fault;
  // Parameters and running statistics; where ranks share tensors the whole model's, on the first.
  std::map<std::string, std::vector<float>> tensors;
  std::vector<double> losses;
  std::vector<double> test_losses;  // of the steps that were followed by an evaluation
  double accuracy = 0;
  double test_loss = 0;
};

inline TrainingOptions stage_options(const StageJob& job, int replica, const Stream& stream) {
  TrainingOptions options;
  options.batch = std::int64_t{4} * job.micro_batches * job.replicas;
  options.accumulate = job.micro_batches;
  options.rank = replica;
  options.ranks = job.replicas;
  options.steps = job.steps;
  options.lr = 0.02;
  options.seed = 3;
  options.optimizer.name = job.optimizer;
  options.precision = job.precision;
  options.clip = job.clip;
  options.recompute = job.recompute;
  options.eval_every = job.eval_every;
  options.loss_scale = job.loss_scale;
  options.places.device = MemoryArena(stream);
  return options;
}

// By rank of those that share tensors; none: one has them.
inline std::vector<Model<float>> shared_models(const SmallProblem& problem, const StageJob& job) {
  std::vector<Model<float>> models;
  for (int rank = 0; job.tensors > 1 && rank < job.tensors; ++rank) {
    ModelOptions options = job.family.model;
    options.share = {.ranks = job.tensors, .rank = rank, .sequence = job.sequence};
    models.push_back(
        std::move(make_model<float>(options, problem.data.shape(), problem.data.classes()))
            .value());
  }
  return models;
}

// Computes on `stream`, or on the host where that has no device.
inline Status train_stage_rank(Communicator& world, const SmallProblem& problem,
                               const StageJob& job, const Stream& stream, StageOutcome& outcome) {
  GW_ASSIGN(MeshGroups groups,
            MeshGroups::create(world, {.pp = job.stages, .dp = job.replicas, .tp = job.tensors}));
  TrainingOptions options = stage_options(job, groups.coordinates().dp, stream);
  RankModelOptions division{.shared = shared_models(problem, job), .stream = stream};
  if (job.stages > 1) {
    GW_ASSIGN(division.schedule, generate_pipeline(job.spec, job.stages, job.micro_batches));
  }
  GW_ASSIGN(const auto held, RankModel::create(problem.model, division, groups));
  held->use_in(options);
  DataParallelOptions parallel;
  parallel.aggregator.algorithm = job.algorithm;
  parallel.aggregator.bucket_bytes = 4000;  // several of them
  parallel.check_every = 1;
  GW_ASSIGN(Trainer trainer,
            Trainer::create(held->model(), problem.data, options,
                            DataParallelStrategy::demands_of(parallel), held->source()));
  const std::vector<NamedTensor> gradients = trainer.gradients();
  GW_ASSIGN(const auto strategy,
            DataParallelStrategy::create(std::move(groups), Registry::builtin(), parallel,
                                         trainer.parameters(), gradients));
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  GW_ASSIGN(outcome.accuracy, trainer.run(*strategy, [&](const StepReport& report) {
    outcome.losses.push_back(report.loss);
    if (report.test_loss) outcome.test_losses.push_back(*report.test_loss);
    return Status();
  }));
  outcome.test_loss = trainer.test_loss();
  std::vector<NamedTensor> own = trainer.parameters();
  for (NamedTensor& buffer : trainer.buffers()) own.push_back(std::move(buffer));
  WholeModel whole;
  if (job.tensors > 1) {
    GW_ASSIGN(whole, held->parts().gather(own));
    own = whole.tensors;
  }
  const auto values = contents(own);
  for (std::size_t i = 0; i < own.size(); ++i) outcome.tensors[own[i].name] = values[i];
  return {};
}

// The first thing by which a rank's outcome differs from what whole models have in its place, bit
// for bit; empty where it does not. Losses over the test set are added up in other groups.
inline std::string difference(const StageOutcome& rank, const StageOutcome& whole) {
  if (!rank.fault.empty()) return rank.fault;
  if (!whole.fault.empty()) return "whole models: " + whole.fault;
  if (rank.tensors.empty()) return "a rank without parameters";
  for (const auto& [name, values] : rank.tensors) {
    const auto found = whole.tensors.find(name);
    if (found == whole.tensors.end()) return name + " is not the model's";
    if (found->second != values) return name + " differs";
  }
  if (rank.losses.empty() || rank.losses != whole.losses) return "losses differ";
  if (rank.accuracy != whole.accuracy) return "the accuracy differs";
  const auto close = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); };
  if (!close(rank.test_loss, whole.test_loss)) return "the test loss differs";
  if (rank.test_losses.size() != whole.test_losses.size()) return "evaluations differ in number";
  for (std::size_t i = 0; i < rank.test_losses.size(); ++i) {
    if (!close(rank.test_losses[i], whole.test_losses[i])) return "an evaluation differs";
  }
  return "";
}

// The length of the difference of a rank's tensors over their length.
inline double distance_of(const StageOutcome& rank, const StageOutcome& whole) {
  double off = 0;
  double length = 0;
  for (const auto& [name, values] : rank.tensors) {
    const std::vector<float>& other = whole.tensors.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto want = static_cast<double>(other[i]);
      off = std::hypot(off, static_cast<double>(values[i]) - want);
      length = std::hypot(length, want);
    }
  }
  return off / length;
}

}  // namespace gradwire::gpu
