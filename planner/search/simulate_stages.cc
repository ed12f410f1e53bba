#include "planner/search/partitioners.h"
#include "trainer/pipeline/generate.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire {

Result<StagesRun> run_stages(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  const int ranks = static_cast<int>(stages.size());
  GW_ASSIGN(PipelineSchedule schedule,
            generate_pipeline({.kind = PipelineKind::kOneFOneB}, ranks, cost.micro_batches()));
  schedule = with_step_ops(schedule, {.reduce = true});
  // A message of n ticks on its ports is one of n bytes over a link of a tick a byte.
  PipelineCosts costs{.link = {.alpha = 0, .beta = 1}};
  costs.link_of.resize(stages.size(), std::vector<PipelineLink>(stages.size(), costs.link));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const PlacedStage& stage = stages[i];
    PipelineStageCost one{.forward = cost.forward(stage),
                          .backward_input = cost.backward(stage),
                          .backward_weight = 0,
                          .reduce_gradients = cost.reduce(stage)};
    const auto sent = [&](const PlacedStage& behind, std::size_t before) {
      const std::int64_t latency =
          cost.cluster().path(behind.first_device - 1, behind.first_device).latency;
      costs.link_of[before][before + 1].alpha = latency;
      costs.link_of[before + 1][before].alpha = latency;
      return cost.transfer(behind.first_layer, behind.first_device) - latency;
    };
    if (i + 1 < stages.size()) one.output_bytes = sent(stages[i + 1], i);
    if (i > 0) one.input_bytes = sent(stage, i - 1);
    costs.stages.push_back(one);
  }
  GW_ASSIGN(PipelineSimulation simulation, simulate_pipeline(schedule, costs));
  return StagesRun{std::move(schedule), std::move(simulation)};
}

Result<std::int64_t> simulate_stages(const StageCost& cost,
                                     const std::vector<PlacedStage>& stages) {
  GW_ASSIGN(const StagesRun run, run_stages(cost, stages));
  return run.simulation.makespan;
}

}  // namespace gradwire
