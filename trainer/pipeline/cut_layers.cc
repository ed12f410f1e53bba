#include "trainer/pipeline/cut_layers.h"

#include <algorithm>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostCost = std::int64_t{1} << 62;

// Stages as long as `most` allows, each leaving a layer for those behind it. Empty where there
// would be more than `stages`; `most` is not below any layer's cost.
std::vector<Range> greedy_cut(std::span<const std::int64_t> costs, int stages, std::int64_t most) {
  const auto layers = static_cast<std::int64_t>(costs.size());
  std::vector<Range> cut;
  std::int64_t begin = 0;
  for (int left = stages - 1; left >= 0; --left) {
    std::int64_t end = begin;
    for (std::int64_t cost = 0; end < layers - left; ++end) {
      cost += costs[static_cast<std::size_t>(end)];
      if (cost > most) break;
    }
    cut.push_back({begin, end});
    begin = end;
  }
  if (begin < layers) cut.clear();
  return cut;
}

}  // namespace

Result<std::vector<Range>> cut_layers(std::span<const std::int64_t> costs, int stages) {
  if (stages < 1 || static_cast<std::size_t>(stages) > costs.size()) {
    return Status(Code::kInvalidArgument,
                  format("%d pipeline stages of %zu layers (expected 1 to %zu stages)", stages,
                         costs.size(), costs.size()));
  }
  std::int64_t sum = 0;
  for (std::size_t layer = 0; layer < costs.size(); ++layer) {
    if (costs[layer] < 0 || costs[layer] >= kMostCost - sum) {
      return Status(Code::kInvalidArgument,
                    format("cost %lld of layer %zu (expected 0 or more, a sum below 2^62)",
                           static_cast<long long>(costs[layer]), layer));
    }
    sum += costs[layer];
  }
  // The least bound that the greedy cut keeps: it takes as few stages as any cut does.
  std::int64_t low = *std::ranges::max_element(costs);
  std::int64_t high = sum;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (greedy_cut(costs, stages, middle).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return greedy_cut(costs, stages, low);
}

Result<std::vector<Range>> cut_by_counts(std::span<const int> counts, std::int64_t layers) {
  std::vector<Range> cut;
  std::int64_t begin = 0;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    if (counts[stage] < 1) {
      return Status(Code::kInvalidArgument,
                    format("stage %zu of %d layers (expected at least 1)", stage, counts[stage]));
    }
    cut.push_back({begin, begin + counts[stage]});
    begin += counts[stage];
  }
  if (begin == layers) return cut;
  return Status(Code::kInvalidArgument,
                format("stages=%s of %lld layers together (expected %lld, those of the model)",
                       layer_counts_text(counts).c_str(), static_cast<long long>(begin),
                       static_cast<long long>(layers)));
}

std::optional<std::vector<int>> parse_layer_counts(std::string_view text) {
  constexpr std::int64_t kMostLayers = 65'536;
  std::vector<int> counts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const auto count = to_int(text.substr(begin, end - begin));
    if (!count || *count < 1 || *count > kMostLayers) return std::nullopt;
    counts.push_back(static_cast<int>(*count));
    begin = end + 1;
  }
  return counts;
}

std::string layer_counts_text(std::span<const int> counts) {
  std::string text;
  for (const int count : counts) text += (text.empty() ? "" : "+") + std::to_string(count);
  return text;
}

}  // namespace gradwire
