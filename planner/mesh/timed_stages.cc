#include "planner/mesh/timed_stages.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/mesh/even_ranks.h"
#include "planner/mesh/mesh_costs.h"
#include "trainer/pipeline/cut_uneven.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {
namespace {

using Ticks = std::vector<std::vector<std::int64_t>>;

// Of layers on each rank, those of each run together; `begins` has the model's end behind the last.
Ticks of_runs(const Ticks& layers, const std::vector<std::size_t>& begins) {
  Ticks runs;
  for (const std::vector<std::int64_t>& rank : layers) {
    std::vector<std::int64_t>& sums = runs.emplace_back();
    for (std::size_t run = 0; run + 1 < begins.size(); ++run) {
      sums.push_back(std::accumulate(rank.begin() + static_cast<std::ptrdiff_t>(begins[run]),
                                     rank.begin() + static_cast<std::ptrdiff_t>(begins[run + 1]),
                                     std::int64_t{0}));
    }
  }
  return runs;
}

// Of runs on each stage, on the slowest of the ranks that have it.
Ticks by_stage(const StagedRanks& ranks, int stages) {
  Ticks ticks(static_cast<std::size_t>(stages));
  for (std::size_t rank = 0; rank < ranks.stages.size(); ++rank) {
    for (const int stage : ranks.stages[rank]) {
      std::vector<std::int64_t>& one = ticks[static_cast<std::size_t>(stage)];
      one.resize(ranks.ticks[rank].size());
      std::ranges::transform(one, ranks.ticks[rank], one.begin(),
                             [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
    }
  }
  return ticks;
}

// As runs of layers.
std::vector<Range> in_runs(const std::vector<LayerRange>& cuts,
                           const std::vector<std::size_t>& begins) {
  std::vector<Range> runs;
  std::int64_t begin = 0;
  for (const LayerRange& cut : cuts) {
    const std::int64_t end = std::ranges::lower_bound(begins, cut.end) - begins.begin();
    runs.push_back({begin, end});
    begin = end;
  }
  return runs;
}

}  // namespace

Result<TimedStages::Divisions> TimedStages::of(const MeshChoice& choice) {
  const Key key(choice.dp, choice.tp, choice.pp, choice.pipes(), is_v(choice.order.kind),
                choice.stages(), choice.has_flush(), choice.micro_batch, choice.recompute);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  GW_ASSIGN(Divisions divisions, cut(choice));
  return known_.emplace(key, std::move(divisions)).first->second;
}

Result<TimedStages::Divisions> TimedStages::cut(const MeshChoice& choice) {
  GW_ASSIGN(const Ticks ticks, mesh_rank_ticks(problem_, choice, links_.of(choice)));
  GW_ASSIGN(const Model<float>* const model, problem_.model->part(1, choice.has_flush()));
  GW_ASSIGN(const std::vector<LayerRange> layers_of_own,
            problem_.model->cuts(choice.stages(), choice.has_flush()));
  std::vector<std::size_t> begins = stage_begins(*model);
  begins.push_back(model->layers());
  StagedRanks ranks{.ticks = of_runs(ticks, begins)};
  for (int rank = 0; rank < choice.pp; ++rank) {
    std::vector<int>& stages = ranks.stages.emplace_back();
    for (const auto& [pipe, stage] : choice.stages_of(rank)) stages.push_back(stage);
  }
  const std::vector<Range> own = in_runs(layers_of_own, begins);
  GW_ASSIGN(const std::vector<Range> stages, cut_uneven(by_stage(ranks, choice.stages())));
  // Where ranks have several stages the fastest slowest stage is a start, and runs' own is another.
  std::vector<Range> even = even_ranks(ranks, stages);
  const bool several = choice.stages() > choice.pp || choice.pipes() > 1;
  if (several) {
    std::vector<Range> moved = even_ranks(ranks, own);
    if (slowest_rank(ranks, moved) < slowest_rank(ranks, even)) even = std::move(moved);
  }
  Divisions divisions;
  for (const std::vector<Range>& cuts : {even, stages}) {
    // A division that is no faster to speak of would double what is searched, and be read for more
    // than it is.
    constexpr double kFaster = 0.99;
    const bool is_faster = static_cast<double>(slowest_rank(ranks, cuts)) <
                           kFaster * static_cast<double>(slowest_rank(ranks, own));
    if (!is_faster) continue;
    std::vector<int> layers;
    for (const Range& cut : cuts) {
      layers.push_back(static_cast<int>(begins[static_cast<std::size_t>(cut.end)] -
                                        begins[static_cast<std::size_t>(cut.begin)]));
    }
    const bool known = !divisions.empty() && (!several || divisions.front() == layers);
    if (!known) divisions.push_back(std::move(layers));
  }
  return divisions;
}

}  // namespace gradwire
