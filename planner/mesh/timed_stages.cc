#include "planner/mesh/timed_stages.h"

#include <utility>

#include "planner/mesh/even_ranks.h"
#include "planner/mesh/mesh_costs.h"
#include "planner/mesh/stage_runs.h"

namespace gradwire {

Result<TimedStages::Divisions> TimedStages::of(const MeshChoice& choice) {
  const Key key(choice.dp, choice.tp, choice.pp, choice.pipes(), is_v(choice.order.kind),
                choice.stages(), choice.has_flush(), choice.micro_batch, choice.recompute);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  GW_ASSIGN(Divisions divisions, cut(choice));
  return known_.emplace(key, std::move(divisions)).first->second;
}

Result<TimedStages::Divisions> TimedStages::cut(const MeshChoice& choice) {
  GW_ASSIGN(const std::vector<std::vector<std::int64_t>> ticks,
            mesh_rank_ticks(problem_, choice, links_.of(choice)));
  GW_ASSIGN(const StageRuns runs, StageRuns::of(problem_, choice));
  const StagedRanks ranks = runs.ranks(
      [&](std::size_t rank, std::size_t, std::size_t layer) { return ticks[rank][layer]; });
  const std::vector<Range>& own = runs.chosen();
  GW_ASSIGN(const std::vector<Range> stages, even_stages(ranks, own.size()));
  GW_ASSIGN(const std::vector<Range> even, even_division(ranks, own));
  const bool several = choice.stages() > choice.pp || choice.pipes() > 1;
  Divisions divisions;
  for (const std::vector<Range>& cuts : {even, stages}) {
    // A division that is no faster to speak of would double what is searched, and be read for more
    // than it is.
    constexpr double kFaster = 0.99;
    const bool is_faster = static_cast<double>(slowest_rank(ranks, cuts)) <
                           kFaster * static_cast<double>(slowest_rank(ranks, own));
    if (!is_faster) continue;
    std::vector<int> layers = runs.layers(cuts);
    const bool known = !divisions.empty() && (!several || divisions.front() == layers);
    if (!known) divisions.push_back(std::move(layers));
  }
  return divisions;
}

}  // namespace gradwire
