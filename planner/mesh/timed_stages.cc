#include "planner/mesh/timed_stages.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/mesh/mesh_costs.h"
#include "trainer/pipeline/cut_uneven.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {
namespace {

using StageTicks = std::vector<std::vector<std::int64_t>>;

// Of layers, those of each run together; `begins` has the model's end behind the last one.
StageTicks of_runs(const StageTicks& layers, const std::vector<std::size_t>& begins) {
  StageTicks runs;
  for (const std::vector<std::int64_t>& stage : layers) {
    std::vector<std::int64_t>& sums = runs.emplace_back();
    for (std::size_t run = 0; run + 1 < begins.size(); ++run) {
      sums.push_back(std::accumulate(stage.begin() + static_cast<std::ptrdiff_t>(begins[run]),
                                     stage.begin() + static_cast<std::ptrdiff_t>(begins[run + 1]),
                                     std::int64_t{0}));
    }
  }
  return runs;
}

std::int64_t slowest(const StageTicks& layers, const std::vector<LayerRange>& cuts) {
  std::int64_t most = 0;
  for (std::size_t stage = 0; stage < cuts.size(); ++stage) {
    const auto begin = layers[stage].begin();
    most = std::max(most, std::accumulate(begin + static_cast<std::ptrdiff_t>(cuts[stage].begin),
                                          begin + static_cast<std::ptrdiff_t>(cuts[stage].end),
                                          std::int64_t{0}));
  }
  return most;
}

}  // namespace

Result<std::vector<int>> TimedStages::of(const MeshChoice& choice) {
  const Key key(choice.dp, choice.tp, choice.pp, choice.pipes(), is_v(choice.order.kind),
                choice.stages(), choice.has_flush(), choice.micro_batch, choice.recompute);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  GW_ASSIGN(std::vector<int> layers, cut(choice));
  return known_.emplace(key, std::move(layers)).first->second;
}

Result<std::vector<int>> TimedStages::cut(const MeshChoice& choice) {
  GW_ASSIGN(const StageTicks ticks, mesh_stage_ticks(problem_, choice, links_of(choice)));
  GW_ASSIGN(const Model<float>* const model, problem_.model->part(1, choice.has_flush()));
  GW_ASSIGN(const std::vector<LayerRange> own,
            problem_.model->cuts(choice.stages(), choice.has_flush(), choice.order.layers));
  std::vector<std::size_t> begins = stage_begins(*model);
  begins.push_back(model->layers());
  GW_ASSIGN(const std::vector<Range> cuts, cut_uneven(of_runs(ticks, begins)));
  std::vector<LayerRange> timed;
  std::vector<int> layers;
  for (const Range& cut : cuts) {
    timed.push_back(
        {begins[static_cast<std::size_t>(cut.begin)], begins[static_cast<std::size_t>(cut.end)]});
    layers.push_back(static_cast<int>(timed.back().end - timed.back().begin));
  }
  // A division that is no faster to speak of would double what is searched, and be read for more
  // than it is.
  constexpr double kFaster = 0.99;
  const bool is_faster = static_cast<double>(slowest(ticks, timed)) <
                         kFaster * static_cast<double>(slowest(ticks, own));
  return is_faster ? layers : std::vector<int>{};
}

const MeshLinks& TimedStages::links_of(const MeshChoice& choice) {
  const std::tuple key(choice.dp, choice.tp, choice.pp, choice.pipes());
  const auto known = links_.find(key);
  if (known != links_.end()) return known->second;
  return links_.emplace(key, mesh_links(*problem_.cluster, choice)).first->second;
}

}  // namespace gradwire
