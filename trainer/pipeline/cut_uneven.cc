#include "trainer/pipeline/cut_uneven.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostOfStage = std::int64_t{1} << 62;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

Status check_stage_costs(const std::vector<std::vector<std::int64_t>>& costs) {
  const std::size_t layers = costs.empty() ? 0 : costs.front().size();
  if (costs.empty() || costs.size() > layers) {
    return {Code::kInvalidArgument,
            format("%zu pipeline stages of %zu layers (expected 1 to %zu stages)", costs.size(),
                   layers, layers)};
  }
  for (std::size_t stage = 0; stage < costs.size(); ++stage) {
    if (costs[stage].size() != layers) {
      return {Code::kInvalidArgument,
              format("costs of %zu layers on stage %zu (expected %zu, as on stage 0)",
                     costs[stage].size(), stage, layers)};
    }
    std::int64_t sum = 0;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      const std::int64_t cost = costs[stage][layer];
      if (cost < 0 || cost >= kMostOfStage - sum) {
        return {Code::kInvalidArgument,
                format("cost %lld of layer %zu on stage %zu (expected 0 or more, a sum below 2^62)",
                       static_cast<long long>(cost), layer, stage)};
      }
      sum += cost;
    }
  }
  return {};
}

// [begin]: the least cost of the dearest of a stage and those behind it, which have all layers from
// `begin` on. `behind`: that of the stages behind it.
std::vector<std::int64_t> least_from(std::span<const std::int64_t> costs,
                                     const std::vector<std::int64_t>& behind) {
  std::vector<std::int64_t> least(costs.size() + 1, kNever);
  for (std::size_t begin = 0; begin < costs.size(); ++begin) {
    std::int64_t here = 0;
    for (std::size_t end = begin + 1; end <= costs.size(); ++end) {
      here += costs[end - 1];
      if (here >= least[begin]) break;  // and more so with each further layer
      least[begin] = std::min(least[begin], std::max(here, behind[end]));
    }
  }
  return least;
}

// [begin]: the least sum of squares of a stage and those behind it, as shares of `most`, which none
// of them exceeds; and where the stage ends then.
struct Evenest {
  std::vector<double> squares;
  std::vector<std::size_t> end;
};

Evenest evenest_from(std::span<const std::int64_t> costs, const Evenest& behind,
                     std::int64_t most) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  Evenest even{std::vector<double>(costs.size() + 1, kNone),
               std::vector<std::size_t>(costs.size() + 1)};
  const auto whole = static_cast<double>(std::max<std::int64_t>(most, 1));
  for (std::size_t begin = 0; begin < costs.size(); ++begin) {
    std::int64_t here = 0;
    for (std::size_t end = begin + 1; end <= costs.size(); ++end) {
      here += costs[end - 1];
      const double share = static_cast<double>(here) / whole;
      if (here > most || share * share > even.squares[begin]) break;  // further layers add to it
      const double squares = share * share + behind.squares[end];
      if (squares >= even.squares[begin]) continue;
      even.squares[begin] = squares;
      even.end[begin] = end;
    }
  }
  return even;
}

}  // namespace

Result<std::vector<Range>> cut_uneven(const std::vector<std::vector<std::int64_t>>& costs) {
  GW_TRY(check_stage_costs(costs));
  const std::size_t stages = costs.size();
  const std::size_t layers = costs.front().size();
  // No greedy cut, as cut_layers() has it: a stage that takes all that it can may leave a layer to
  // the next one that is too dear there, and not on the one behind that.
  std::vector<std::int64_t> least(layers + 1, kNever);
  least[layers] = 0;  // no stage is left, and no layer
  for (std::size_t stage = stages; stage-- > 0;) least = least_from(costs[stage], least);
  const std::int64_t most = least.front();
  std::vector<Evenest> even(stages + 1);
  even[stages].squares.assign(layers + 1, std::numeric_limits<double>::infinity());
  even[stages].squares[layers] = 0;
  for (std::size_t stage = stages; stage-- > 0;) {
    even[stage] = evenest_from(costs[stage], even[stage + 1], most);
  }
  std::vector<Range> cut;
  std::size_t begin = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    const std::size_t end = even[stage].end[begin];
    cut.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
    begin = end;
  }
  return cut;
}

}  // namespace gradwire
