#include "planner/search/markov_chain.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "planner/search/draws.h"
#include "planner/search/simple_placements.h"
#include "planner/search/splits.h"
#include "planner/search/starts.h"

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

// A strategy and its time.
struct TimedStrategy {
  OperatorStrategy strategy;
  StrategyTime time;
};

// What chains begin with: the best first. At least one, and at most half of the budget is spent.
Result<std::vector<TimedStrategy>> timed_starts(SearchRecord& record) {
  constexpr std::size_t kKept = 4;
  const OperatorGraph& graph = record.cost().graph();
  const std::int64_t most = std::max<std::int64_t>(record.budget().evaluations / 2, 1);
  std::vector<TimedStrategy> starts;
  const auto add = [&](OperatorStrategy strategy) -> Status {
    if (record.result().evaluations >= most) return {};
    GW_ASSIGN(StrategyTime time, record.time(strategy));
    starts.push_back({std::move(strategy), std::move(time)});
    std::ranges::stable_sort(starts, std::less{}, &TimedStrategy::time);
    starts.resize(std::min(starts.size(), kKept));
    return {};
  };
  for (const OperatorSplit& split : sample_divisions(graph, record.cost().cluster())) {
    GW_TRY(add(OperatorStrategy(graph.operators.size(), split)));
  }
  GW_ASSIGN(OperatorStrategy by_hand, cut_by_hand(graph, record.cost().cluster().devices()));
  GW_TRY(add(std::move(by_hand)));
  return starts;
}

// Chains one after another, as far as the budget goes.
class Chains {
 public:
  Chains(SearchRecord& record, std::vector<TimedStrategy> starts)
      : record_(record),
        starts_(std::move(starts)),
        proposals_(record.cost().graph(), record.cost().cluster(), record.budget().seed),
        unit_(std::max(static_cast<double>(starts_.front().time.ticks), 1.0) / kHundredths) {}

  Status run() {
    const std::int64_t span =
        std::clamp<std::int64_t>(record_.budget().evaluations / 100, 1, kMostSpan);
    for (std::size_t chain = 0; !record_.is_spent(); ++chain) {
      TimedStrategy current = begin(chain);
      for (std::int64_t i = 0; i < span && !record_.is_spent(); ++i) GW_TRY(move(current));
    }
    return {};
  }

 private:
  static constexpr double kAlpha = 0.05;
  static constexpr double kHundredths = 100;
  static constexpr std::int64_t kMostSpan = 1000;

  TimedStrategy begin(std::size_t chain) const {
    constexpr std::size_t kOfStarts = 4;
    if (chain % kOfStarts == kOfStarts - 1) return starts_[chain / kOfStarts % starts_.size()];
    return {record_.result().strategy, record_.result().time};
  }

  Status move(TimedStrategy& current) {
    OperatorStrategy next = proposals_.after(current.strategy);
    GW_ASSIGN(StrategyTime time, record_.time(next));
    const double slower = static_cast<double>(time.ticks - current.time.ticks) / unit_;
    const double draw = proposals_.uniform();
    const bool taken =
        time.over < current.time.over ||
        (time.over == current.time.over && (slower <= 0 || draw < std::exp(-kAlpha * slower)));
    if (taken) current = {std::move(next), std::move(time)};
    return {};
  }

  SearchRecord& record_;
  std::vector<TimedStrategy> starts_;
  SplitProposals proposals_;
  double unit_;
};

}  // namespace

Status MarkovChainSearch::search(SearchRecord& record) {
  GW_ASSIGN(std::vector<TimedStrategy> starts, timed_starts(record));
  return Chains(record, std::move(starts)).run();
}

}  // namespace gradwire
