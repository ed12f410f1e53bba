#include <metis.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "planner/search/metis_cut.h"

namespace gradwire {
namespace {

// METIS adds up weights in its own integers, of 32 bits in Debian.
constexpr double kMostTogether = 1 << 28;

double scale_of(double together) { return together > kMostTogether ? kMostTogether / together : 1; }

// The graph in compressed rows.
struct MetisGraph {
  std::vector<idx_t> begins{0};
  std::vector<idx_t> others;
  std::vector<idx_t> bytes;
  std::vector<idx_t> costs;
};

MetisGraph metis_graph(const CutGraph& graph) {
  double products = 0;
  double sent = 0;
  for (const std::int64_t cost : graph.costs()) products += static_cast<double>(cost);
  for (const auto& edges : graph.edges()) {
    for (const CutEdge& edge : edges) sent += static_cast<double>(edge.bytes);
  }
  MetisGraph all;
  for (const std::int64_t cost : graph.costs()) {
    all.costs.push_back(static_cast<idx_t>(static_cast<double>(cost) * scale_of(products)));
  }
  for (const auto& edges : graph.edges()) {
    for (const CutEdge& edge : edges) {
      all.others.push_back(static_cast<idx_t>(edge.other));
      const double scaled = static_cast<double>(edge.bytes) * scale_of(sent);
      all.bytes.push_back(static_cast<idx_t>(std::max(scaled, 1.0)));
    }
    all.begins.push_back(static_cast<idx_t>(all.others.size()));
  }
  return all;
}

}  // namespace

Result<std::vector<int>> metis_parts(const CutGraph& graph, int parts, std::uint64_t seed) {
  MetisGraph all = metis_graph(graph);
  auto groups = static_cast<idx_t>(graph.costs().size());
  idx_t devices = std::min<idx_t>(parts, groups);
  // Where nothing is to be cut METIS has nothing to do.
  if (devices < 2) return std::vector<int>(graph.costs().size());
  std::array<idx_t, METIS_NOPTIONS> options{};
  METIS_SetDefaultOptions(options.data());
  constexpr idx_t kThousandthsOver = 100;
  options[METIS_OPTION_SEED] = static_cast<idx_t>(seed);
  options[METIS_OPTION_UFACTOR] = kThousandthsOver;
  idx_t constraints = 1;
  idx_t cut = 0;
  std::vector<idx_t> part_of(graph.costs().size());
  const int done = METIS_PartGraphRecursive(
      &groups, &constraints, all.begins.data(), all.others.data(), all.costs.data(), nullptr,
      all.bytes.data(), &devices, nullptr, nullptr, options.data(), &cut, part_of.data());
  if (done != METIS_OK) return Status(Code::kInternal, format("METIS ended with %d", done));
  return std::vector<int>(part_of.begin(), part_of.end());
}

}  // namespace gradwire
