#include "trainer/stages/stage_costs.h"

#include <algorithm>

#include "trainer/pipeline/generators/generators.h"

namespace gradwire {

PipelineCosts stage_costs(const Model<float>& model, const StagePlan& plan) {
  PipelineCosts costs{.links = plan.how.links};
  for (const LayerRange& cut : plan.cuts) {
    PipelineStageCost stage{.forward = 0, .backward_input = 0, .backward_weight = 0};
    for (std::size_t layer = cut.begin; layer < cut.end; ++layer) {
      const LayerCost cost = model.layer(layer).cost();
      stage.forward += cost.forward_macs + 1;
      stage.backward_input += cost.input_macs;
      stage.backward_weight += cost.weight_macs;
    }
    costs.stages.push_back(stage);
  }
  return costs;
}

Result<double> stage_bubble(const Model<float>& model, const StagePlan& plan, std::int64_t steps) {
  PipelineCosts costs = stage_costs(model, plan);
  if (plan.stream) {
    constexpr std::int64_t kMostSteps = 1024;
    const std::int64_t fit = kMostMicroBatches / plan.stream->micro_batches;
    costs.links = PipelineLinks::kDirect;
    GW_ASSIGN(
        const PipelineSimulation run,
        simulate_pipeline(
            stream_schedule(*plan.stream, static_cast<int>(std::min({steps, kMostSteps, fit}))),
            costs));
    return run.bubble_of_all();
  }
  GW_ASSIGN(const PipelineSimulation run, simulate_pipeline(plan.schedule, costs));
  return run.bubble_of_all();
}

}  // namespace gradwire
