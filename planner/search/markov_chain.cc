#include "planner/search/markov_chain.h"

#include <algorithm>
#include <cmath>

#include "planner/search/draws.h"
#include "planner/search/splits.h"

namespace gradwire {
namespace {

// Proposes strategies that differ from another one in a way to divide operators.
class SplitProposals {
 public:
  SplitProposals(const OperatorGraph& graph, const Cluster& cluster, std::uint64_t seed)
      : draws_(seed), near_(graph.readers()) {
    for (int number = 0; number < graph.size(); ++number) {
      choices_.push_back(operator_splits(graph, number, cluster));
      auto& near = near_[static_cast<std::size_t>(number)];
      const auto& inputs = graph.at(number).inputs;
      near.insert(near.end(), inputs.begin(), inputs.end());
    }
  }

  OperatorStrategy after(OperatorStrategy strategy) {
    constexpr double kSpreads = 0.25;
    const int number = draws_.below(static_cast<int>(choices_.size()));
    const auto& ways = choices_[static_cast<std::size_t>(number)];
    const OperatorSplit& split =
        ways[static_cast<std::size_t>(draws_.below(static_cast<int>(ways.size())))];
    strategy[static_cast<std::size_t>(number)] = split;
    if (draws_.uniform() < kSpreads) spread(number, split, strategy);
    return strategy;
  }
  double uniform() { return draws_.uniform(); }

 private:
  // Along a random walk over readers and inputs, until one may not be divided so.
  void spread(int number, const OperatorSplit& split, OperatorStrategy& strategy) {
    constexpr double kGoesOn = 0.75;
    while (draws_.uniform() < kGoesOn) {
      const auto& near = near_[static_cast<std::size_t>(number)];
      if (near.empty()) return;
      number = near[static_cast<std::size_t>(draws_.below(static_cast<int>(near.size())))];
      const auto& ways = choices_[static_cast<std::size_t>(number)];
      if (std::ranges::find(ways, split) == ways.end()) return;
      strategy[static_cast<std::size_t>(number)] = split;
    }
  }

  SearchDraws draws_;
  std::vector<std::vector<int>> near_;               // readers and inputs, by operator
  std::vector<std::vector<OperatorSplit>> choices_;  // by operator
};

}  // namespace

Status MarkovChainSearch::search(SearchRecord& record) {
  constexpr double kAlpha = 0.05;
  constexpr double kHundredths = 100;
  constexpr std::int64_t kMostSpan = 1000;
  StrategyCost& cost = record.cost();
  SplitProposals proposals(cost.graph(), cost.cluster(), record.budget().seed);
  OperatorStrategy current = data_parallel(cost.graph(), cost.cluster());
  GW_ASSIGN(StrategyTime current_time, record.time(current));
  const double unit = std::max(static_cast<double>(current_time.ticks), 1.0) / kHundredths;
  const std::int64_t span =
      std::clamp<std::int64_t>(record.budget().evaluations / 100, 1, kMostSpan);
  std::int64_t since = 0;
  while (!record.is_spent()) {
    if (since++ == span) {
      since = 1;
      current = record.result().strategy;
      current_time = record.result().time;
    }
    OperatorStrategy next = proposals.after(current);
    GW_ASSIGN(const StrategyTime time, record.time(next));
    const double slower = static_cast<double>(time.ticks - current_time.ticks) / unit;
    const double draw = proposals.uniform();
    const bool taken =
        time.over < current_time.over ||
        (time.over == current_time.over && (slower <= 0 || draw < std::exp(-kAlpha * slower)));
    if (!taken) continue;
    current = std::move(next);
    current_time = time;
  }
  return {};
}

}  // namespace gradwire
