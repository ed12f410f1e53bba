// Training on meshes of replicas and stages, whose ranks are threads, with checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/mesh/rank_model.h"
#include "tests/adapters/training_runs.h"
#include "trainer/models.h"
#include "trainer/pipeline/generate.h"

namespace gradwire::testing {

struct MeshTraining {
  Training training = {};                 // its ranks are replicas
  int stages = 1;                         // pipeline ranks of a replica; 1: without a pipeline.
                                          // Under chimera they are those of two replicas
  std::vector<Model<float>> shared = {};  // by rank of tp, their parts of training.model; none: one
  PipelineSpec spec = {.kind = PipelineKind::kOneFOneB};
  // Without a flush, in place of spec: its ranks are `stages`.
  std::optional<StreamRule> stream = {};
  std::int64_t drain_every = 10;  // steps
  // How a model without stages comes by its gradients; none: as ever.
  SourceChoice source = {};
  const DataSet* data = &digits();
  // Changes what a rank starts with: the first values of its parameters, as `table` has them.
  std::function<void(const MeshCoordinates& at, const ParameterTable& table,
                     std::span<float> values)>
      start = {};
};

// What a run left.
struct MeshEnded {
  std::vector<Status> statuses;                       // by rank
  std::map<std::string, std::vector<float>> tensors;  // parameters that passes read, as fp32, and
                                                      // running statistics: the whole model's
  std::vector<double> losses;                         // of its steps
  std::vector<std::string> notices;                   // of resuming
};

inline int tensor_ranks(const MeshTraining& mesh) {
  return mesh.shared.empty() ? 1 : static_cast<int>(mesh.shared.size());
}

inline bool goes_both_ways(const MeshTraining& mesh) {
  return mesh.stages > 1 && mesh.spec.kind == PipelineKind::kChimera;
}

inline MeshSizes mesh_of(const MeshTraining& mesh) {
  const bool both = goes_both_ways(mesh);
  return {both ? mesh.stages / 2 : mesh.stages, mesh.training.ranks, tensor_ranks(mesh), both};
}

inline Status run_mesh_rank(const MeshTraining& mesh, const Plan& plan, Communicator& world,
                            std::mutex& mutex, MeshEnded& ended) {
  const Training& training = mesh.training;
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(world, mesh_of(mesh)));
  const MeshCoordinates at = groups.coordinates();
  GW_ASSIGN(TrainingOptions options, trainer_options(training, at.dp));
  RankModelOptions division{.shared = mesh.shared, .gathers = training.zero == 3};
  const bool both = goes_both_ways(mesh);
  division.stream_rule = mesh.stream;
  if (mesh.stream || mesh.source.make) options.drain_every = mesh.drain_every;
  if (mesh.stages > 1 && !mesh.stream) {
    GW_ASSIGN(division.schedule,
              generate_pipeline(mesh.spec, mesh.stages, training.accumulate * (both ? 2 : 1)));
  }
  GW_ASSIGN(const auto held, RankModel::create(*training.model, division, groups));
  held->use_in(options);
  GW_ASSIGN(const OptimizerChoice choice, parse_optimizer(training.optimizer));
  GW_ASSIGN(Trainer trainer,
            Trainer::create(held->model(), *mesh.data, options, demands_of(training, choice),
                            mesh.source.make ? mesh.source : held->source()));
  if (mesh.start) {
    const ParameterTable& table = held->model().parameters();
    std::vector<float> values(static_cast<std::size_t>(parameter_elems(table)));
    init_parameters<float>(table, training.seed, values);
    mesh.start(at, table, values);
    GW_TRY(trainer.start_from(std::move(values)));
  }
  GW_ASSIGN(const auto strategy, make_strategy(training, std::move(groups), trainer));
  Heard heard;
  GW_TRY(train_by_plan(training, plan, world, trainer, *strategy, heard));
  GW_TRY(strategy->keeper().gather());
  std::vector<NamedTensor> own = trainer.parameters();
  for (NamedTensor& buffer : trainer.buffers()) own.push_back(std::move(buffer));
  GW_ASSIGN(const WholeModel whole, held->parts().gather(own));
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(ended.losses.empty() || ended.losses == heard.losses);
  ended.losses = heard.losses;
  if (world.rank() == 0) ended.notices = heard.notices;
  for (const NamedTensor& named : whole.tensors) {
    // Replicas are equal.
    const auto [there, added] = ended.tensors.emplace(named.name, values_of(named.tensor));
    EXPECT_TRUE(added || there->second == values_of(named.tensor)) << named.name;
  }
  return {};
}

inline MeshEnded run_mesh(const MeshTraining& mesh, const Plan& plan = {}) {
  std::mutex mutex;
  MeshEnded ended;
  CommunicatorOptions options;
  options.node_of = mesh.training.node_of;
  ended.statuses = on_ranks(
      static_cast<int>(mesh_of(mesh).ranks()),
      [&](std::unique_ptr<Communicator>& world) -> Status {
        return run_mesh_rank(mesh, plan, *world, mutex, ended);
      },
      options);
  return ended;
}

// Of a model with these options: the parts that so many ranks of tp have.
inline std::vector<Model<float>> parts_of(ModelOptions options, const DataSet& data, int ranks) {
  std::vector<Model<float>> models;
  for (int rank = 0; rank < ranks; ++rank) {
    options.share = {.ranks = ranks, .rank = rank};
    models.push_back(std::move(make_model<float>(options, data.shape(), data.classes())).value());
  }
  return models;
}

inline bool all_ok(const MeshEnded& ended) {
  for (const Status& status : ended.statuses) {
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return false;
  }
  return true;
}

// Bit for bit; losses as many as both have, from the last one.
inline void expect_equal(const MeshEnded& stages, const MeshEnded& whole,
                         const std::string& where) {
  SCOPED_TRACE(where);
  ASSERT_TRUE(all_ok(stages));
  ASSERT_TRUE(all_ok(whole));
  ASSERT_EQ(stages.tensors.size(), whole.tensors.size());
  for (const auto& [name, values] : whole.tensors) {
    ASSERT_TRUE(stages.tensors.contains(name)) << name;
    EXPECT_TRUE(stages.tensors.at(name) == values) << name;
  }
  const std::size_t steps = std::min(stages.losses.size(), whole.losses.size());
  ASSERT_GT(steps, 0U);
  EXPECT_TRUE(std::equal(stages.losses.rbegin(),
                         stages.losses.rbegin() + static_cast<std::ptrdiff_t>(steps),
                         whole.losses.rbegin()));
}

}  // namespace gradwire::testing
