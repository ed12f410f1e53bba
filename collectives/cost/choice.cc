#include "collectives/cost/choice.h"

#include <algorithm>
#include <bit>
#include <set>

namespace gradwire {
namespace {

constexpr int kDigits = 4;

std::int64_t rounded_down(std::int64_t bytes) {
  const int width = std::bit_width(static_cast<std::uint64_t>(bytes));
  const int dropped = std::max(0, width - kDigits);
  return (bytes >> dropped) << dropped;
}

}  // namespace

AlgorithmChoice::AlgorithmChoice(int ranks, const LinkModel& links, std::int64_t segment_bytes) {
  question_.ranks = question_.nodes = ranks;
  question_.links = links;
  question_.segment_bytes = segment_bytes;
}

// Ranks of a node are taken to follow one another.
void AlgorithmChoice::use_nodes(std::span<const int> node_of) {
  const std::set<int> nodes(node_of.begin(), node_of.end());
  question_.nodes = nodes.empty() ? question_.ranks : static_cast<int>(nodes.size());
  known_.clear();
  segments_.clear();
}

std::string_view AlgorithmChoice::choose(OpKind collective, std::int64_t bytes, bool counted) {
  const std::int64_t size = rounded_down(std::max<std::int64_t>(bytes, 0));
  const std::uint64_t key = (static_cast<std::uint64_t>(size) << 8) |
                            (static_cast<std::uint64_t>(collective) << 1) | (counted ? 1 : 0);
  const auto [entry, is_new] = known_.try_emplace(key);
  if (is_new) {
    question_.collective = collective;
    question_.bytes = size;
    entry->second = choose_algorithm(question_, counted);
  }
  return entry->second;
}

std::int64_t AlgorithmChoice::segment_bytes(OpKind collective, std::int64_t bytes,
                                            std::string_view algorithm) {
  const std::int64_t size = rounded_down(std::max<std::int64_t>(bytes, 0));
  const auto [entry, is_new] = segments_.try_emplace({collective, size, algorithm});
  if (is_new) {
    question_.collective = collective;
    question_.bytes = size;
    const auto cost = cost_of(question_, algorithm);
    entry->second = cost ? cost->segment_bytes : 0;
  }
  return entry->second;
}

}  // namespace gradwire
