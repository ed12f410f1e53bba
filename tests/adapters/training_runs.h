// Training runs of several ranks that save checkpoints and go on from them, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/optimizers/optimizer_spec.h"
#include "adapters/trainer/sharded/sharded.h"
#include "adapters/trainer/training_checkpoint.h"
#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/support/temporary_folder.h"
#include "tests/trainer/training_problems.h"
#include "trainer/models.h"

namespace gradwire::testing {

inline const Model<float>& small_mlp() {
  static const auto kModel =
      std::move(make_model<float>({"mlp", {12}}, digits().shape(), 10)).value();
  return kModel;
}

// With batch norm: running statistics that a checkpoint must keep.
inline const Model<float>& resnet() {
  static const auto kModel = [] {
    ModelOptions options{"resnet8"};
    options.width = 4;
    return std::move(make_model<float>(options, digits().shape(), 10)).value();
  }();
  return kModel;
}

struct Training {
  const Model<float>* model = &small_mlp();
  std::string compressor = "none";
  int ranks = 2;
  int accumulate = 1;
  std::int64_t batch = 48;
  std::uint64_t seed = 3;
  MomentumAt momentum_at = MomentumAt::kServer;
  double lr = 0.02;
  std::int64_t steps = 20;
  std::vector<int> node_of = {};
  std::string optimizer = "sgd";  // in the grammar of optimizer_spec.h
  int zero = 0;                   // stage of sharded training
  std::string gathered = "none";  // what its parameters travel as
  Precision precision = Precision::kF32;
  LossScaleOptions loss_scale = {};
  std::string recompute = "none";
};

// What a run does with checkpoints; folders are "" for none.
struct Plan {
  std::string resume_from = {};
  std::string save_to = {};
  std::int64_t save_after = 10;  // 0: what was resumed, before the first step
};

struct Outcome {
  std::vector<Status> statuses;
  std::vector<Flat> parameters;  // by rank
  std::vector<Saved> states;     // by rank: trainer's and aggregator's
  double last_loss = 0;
  std::vector<std::string> notices;  // of resuming, rank 0's
};

inline void keep(std::vector<NamedTensor> tensors, Saved& saved) {
  for (const NamedTensor& named : tensors) {
    const ByteSpan bytes = named.tensor.bytes();
    saved.push_back(
        {named.name, named.tensor.shape(), named.tensor.dtype(), {bytes.begin(), bytes.end()}});
  }
}

inline TrainingCheckpointOptions files(const Training& training, const std::string& folder) {
  TrainingCheckpointOptions options;
  options.files.folder = folder;
  options.files.seconds = 30;
  options.batch = training.batch;
  options.accumulate = training.accumulate;
  options.seed = training.seed;
  options.must_match = {{"compressor", training.compressor}};
  return options;
}

inline DataParallelOptions parallel_options(const Training& training) {
  DataParallelOptions parallel;
  parallel.aggregator.compressor = training.compressor;
  parallel.aggregator.algorithm = "canonical";
  parallel.aggregator.seed = training.seed;
  parallel.check_every = 1;
  return parallel;
}

inline ShardedOptions sharded_options(const Training& training, OptimizerOptions optimizer) {
  optimizer.momentum = 0.9;
  return {training.zero, parallel_options(training), training.gathered, optimizer, Offload::kNone,
          1000};
}

inline Demands demands_of(const Training& training, const OptimizerChoice& choice) {
  if (training.zero > 0) {
    return ShardedStrategy::demands_of(sharded_options(training, choice.optimizer));
  }
  if (!choice.method) return DataParallelStrategy::demands_of(parallel_options(training));
  MethodOptions method = *choice.method;
  method.parallel = parallel_options(training);
  return Method::demands_of(method);
}

inline Result<TrainingOptions> trainer_options(const Training& training, int rank) {
  TrainingOptions options;
  options.batch = training.batch;
  options.rank = rank;
  options.ranks = training.ranks;
  options.accumulate = training.accumulate;
  options.steps = training.steps;
  options.lr = training.lr;
  options.momentum_at = training.momentum_at;
  options.seed = training.seed;
  options.precision = training.precision;
  options.loss_scale = training.loss_scale;
  options.recompute = training.recompute;
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(training.optimizer));
  options.optimizer = choice.optimizer;
  return options;
}

inline Result<Trainer> make_trainer(const Training& training, int rank) {
  GW_ASSIGN(const TrainingOptions options, trainer_options(training, rank));
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(training.optimizer));
  return Trainer::create(*training.model, digits(), options, demands_of(training, choice));
}

inline Result<std::unique_ptr<DistributedStrategy>> make_strategy(const Training& training,
                                                                  MeshGroups groups,
                                                                  Trainer& trainer) {
  const DataParallelOptions parallel = parallel_options(training);
  const auto gradients = trainer.gradients();
  const Registry registry = Registry::builtin();
  GW_ASSIGN(OptimizerChoice choice, parse_optimizer(training.optimizer));
  if (training.zero > 0) {
    GW_ASSIGN(auto strategy, ShardedStrategy::create(std::move(groups), registry,
                                                     sharded_options(training, choice.optimizer),
                                                     trainer.memory()));
    return std::unique_ptr<DistributedStrategy>(std::move(strategy));
  }
  if (!choice.method) {
    GW_ASSIGN(auto strategy, DataParallelStrategy::create(std::move(groups), registry, parallel,
                                                          trainer.parameters(), gradients));
    return std::unique_ptr<DistributedStrategy>(std::move(strategy));
  }
  choice.method->parallel = parallel;
  GW_ASSIGN(auto method,
            make_method(std::move(groups), registry, *choice.method, training.model->parameters(),
                        trainer.parameters(), gradients));
  return std::unique_ptr<DistributedStrategy>(std::move(method));
}

// What a rank hears of a run.
struct Heard {
  std::vector<double> losses;
  std::vector<std::string> notices;  // of resuming
};

// One rank's steps, with what the plan says before and after them.
inline Status train_by_plan(const Training& training, const Plan& plan, Communicator& communicator,
                            Trainer& trainer, DistributedStrategy& strategy, Heard& heard) {
  if (!plan.resume_from.empty()) {
    TrainingCheckpoint old(communicator, trainer, strategy, files(training, plan.resume_from));
    GW_ASSIGN(const auto from, old.resume());
    EXPECT_TRUE(from.has_value());
    if (from) {
      EXPECT_EQ(from->step, 10);
      heard.notices = from->notices;
    }
  }
  GW_TRY(strategy.start(ReplicaStart::kCompare));
  TrainingCheckpoint saver(communicator, trainer, strategy, files(training, plan.save_to));
  if (!plan.save_to.empty() && plan.save_after == 0) GW_TRY(saver.save(training.lr, 1));
  const auto on_step = [&](const StepReport& step) -> Status {
    heard.losses.insert(heard.losses.end(), step.late_losses.begin(), step.late_losses.end());
    if (step.averaged) {
      heard.losses.insert(heard.losses.end(), step.earlier_losses.begin(),
                          step.earlier_losses.end());
      heard.losses.push_back(step.loss);
    }
    if (plan.save_to.empty() || step.step + 1 != plan.save_after) return {};
    return saver.save(step.lr, 1);
  };
  return trainer.run(strategy, on_step).error();
}

inline Status run_rank(const Training& training, const Plan& plan, Communicator& communicator,
                       Outcome& outcome) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  GW_ASSIGN(Trainer trainer, make_trainer(training, communicator.rank()));
  GW_ASSIGN(const auto strategy,
            make_strategy(training, MeshGroups::of_replicas(communicator), trainer));
  Heard heard;
  GW_TRY(train_by_plan(training, plan, communicator, trainer, *strategy, heard));
  if (rank == 0) {
    if (!heard.losses.empty()) outcome.last_loss = heard.losses.back();
    outcome.notices = heard.notices;
  }
  const std::vector<NamedTensor> kept = strategy->state();
  GW_TRY(strategy->keeper().gather());
  for (const NamedTensor& named : trainer.parameters()) {
    const auto values = elements<float>(ConstTensorView(named.tensor));
    outcome.parameters[rank].insert(outcome.parameters[rank].end(), values.begin(), values.end());
  }
  keep(trainer.buffers(), outcome.states[rank]);
  keep(trainer.state(), outcome.states[rank]);
  keep(kept, outcome.states[rank]);
  return {};
}

inline Outcome run(const Training& training, const Plan& plan) {
  Outcome outcome;
  outcome.parameters.resize(static_cast<std::size_t>(training.ranks));
  outcome.states.resize(static_cast<std::size_t>(training.ranks));
  CommunicatorOptions options;
  options.node_of = training.node_of;
  outcome.statuses = on_ranks(
      training.ranks,
      [&](std::unique_ptr<Communicator>& communicator) {
        return run_rank(training, plan, *communicator, outcome);
      },
      options);
  return outcome;
}

inline bool all_ok(const Outcome& outcome) {
  for (const Status& status : outcome.statuses) {
    if (!status.ok()) {
      ADD_FAILURE() << status.message();
    }
    if (!status.ok()) return false;
  }
  return true;
}

// 20 steps with a checkpoint after 10 of them, and the last 10 again from it.
inline void expect_exact(const Training& training) {
  SCOPED_TRACE(training.compressor);
  const TemporaryFolder folder;
  const Outcome whole = run(training, {.save_to = folder.path()});
  if (!all_ok(whole)) return;
  const Outcome resumed = run(training, {.resume_from = folder.path()});
  if (!all_ok(resumed)) return;
  EXPECT_EQ(resumed.parameters, whole.parameters);
  for (std::size_t rank = 0; rank < whole.states.size(); ++rank) {
    ASSERT_EQ(resumed.states[rank].size(), whole.states[rank].size());
    for (std::size_t i = 0; i < whole.states[rank].size(); ++i) {
      EXPECT_TRUE(resumed.states[rank][i] == whole.states[rank][i])
          << "rank " << rank << ": " << whole.states[rank][i].name;
    }
  }
  EXPECT_EQ(resumed.last_loss, whole.last_loss);
}

}  // namespace gradwire::testing
