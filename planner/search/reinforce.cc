#include "planner/search/reinforce.h"

#include <algorithm>
#include <cmath>

#include "planner/search/policy/sequence_policy.h"
#include "planner/search/policy/table_policy.h"

namespace gradwire {
namespace {

// How long a policy's choices are looked at before others.
struct ReinforcePlan {
  std::size_t round = 16;  // placements
  double entropy = 0.02;   // at the start; falls to 0 with the budget
};

Status reinforce(SearchRecord& record, PlacementPolicy& policy, SearchDraws& draws,
                 const ReinforcePlan& plan) {
  constexpr double kKept = 0.9;  // of the baseline, a round
  const OperatorGraph& graph = record.cost().graph();
  double unit = 0;
  double baseline = 0;
  double longest = 0;
  for (int round = 0; !record.is_spent(); ++round) {
    std::vector<std::vector<int>> placements;
    std::vector<double> rewards;
    while (placements.size() < plan.round && !record.is_spent()) {
      placements.push_back(policy.draw(draws));
      GW_ASSIGN(const StrategyTime time, record.time(place_groups(graph, placements.back())));
      const auto ticks = static_cast<double>(time.ticks);
      longest = std::max(longest, ticks);
      rewards.push_back(std::sqrt(time.over > 0 ? 2 * longest : ticks));
    }
    const auto count = static_cast<double>(rewards.size());
    double mean = 0;
    for (const double reward : rewards) mean += reward / count;
    if (round == 0) {
      unit = std::max(mean, 1.0);
      baseline = mean;
    }
    const double left = 1 - static_cast<double>(record.result().evaluations) /
                                static_cast<double>(record.budget().evaluations);
    for (std::size_t i = 0; i < placements.size(); ++i) {
      policy.add(placements[i], (baseline - rewards[i]) / unit / count,
                 plan.entropy * left / count);
    }
    baseline = kKept * baseline + (1 - kKept) * mean;
    policy.step();
  }
  return {};
}

}  // namespace

Status ReinforceSearch::search(SearchRecord& record) {
  SearchDraws draws(record.budget().seed);
  TablePolicy policy(record.cost().graph().groups().size(), record.cost().cluster().devices());
  return reinforce(record, policy, draws, {});
}

Status RecurrentReinforceSearch::search(SearchRecord& record) {
  SearchDraws draws(record.budget().seed);
  SequencePolicy policy(group_features(record.cost().graph()), record.cost().cluster().devices(),
                        SequenceSizes{}, record.budget().seed + 1);
  return reinforce(record, policy, draws, {});
}

}  // namespace gradwire
