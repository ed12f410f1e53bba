#include "planner/search/exhaustive.h"

#include <algorithm>

#include "base/text.h"
#include "planner/search/splits.h"

namespace gradwire {
namespace {

// Upper bound of what there is to evaluate, as a double: it may be more than fits an integer.
Status check_count(double count, const SearchRecord& record) {
  if (count <= static_cast<double>(record.budget().evaluations)) return {};
  return {Code::kInvalidArgument,
          format("%s strategies (expected at most the budget of %lld evaluations)",
                 shortest(count).c_str(), static_cast<long long>(record.budget().evaluations))};
}

// Placements of `groups` on `devices`; where devices are alike a new one is the lowest unused.
double placements(std::size_t groups, int devices, bool alike) {
  // By devices in use so far.
  std::vector<double> ways(static_cast<std::size_t>(devices) + 1);
  ways[0] = 1;
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<double> next(ways.size());
    for (std::size_t used = 0; used < ways.size(); ++used) {
      next[used] += ways[used] * (alike ? static_cast<double>(used) : devices);
      if (alike && used + 1 < ways.size()) next[used + 1] += ways[used];
    }
    ways = std::move(next);
  }
  double all = 0;
  for (const double one : ways) all += one;
  return all;
}

}  // namespace

Status ExhaustiveSearch::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  const int devices = record.cost().cluster().devices();
  const bool alike = record.cost().cluster().devices_alike();
  std::vector<int> place(graph.groups().size());
  GW_TRY(check_count(placements(place.size(), devices, alike), record));
  // Like counting; a digit is at most one more than the greatest before it where devices are alike.
  while (true) {
    GW_TRY(record.time(place_groups(graph, place)).error());
    std::size_t digit = place.size();
    while (digit > 0) {
      --digit;
      int most = devices - 1;
      if (alike) {
        const auto begin = place.begin();
        const auto end = begin + static_cast<std::ptrdiff_t>(digit);
        most = std::min(most, digit == 0 ? 0 : *std::max_element(begin, end) + 1);
      }
      if (place[digit] < most) {
        ++place[digit];
        break;
      }
      if (digit == 0) return {};
      place[digit] = 0;
    }
  }
}

Status ExhaustiveSplits::search(SearchRecord& record) {
  const OperatorGraph& graph = record.cost().graph();
  std::vector<std::vector<OperatorSplit>> choices;
  double count = 1;
  for (int number = 0; number < graph.size(); ++number) {
    choices.push_back(operator_splits(graph, number, record.cost().cluster()));
    count *= static_cast<double>(choices.back().size());
  }
  GW_TRY(check_count(count, record));
  std::vector<std::size_t> digits(choices.size());
  while (true) {
    OperatorStrategy strategy;
    for (std::size_t i = 0; i < choices.size(); ++i) strategy.push_back(choices[i][digits[i]]);
    GW_TRY(record.time(strategy).error());
    std::size_t digit = digits.size();
    while (true) {
      if (digit == 0) return {};
      --digit;
      if (++digits[digit] < choices[digit].size()) break;
      digits[digit] = 0;
    }
  }
}

}  // namespace gradwire
