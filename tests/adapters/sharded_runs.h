// Sharded training runs of ranks as threads, for tests: what they came to, held and sent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/data_parallel.h"
#include "adapters/trainer/sharded/sharded.h"
#include "base/elements.h"
#include "device/pages.h"
#include "tests/support/aggregate_job.h"
#include "tests/trainer/training_problems.h"
#include "trainer/models.h"
#include "trainer/training.h"

namespace gradwire::testing {

inline const Model<float>& mlp(std::int64_t width) {
  static const auto kSmall =
      std::move(make_model<float>({"mlp", {32, 16}}, digits().shape(), 10)).value();
  static const auto kLarge =
      std::move(make_model<float>({"mlp", {1024, 1024}}, digits().shape(), 10)).value();
  return width > 100 ? kLarge : kSmall;
}

inline std::int64_t model_elems(std::int64_t width) {
  return parameter_elems(mlp(width).parameters());
}

struct Outcome {
  Status status;
  Flat params;
  std::uint64_t wire_bytes = 0;
  std::int64_t state_elems = 0;  // of the optimizer
  std::size_t resident = 0;      // of the gradients, at the end of a step
  std::size_t resident_parameters = 0;
  // Of the steps after the first and before the last.
  std::uint64_t steps_wire_bytes = 0;
  MemoryLink steps_link;
  MemoryUse device;  // at the end of a step
  MemoryUse host;
  std::uint64_t exchanges = 0;  // bytes that they keep
  std::int64_t skipped = 0;     // steps
  std::int64_t own_elems = 0;
  std::uint64_t hash = 0;
  std::map<std::int64_t, Flat> masters;  // own parts, by their first element among all
};

struct Setting {
  int stage = 0;
  int ranks = 2;
  TrainingOptions training;
  std::string compressor = "none";
  std::string parameters = "none";
  std::string algorithm = "ring";
  std::int64_t width = 32;
  std::int64_t bucket_bytes = 4000;
  Offload offload = Offload::kNone;
  bool reduce_each = false;
};

inline TrainingOptions twenty_steps(const std::string& optimizer, int accumulate) {
  TrainingOptions options;
  options.batch = 48;
  options.steps = 20;
  options.seed = 3;
  options.lr = optimizer == "adamw" ? 1e-3 : 0.05;
  options.optimizer.name = optimizer;
  options.accumulate = accumulate;
  return options;
}

inline ShardedOptions sharded_options(const Setting& setting) {
  ShardedOptions options;
  options.stage = setting.stage;
  options.parallel.aggregator.compressor = setting.compressor;
  options.parallel.aggregator.algorithm = setting.algorithm;
  options.parallel.aggregator.bucket_bytes = setting.bucket_bytes;
  options.parallel.check_every = 1;
  options.parallel.reduce_each = setting.reduce_each;
  options.parameters = setting.parameters;
  options.optimizer = setting.training.optimizer;
  options.offload = setting.offload;
  options.offload_chunk = 777;
  return options;
}

inline Demands demands_of(const Setting& setting) {
  const ShardedOptions options = sharded_options(setting);
  return setting.stage == 0 ? DataParallelStrategy::demands_of(options.parallel)
                            : ShardedStrategy::demands_of(options);
}

inline Result<std::unique_ptr<DistributedStrategy>> strategy_of(const Setting& setting,
                                                                Communicator& communicator,
                                                                Trainer& trainer) {
  const ShardedOptions options = sharded_options(setting);
  const auto gradients = trainer.gradients();
  if (setting.stage == 0) {
    GW_ASSIGN(auto strategy, DataParallelStrategy::create(MeshGroups::of_replicas(communicator),
                                                          Registry::builtin(), options.parallel,
                                                          trainer.parameters(), gradients));
    return std::unique_ptr<DistributedStrategy>(std::move(strategy));
  }
  GW_ASSIGN(auto strategy, ShardedStrategy::create(MeshGroups::of_replicas(communicator),
                                                   Registry::builtin(), options, trainer.memory()));
  return std::unique_ptr<DistributedStrategy>(std::move(strategy));
}

inline std::size_t resident(const std::vector<NamedTensor>& tensors) {
  std::size_t bytes = 0;
  for (const NamedTensor& named : tensors) {
    bytes += resident_bytes(ConstTensorView(named.tensor).bytes());
  }
  return bytes;
}

inline void note_step(const StepReport& step, const Setting& setting, Trainer& trainer,
                      DistributedStrategy& strategy, Outcome& outcome) {
  const TrainerMemory memory = trainer.memory();
  outcome.resident = resident(memory.gradients.tensors);
  outcome.resident_parameters = resident(memory.parameters.named());
  outcome.device = memory.places.device.use();
  outcome.host = memory.places.host.use();
  outcome.skipped += step.skipped ? 1 : 0;
  outcome.exchanges = strategy.stats().held_bytes;
  const std::uint64_t wire = strategy.stats().wire_bytes;
  const MemoryLink link = *memory.places.link;
  // Later ones are with the last step's evaluation.
  if (step.step == 0) {
    outcome.steps_wire_bytes = wire;
    outcome.steps_link = link;
  } else if (step.step + 2 == *setting.training.steps) {
    outcome.steps_wire_bytes = wire - outcome.steps_wire_bytes;
    outcome.steps_link = {link.bytes_out - outcome.steps_link.bytes_out,
                          link.bytes_in - outcome.steps_link.bytes_in};
  }
}

// Where ranks have parts of the parameters that optimizers step, those.
inline Status keep_masters(DistributedStrategy& strategy, const ParameterTable& table,
                           Outcome& outcome) {
  GW_ASSIGN(const auto parts, strategy.keeper().own_parameters());
  outcome.masters.clear();
  if (!parts) return {};
  for (const TensorPart& part : *parts) {
    const auto of = std::ranges::find(table, part.tensor, &ParameterInfo::name);
    outcome.masters[of->offset + part.begin] = values_of(part.values);
  }
  return {};
}

inline Status run_rank(const Setting& setting, Communicator& communicator, Outcome& outcome) {
  TrainingOptions own = setting.training;
  own.rank = communicator.rank();
  own.ranks = setting.ranks;
  own.places = {};
  own.offload_chunk = 777;
  GW_ASSIGN(Trainer trainer,
            Trainer::create(mlp(setting.width), digits(), own, demands_of(setting)));
  GW_ASSIGN(auto strategy, strategy_of(setting, communicator, trainer));
  GW_TRY(strategy->start(ReplicaStart::kCompare));
  outcome = {};
  outcome.own_elems = TensorShards(mlp(setting.width).parameters(), own.rank, own.ranks).elems();
  const auto on_step = [&](const StepReport& step) -> Status {
    note_step(step, setting, trainer, *strategy, outcome);
    return {};
  };
  const auto accuracy = trainer.run(*strategy, on_step);
  GW_TRY(accuracy.error());
  outcome.wire_bytes = strategy->stats().wire_bytes;
  GW_TRY(strategy->keeper().gather());
  GW_TRY(strategy->check_replicas("after the last step"));
  outcome.params = flat(trainer.parameters());
  GW_ASSIGN(outcome.hash, trainer.parameter_hash());
  GW_TRY(keep_masters(*strategy, trainer.memory().table, outcome));
  if (setting.stage > 0) {
    for (const NamedTensor& named : strategy->state()) {
      const bool of_shards = named.name.ends_with(".shard") || named.name == "sharded.steps";
      const bool of_exchanges = named.name.find('/') != std::string::npos;
      if (!of_shards && !of_exchanges) outcome.state_elems += named.tensor.elems();
    }
  }
  return accuracy.error();
}

inline std::vector<Outcome> train(const Setting& setting) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(setting.ranks));
  const auto ended =
      on_ranks(setting.ranks, [&](std::unique_ptr<Communicator>& communicator) -> Status {
        return run_rank(setting, *communicator,
                        outcomes[static_cast<std::size_t>(communicator->rank())]);
      });
  for (std::size_t r = 0; r < ended.size(); ++r) {
    outcomes[r].status = ended[r];
    EXPECT_TRUE(ended[r].ok()) << ended[r].message();
    EXPECT_EQ(outcomes[r].params, outcomes[0].params) << "rank " << r;
    EXPECT_EQ(outcomes[r].hash, outcomes[0].hash) << "rank " << r;
  }
  // All parts of what optimizers step, in fp32.
  Flat whole = outcomes[0].params;
  for (const Outcome& outcome : outcomes) {
    for (const auto& [first, values] : outcome.masters) {
      std::ranges::copy(values, whole.begin() + first);
    }
  }
  for (Outcome& outcome : outcomes) outcome.params = whole;
  return outcomes;
}

}  // namespace gradwire::testing
