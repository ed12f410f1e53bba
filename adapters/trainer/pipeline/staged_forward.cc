#include "adapters/trainer/pipeline/staged_forward.h"

#include <algorithm>
#include <cstddef>

#include "base/elements.h"
#include "base/mesh.h"
#include "trainer/pipeline/generate.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

// Stages are cut by the whole model's costs, as in training.
Result<std::unique_ptr<StagedForward>> StagedForward::create(const Model<float>& whole,
                                                             const Model<float>& shared,
                                                             MeshGroups& groups) {
  GW_ASSIGN(Communicator* const pipeline, groups.group(MeshScope::kPp));
  std::unique_ptr<StagedForward> made(new StagedForward(shared, *pipeline));
  LayerRange layers{0, shared.layers()};
  if (pipeline->size() > 1) {
    GW_ASSIGN(const PipelineSchedule schedule,
              generate_pipeline({.kind = PipelineKind::kGpipe}, pipeline->size(), 1));
    GW_ASSIGN(const StagePlan plan, plan_stages(whole, schedule, pipeline->rank(), {}));
    made->part_ = shared.part(plan.layers());
    layers = plan.stages.front().here;
    const std::vector<int>& rank_of = plan.schedule.rank_of.front();
    const auto stage = static_cast<std::size_t>(plan.stages.front().stage);
    if (stage > 0) made->before_ = rank_of[stage - 1];
    if (stage + 1 < rank_of.size()) made->next_ = rank_of[stage + 1];
  }
  if (groups.sizes().tp > 1) {
    GW_ASSIGN(Communicator* const peers, groups.group(MeshScope::kTp));
    made->peers_.emplace(*peers);
  }
  GW_TRY(shared.check_peers(made->peers_ ? &*made->peers_ : nullptr));
  if (const auto& share = made->model().class_share(); share && made->peers_) {
    made->row_.resize(static_cast<std::size_t>(share->all));
    made->mine_.resize(static_cast<std::size_t>(longest_part(share->all, groups.sizes().tp)));
    made->gathered_.resize(made->mine_.size() * static_cast<std::size_t>(groups.sizes().tp));
  }
  made->parameters_.resize(static_cast<std::size_t>(parameter_elems(made->model().parameters())));
  GW_ASSIGN(made->stage_, PipelineStage::create(made->model(), {.layers = layers}));
  return made;
}

Result<std::span<const float>> StagedForward::run(std::span<const float> inputs, std::int64_t label,
                                                  std::int64_t labels) {
  constexpr int kOnly = 0;  // the one sample's number
  ModelPass<float> pass{parameters_, 1};
  pass.context.mode = PassMode::kEvaluate;
  pass.peers = peers_ ? &*peers_ : nullptr;
  stage_->close_all();
  GW_ASSIGN(const std::span<float> input, stage_->open(kOnly, pass));
  if (before_ < 0) {
    std::ranges::copy(inputs, input.begin());
  } else {
    GW_ASSIGN(Work work, pipeline_.recv(view_of<float>(input), before_));
    GW_TRY(work.wait().with_context("activations of the stage before"));
  }
  GW_ASSIGN(const std::span<const float> output, stage_->forward(kOnly, nullptr));
  if (next_ < 0) {
    const std::size_t classes = output.size() / static_cast<std::size_t>(labels);
    return all_classes(output.subspan(static_cast<std::size_t>(label) * classes, classes));
  }
  GW_ASSIGN(Work work, pipeline_.send(const_view_of<float>(output), next_));
  GW_TRY(work.wait().with_context("activations to the next stage"));
  return std::span<const float>();
}

// Parts may differ by one: each rank sends as much as the longest is.
Result<std::span<const float>> StagedForward::all_classes(std::span<const float> here) {
  if (mine_.empty()) return here;
  std::ranges::copy(here, mine_.begin());
  peers_->start_gather(std::span<const float>(mine_), std::span(gathered_));
  peers_->await();
  GW_TRY(peers_->status());
  std::span<const float> from = gathered_;
  for (int rank = 0; rank < peers_->ranks(); ++rank, from = from.subspan(mine_.size())) {
    const Range part = even_part(static_cast<std::int64_t>(row_.size()), peers_->ranks(), rank);
    std::copy_n(from.begin(), part.size(), row_.begin() + part.begin);
  }
  return std::span<const float>(row_);
}

}  // namespace gradwire
