// Searchers of strategies: which device, divided how. They know a cost and nothing of networks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "planner/cost/strategy.h"
#include "planner/cost/strategy_cost.h"

namespace gradwire {

struct SearchBudget {
  std::uint64_t seed = 1;
  std::int64_t evaluations = 2000;  // of the cost, at most; methods that need fewer stop
};

// A strategy that was better than all before it.
struct SearchPoint {
  std::int64_t evaluation = 0;  // from 1
  StrategyTime time = {};
};

struct SearchResult {
  OperatorStrategy strategy = {};
  StrategyTime time = {};
  std::int64_t evaluations = 0;
  std::vector<SearchPoint> best = {};  // in the order in which they were found
};

// Told of each point of SearchResult::best as it is found. May be empty.
using OnSearchPoint = std::function<void(const SearchPoint&)>;

// Counts evaluations, and keeps the best.
class SearchRecord {
 public:
  SearchRecord(StrategyCost& cost, const SearchBudget& budget, OnSearchPoint told)
      : cost_(cost), budget_(budget), told_(std::move(told)) {}

  StrategyCost& cost() const { return cost_; }
  const SearchBudget& budget() const { return budget_; }
  bool is_spent() const { return result_.evaluations >= budget_.evaluations; }
  // Its time, counted. Errors as StrategyCost::time().
  Result<StrategyTime> time(const OperatorStrategy& strategy);
  const SearchResult& result() const { return result_; }

 private:
  StrategyCost& cost_;
  SearchBudget budget_;
  OnSearchPoint told_;
  SearchResult result_;
};

// The same seed, cost and budget give the same result.
class PlacementSearch {
 public:
  virtual ~PlacementSearch() = default;
  // At least one strategy is evaluated. kInvalidArgument: a problem that the method does not serve;
  // and errors of the cost.
  virtual Status search(SearchRecord& record) = 0;
};

// "one-device", "expert", "random", "min-cut", "metis", "reinforce", "reinforce-lstm", "mcmc",
// "exhaustive".
std::vector<std::string> placement_search_names();
// kInvalidArgument: another name.
Result<std::unique_ptr<PlacementSearch>> make_placement_search(const std::string& name);

// Runs one. kInvalidArgument: no evaluations; and errors of the method.
Result<SearchResult> search_placement(const std::string& method, StrategyCost& cost,
                                      const SearchBudget& budget, const OnSearchPoint& told = {});

}  // namespace gradwire
