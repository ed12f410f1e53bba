#include "planner/search/placement_search.h"

#include <array>
#include <string_view>

#include "base/text.h"
#include "planner/search/exhaustive.h"
#include "planner/search/markov_chain.h"
#include "planner/search/metis_cut.h"
#include "planner/search/min_cut.h"
#include "planner/search/reinforce.h"
#include "planner/search/simple_placements.h"

namespace gradwire {
namespace {

template <typename Search>
std::unique_ptr<PlacementSearch> make() {
  return std::make_unique<Search>();
}

struct NamedSearch {
  std::string_view name;
  std::unique_ptr<PlacementSearch> (*make)();
};

constexpr std::array kSearches{
    NamedSearch{"one-device", make<OneDevicePlacement>},
    NamedSearch{"expert", make<ExpertPlacement>},
    NamedSearch{"random", make<RandomPlacement>},
    NamedSearch{"min-cut", make<MinCutPlacement>},
    NamedSearch{"metis", make<MetisPlacement>},
    NamedSearch{"reinforce", make<ReinforceSearch>},
    NamedSearch{"reinforce-lstm", make<RecurrentReinforceSearch>},
    NamedSearch{"mcmc", make<MarkovChainSearch>},
    NamedSearch{"exhaustive", make<ExhaustiveSearch>},
};

}  // namespace

Result<StrategyTime> SearchRecord::time(const OperatorStrategy& strategy) {
  GW_ASSIGN(StrategyTime time, cost_.time(strategy));
  ++result_.evaluations;
  if (result_.best.empty() || time < result_.time) {
    result_.strategy = strategy;
    result_.time = time;
    result_.best.push_back({result_.evaluations, time});
    if (told_) told_(result_.best.back());
  }
  return time;
}

std::vector<std::string> placement_search_names() {
  std::vector<std::string> names;
  for (const NamedSearch& one : kSearches) names.emplace_back(one.name);
  return names;
}

Result<std::unique_ptr<PlacementSearch>> make_placement_search(const std::string& name) {
  for (const NamedSearch& one : kSearches) {
    if (one.name == name) return one.make();
  }
  return Status(Code::kInvalidArgument,
                "method '" + name + "' (expected " + joined(placement_search_names()) + ")");
}

Result<SearchResult> search_placement(const std::string& method, StrategyCost& cost,
                                      const SearchBudget& budget, const OnSearchPoint& told) {
  if (budget.evaluations < 1) {
    return Status(Code::kInvalidArgument, format("%lld evaluations (expected 1 or more)",
                                                 static_cast<long long>(budget.evaluations)));
  }
  GW_ASSIGN(const auto search, make_placement_search(method));
  SearchRecord record(cost, budget, told);
  GW_TRY(search->search(record).with_context(method));
  return record.result();
}

}  // namespace gradwire
