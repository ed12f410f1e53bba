// What a rank's stages hold, class by class: the account, and the simulated schedule, against what
// was counted while it trained (row PP12 of the trainer's acceptance table).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/adapters/pipeline/pipeline_runs.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/pipeline/simulate.h"
#include "trainer/stages/stage_memory.h"

namespace gradwire::testing::stage_memory_test {
namespace {

const DataSet& digits_data() {
  static const DataSet kSet = std::move(load_data_set("digits", {})).value();
  return kSet;
}

const DataSet& text() {
  static const DataSet kSet = [] {
    DataOptions options;
    options.text.context = 8;
    options.text.evaluated = 96;  // windows, which take less than the steps
    return std::move(load_data_set("grammar", {}, options)).value();
  }();
  return kSet;
}

struct Case {
  std::string name;
  const DataSet* data = nullptr;
  Model<float> model;
};

Case case_of(const std::string& name, const DataSet& data, const ModelOptions& options) {
  return {name, &data, std::move(make_model<float>(options, data.shape(), data.classes())).value()};
}

// Uneven stages, batch norm, and embeddings.
const std::vector<Case>& cases() {
  static const std::vector<Case> kAll = [] {
    ModelOptions resnet{"resnet8"};
    resnet.width = 4;
    ModelOptions gpt{"gpt"};
    gpt.width = 8;
    gpt.layers = 4;
    gpt.heads = 2;
    std::vector<Case> all;
    all.push_back(case_of("mlp", digits_data(), {"mlp", {24, 20, 24, 18, 16, 20, 12, 14}}));
    all.push_back(case_of("resnet8", digits_data(), resnet));
    all.push_back(case_of("gpt", text(), gpt));
    gpt.tied = true;
    all.push_back(case_of("tied gpt", text(), gpt));
    return all;
  }();
  return kAll;
}

// One rank's classes: as counted, as the account says, and the simulated peak of contexts.
struct Held {
  MemoryUse counted;
  MemoryByClass planned{};
  std::int64_t simulated_contexts = 0;
  std::int64_t parameter_bytes = 0;  // in fp32
};

RunMemoryQuestion question_of(const TrainingOptions& options, const DataSet& data,
                              const StagePlan& plan) {
  RunMemoryQuestion question;
  question.micro_batch = options.shares().samples(options.batch);
  question.accumulate = options.accumulate;
  question.recompute = options.recompute;
  question.precision = options.precision;
  question.optimizer = options.optimizer.name;
  question.momentum = options.momentum;
  question.labels = data.labels_per_sample();
  question.stages = &plan;
  return question;
}

// Contexts alone: what they take by stage.
Result<std::int64_t> simulated(const Model<float>& model, const PipelineSchedule& schedule,
                               const TrainingOptions& options, int rank) {
  PipelineCosts costs = even_costs(schedule.stages(), 3, 4, 2);
  for (int holder = 0; holder < schedule.size(); ++holder) {
    GW_ASSIGN(const StagePlan plan, plan_stages(model, schedule, holder, {}));
    const Model<float> part = model.part(plan.layers());
    for (const StagePlace& place : plan.stages) {
      PipelineStageCost& cost = costs.stages[static_cast<std::size_t>(place.stage)];
      GW_ASSIGN(
          cost.context_bytes,
          context_bytes(part, place, options.shares().samples(options.batch), options.recompute));
      cost.weight_bytes = cost.context_bytes;
    }
  }
  GW_ASSIGN(const PipelineSimulation run, simulate_pipeline(schedule, costs));
  return run.memory[static_cast<std::size_t>(rank)].contexts;
}

// With a rule without a flush, in place of the run's schedule.
Result<Held> train(const PipelineRun& run, Communicator& world, const StreamRule* rule) {
  GW_ASSIGN(const PipelineSchedule schedule,
            generate_pipeline(run.spec, run.ranks, run.options.accumulate));
  GW_ASSIGN(const StagePlan plan, rule != nullptr
                                      ? plan_stream(*run.model, *rule, world.rank())
                                      : plan_stages(*run.model, schedule, world.rank(), {}));
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
  options.places = {};
  options.share = &share;
  GW_ASSIGN(Trainer trainer, Trainer::create(part, *run.data, options, strategy.demands(), source));
  GW_TRY(trainer.run(strategy, nullptr).error());
  Held held;
  held.counted = options.places.device.use();
  RunMemoryQuestion question = question_of(options, *run.data, plan);
  question.wide_gradients =
      GradientFold::form_of(options, strategy.demands()) == GradientFold::Form::kWide;
  question.whole_gradients = GradientFold::needs_whole(options, strategy.demands());
  GW_ASSIGN(const RunMemory planned, run_memory(part, question));
  held.planned = planned.device;
  GW_ASSIGN(held.simulated_contexts, simulated(*run.model, schedule, options, world.rank()));
  held.parameter_bytes = parameter_elems(part.parameters()) * std::int64_t{sizeof(float)};
  return held;
}

// To the byte, on every rank and in every class.
void expect_held(const PipelineRun& run, const std::string& where,
                 const StreamRule* rule = nullptr) {
  const auto statuses = on_ranks(run.ranks, [&](std::unique_ptr<Communicator>& world) -> Status {
    GW_ASSIGN(const Held held, train(run, *world, rule));
    const std::string rank = where + ", rank " + std::to_string(world->rank());
    for (std::size_t i = 0; i < kMemoryClasses; ++i) {
      EXPECT_EQ(held.counted.peak[i], held.planned[i])
          << rank << ": " << to_string(static_cast<MemoryClass>(i));
    }
    if (rule == nullptr) {
      EXPECT_EQ(held.counted.peak_of(MemoryClass::kActivations), held.simulated_contexts) << rank;
      return {};
    }
    // The newest is where the optimizer steps it, p - s of them, p in sync, or 2.
    const int stage = world->rank();
    const int versions = rule->versions == StreamRule::Versions::kDelayed  ? 2
                         : rule->versions == StreamRule::Versions::kInSync ? run.ranks
                                                                           : run.ranks - stage;
    EXPECT_EQ(held.counted.peak_of(MemoryClass::kVersions), (versions - 1) * held.parameter_bytes)
        << rank;
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << where << status.message();
}

class StageMemory : public ::testing::TestWithParam<PipelineKind> {};

INSTANTIATE_TEST_SUITE_P(Schedules, StageMemory,
                         ::testing::Values(PipelineKind::kGpipe, PipelineKind::kOneFOneB,
                                           PipelineKind::kInterleaved, PipelineKind::kZeroBubbleH1,
                                           PipelineKind::kZeroBubbleV,
                                           PipelineKind::kZeroBubbleVHalf,
                                           PipelineKind::kZeroBubbleVMin,
                                           PipelineKind::kBreadthFirst));

TEST_P(StageMemory, PP12_TheAccountAndTheSimulatorSayWhatIsHeld) {
  for (const Case& one : cases()) {
    for (const auto& [ranks, micros] : {std::pair(2, 1), std::pair(2, 4), std::pair(3, 5)}) {
      if (GetParam() == PipelineKind::kBreadthFirst && micros < ranks) continue;
      for (const std::string recompute : {"none", "full"}) {
        if (splits_backward(GetParam()) && recompute != "none") continue;
        for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
          PipelineRun run{.model = &one.model, .data = one.data, .spec = {.kind = GetParam()}};
          run.ranks = ranks;
          run.options.accumulate = micros;
          run.options.batch = std::int64_t{4} * micros;
          run.options.steps = 2;
          run.options.optimizer.name = "adamw";
          run.options.recompute = recompute;
          run.options.precision = precision;
          expect_held(run, one.name + ", " + std::to_string(ranks) + " ranks, " +
                               std::to_string(micros) + " micro-batches, recompute " + recompute +
                               ", " + std::string(to_string(precision)));
        }
      }
    }
  }
}

TEST(StageMemoryOfStreams, PP8_PP9_VersionsAreOfOneClass) {
  using Versions = StreamRule::Versions;
  for (const Case& one : cases()) {
    if (one.name == "tied gpt") continue;
    for (const int ranks : {2, 3, 4}) {
      for (const Versions versions : {Versions::kNewest, Versions::kInSync, Versions::kDelayed}) {
        for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
          const int micros = versions == Versions::kDelayed ? ranks : 1;
          const StreamRule rule{.ranks = ranks, .micro_batches = micros, .versions = versions};
          PipelineRun run{.model = &one.model, .data = one.data, .spec = {}};
          run.ranks = ranks;
          run.options.accumulate = micros;
          run.options.batch = std::int64_t{4} * micros;
          run.options.steps = 9;
          run.options.optimizer.name = "adamw";
          run.options.precision = precision;
          expect_held(run,
                      one.name + ", " + std::to_string(ranks) + " ranks, versions " +
                          std::to_string(static_cast<int>(versions)) + ", " +
                          std::string(to_string(precision)),
                      &rule);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::testing::stage_memory_test
