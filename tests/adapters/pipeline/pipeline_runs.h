// Training through the stages of a pipeline whose ranks are threads, and on one rank with the same
// micro-batches.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "adapters/trainer/group_consensus.h"
#include "adapters/trainer/mesh/mesh_groups.h"
#include "adapters/trainer/pipeline/communicator_transfers.h"
#include "base/elements.h"
#include "tests/support/aggregate_job.h"
#include "tests/trainer/test_strategies.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_source.h"
#include "trainer/strategy/single_process.h"
#include "trainer/training.h"

namespace gradwire::testing {

struct PipelineRun {
  const Model<float>* model = nullptr;
  const DataSet* data = nullptr;
  PipelineSpec spec = {};
  int ranks = 1;
  PipelineLinks links = PipelineLinks::kTagged;
  bool overlap = true;
  TrainingOptions options = {};  // accumulate: micro-batches
};

// What training leaves, by name, and what ranks reported.
struct Trained {
  std::map<std::string, std::vector<float>> tensors;
  std::vector<double> losses;
  double accuracy = 0;
  double test_loss = 0;
  friend bool operator==(const Trained&, const Trained&) = default;
};

inline void keep(const std::vector<NamedTensor>& tensors, Trained& trained) {
  for (const NamedTensor& named : tensors) {
    const auto values = elements<float>(ConstTensorView(named.tensor));
    const std::vector<float> own(values.begin(), values.end());
    const auto [held, is_first] = trained.tensors.emplace(named.name, own);
    // Tied embeddings alone are on two ranks, with the same bits.
    EXPECT_TRUE(is_first || (named.name == "embed.token" && held->second == own)) << named.name;
  }
}

// A rank without replicas.
class LoneStages final : public SingleProcess {
 public:
  explicit LoneStages(GroupConsensus consensus) : consensus_(std::move(consensus)) {}
  Consensus& consensus() override { return consensus_; }

 private:
  GroupConsensus consensus_;
};

inline Status train_alone(const PipelineRun& run, Trained& trained) {
  SingleProcess strategy;
  GW_ASSIGN(Trainer trainer, Trainer::create(*run.model, *run.data, run.options));
  GW_ASSIGN(trained.accuracy, trainer.run(strategy, [&](const StepReport& report) {
    trained.losses.push_back(report.loss);
    return Status();
  }));
  trained.test_loss = trainer.test_loss();
  keep(trainer.parameters(), trained);
  keep(trainer.buffers(), trained);
  return {};
}

// One rank's part; `trained` is all ranks'.
inline Status train_stages(const PipelineRun& run, Communicator& world, std::mutex& mutex,
                           Trained& trained) {
  GW_ASSIGN(const PipelineSchedule schedule,
            generate_pipeline(run.spec, run.ranks, run.options.accumulate));
  GW_ASSIGN(const StagePlan plan,
            plan_stages(*run.model, schedule, world.rank(), {run.links, run.overlap}));
  const Model<float> part = run.model->part(plan.layers());
  GW_ASSIGN(MeshGroups groups, MeshGroups::create(world, {.pp = run.ranks, .dp = 1, .tp = 1}));
  Communicator* ends = nullptr;
  if (!plan.shared.empty() && (world.rank() == 0 || world.rank() == run.ranks - 1)) {
    GW_ASSIGN(ends, groups.group(MeshScope::kEmbed));
  }
  LoneStages strategy{GroupConsensus(std::move(groups))};
  GW_ASSIGN(CommunicatorTransfers transfers, CommunicatorTransfers::create(world, plan.schedule));
  const SourceChoice source{[&](const SourceParts& parts) {
                              return StageSource::create(
                                  parts, plan, transfers, [&](const TensorView& sum) -> Status {
                                    GW_ASSIGN(Work work, ends->all_reduce(sum, ReduceOp::kSum));
                                    return work.wait();
                                  });
                            },
                            plan.at_a_time};
  const ModelShare share = share_of_stages(*run.model, plan);
  TrainingOptions options = run.options;
  if (run.ranks > 1) options.share = &share;
  GW_ASSIGN(Trainer trainer, Trainer::create(part, *run.data, options, strategy.demands(), source));
  std::vector<double> losses;
  GW_ASSIGN(const double accuracy, trainer.run(strategy, [&](const StepReport& report) {
    losses.push_back(report.loss);
    return Status();
  }));
  const std::lock_guard lock(mutex);
  keep(trainer.parameters(), trained);
  keep(trainer.buffers(), trained);
  EXPECT_TRUE(trained.losses.empty() || losses == trained.losses);
  trained.losses = losses;
  trained.accuracy = accuracy;
  trained.test_loss = trainer.test_loss();
  return {};
}

inline Trained train_pipeline(const PipelineRun& run) {
  std::mutex mutex;
  Trained trained;
  const auto statuses = on_ranks(run.ranks, [&](std::unique_ptr<Communicator>& world) -> Status {
    return train_stages(run, *world, mutex, trained);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return trained;
}

inline Trained train_on_one_rank(const PipelineRun& run) {
  Trained trained;
  const Status status = train_alone(run, trained);
  EXPECT_TRUE(status.ok()) << status.message();
  return trained;
}

// Bit for bit the parameters, running statistics and losses; the test set's loss to rounding, where
// it is added up in other groups.
inline void expect_same(const Trained& stages, const Trained& alone, const std::string& where) {
  ASSERT_EQ(stages.tensors.size(), alone.tensors.size()) << where;
  for (const auto& [name, values] : alone.tensors) {
    const auto found = stages.tensors.find(name);
    ASSERT_NE(found, stages.tensors.end()) << where << ": " << name;
    EXPECT_TRUE(found->second == values) << where << ": " << name;
  }
  EXPECT_EQ(stages.losses, alone.losses) << where;
  EXPECT_EQ(stages.accuracy, alone.accuracy) << where;
  EXPECT_NEAR(stages.test_loss, alone.test_loss, 1e-12 * std::max(1.0, alone.test_loss)) << where;
}

}  // namespace gradwire::testing
