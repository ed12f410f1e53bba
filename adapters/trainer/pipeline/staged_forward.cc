#include "adapters/trainer/pipeline/staged_forward.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/elements.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

Result<std::unique_ptr<StagedForward>> StagedForward::create(const Model<float>& whole,
                                                             Communicator& group) {
  std::unique_ptr<StagedForward> made(new StagedForward(whole, group));
  LayerRange layers{0, whole.layers()};
  if (group.size() > 1) {
    GW_ASSIGN(const PipelineSchedule schedule,
              generate_pipeline({.kind = PipelineKind::kGpipe}, group.size(), 1));
    GW_ASSIGN(const StagePlan plan, plan_stages(whole, schedule, group.rank(), {}));
    made->part_ = whole.part(plan.layers());
    layers = plan.stages.front().here;
    const std::vector<int>& rank_of = plan.schedule.rank_of.front();
    const auto stage = static_cast<std::size_t>(plan.stages.front().stage);
    if (stage > 0) made->before_ = rank_of[stage - 1];
    if (stage + 1 < rank_of.size()) made->next_ = rank_of[stage + 1];
  }
  made->parameters_.resize(static_cast<std::size_t>(parameter_elems(made->model().parameters())));
  GW_ASSIGN(made->stage_, PipelineStage::create(made->model(), {.layers = layers}));
  return made;
}

Result<std::span<const float>> StagedForward::run(std::span<const float> inputs) {
  constexpr int kOnly = 0;  // the one sample's number
  ModelPass<float> pass{parameters_, 1};
  pass.context.mode = PassMode::kEvaluate;
  stage_->close_all();
  GW_ASSIGN(const std::span<float> input, stage_->open(kOnly, pass));
  if (before_ < 0) {
    std::ranges::copy(inputs, input.begin());
  } else {
    GW_ASSIGN(Work work, group_.recv(view_of<float>(input), before_));
    GW_TRY(work.wait().with_context("activations of the stage before"));
  }
  GW_ASSIGN(const std::span<const float> output, stage_->forward(kOnly, nullptr));
  if (next_ < 0) return output;
  GW_ASSIGN(Work work, group_.send(const_view_of<float>(output), next_));
  GW_TRY(work.wait().with_context("activations to the next stage"));
  return std::span<const float>();
}

}  // namespace gradwire
