#include "planner/mesh/stage_runs.h"

#include <algorithm>

#include "trainer/stages/stage_plan.h"

namespace gradwire {

Result<StageRuns> StageRuns::of(const MeshProblem& problem, const MeshChoice& choice) {
  StageRuns made;
  GW_ASSIGN(const Model<float>* const model, problem.model->part(1, choice.has_flush()));
  GW_ASSIGN(made.cuts_,
            problem.model->cuts(choice.stages(), choice.has_flush(), choice.order.layers));
  made.begins_ = stage_begins(*model);
  made.begins_.push_back(model->layers());
  std::int64_t begin = 0;
  for (const LayerRange& cut : made.cuts_) {
    const std::int64_t end = std::ranges::lower_bound(made.begins_, cut.end) - made.begins_.begin();
    made.chosen_.push_back({begin, end});
    begin = end;
  }
  for (int rank = 0; rank < choice.pp; ++rank) {
    std::vector<int>& stages = made.stages_.emplace_back();
    for (const auto& [pipe, stage] : choice.stages_of(rank)) stages.push_back(stage);
  }
  return made;
}

StagedRanks StageRuns::ranks(const Amount& amount) const {
  StagedRanks ranks{.stages = stages_};
  for (std::size_t rank = 0; rank < stages_.size(); ++rank) {
    ranks.ticks.emplace_back(stages_[rank].size(), std::vector<std::int64_t>(size()));
    for (std::size_t place = 0; place < stages_[rank].size(); ++place) {
      std::vector<std::int64_t>& runs = ranks.ticks[rank][place];
      for (std::size_t run = 0; run < size(); ++run) {
        for (std::size_t layer = begins_[run]; layer < begins_[run + 1]; ++layer) {
          runs[run] += amount(rank, place, layer);
        }
      }
    }
  }
  return ranks;
}

std::vector<int> StageRuns::layers(const std::vector<Range>& cuts) const {
  std::vector<int> layers;
  for (const Range& cut : cuts) {
    layers.push_back(static_cast<int>(begins_[static_cast<std::size_t>(cut.end)] -
                                      begins_[static_cast<std::size_t>(cut.begin)]));
  }
  return layers;
}

}  // namespace gradwire
