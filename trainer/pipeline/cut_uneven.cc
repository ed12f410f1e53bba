#include "trainer/pipeline/cut_uneven.h"

#include <algorithm>
#include <limits>
#include <span>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostOfStage = std::int64_t{1} << 62;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

Status check_costs(const std::vector<std::vector<std::int64_t>>& costs) {
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

}  // namespace

Result<std::vector<Range>> cut_uneven(const std::vector<std::vector<std::int64_t>>& costs) {
  GW_TRY(check_costs(costs));
  const std::size_t stages = costs.size();
  const std::size_t layers = costs.front().size();
  // No greedy cut, as cut_layers() has it: a stage that takes all that it can may leave a layer to
  // the next one that is too dear there, and not on the one behind that.
  std::vector<std::vector<std::int64_t>> least(stages + 1);
  least[stages].assign(layers + 1, kNever);
  least[stages][layers] = 0;  // no stage is left, and no layer
  for (std::size_t stage = stages; stage-- > 0;) {
    least[stage] = least_from(costs[stage], least[stage + 1]);
  }
  const std::int64_t most = least[0][0];
  std::vector<Range> cut;
  std::size_t begin = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    std::size_t longest = begin;
    std::int64_t here = 0;
    for (std::size_t end = begin + 1; end <= layers; ++end) {
      here += costs[stage][end - 1];
      if (here > most) break;
      if (least[stage + 1][end] <= most) longest = end;
    }
    cut.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(longest)});
    begin = longest;
  }
  return cut;
}

}  // namespace gradwire
