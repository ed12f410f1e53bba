// What an algorithm costs: its schedules, simulated over a LinkModel.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/exact_time.h"
#include "collectives/cost/simulate.h"
#include "collectives/schedules/selection.h"
#include "gradwire/link_model.h"

namespace gradwire {

// One operation at one size.
struct CostQuestion {
  OpKind collective = OpKind::kAllReduce;
  int ranks = 1;
  int nodes = 1;  // with consecutive ranks on each, alike up to one rank
  // Of the tensor for all_reduce, broadcast, reduce and exclusive_scan; of all ranks' rows together
  // for the others.
  std::int64_t bytes = 0;
  std::int64_t elem_bytes = 4;
  LinkModel links = {};
  // What the executor cuts the cells of divisible schedules into, at most: the reduction of one cut
  // then hides behind the transfer of others. 0: cells stay whole, or in the cuts that are best.
  std::int64_t segment_bytes = 0;

  friend bool operator==(const CostQuestion&, const CostQuestion&) = default;
};

// Elements of the tensor, or of one rank's row: what make_schedule() wants. A row has at least one
// element if there are any bytes.
std::int64_t elems_of(const CostQuestion& question);

struct AlgorithmCost : Simulation {
  // Bytes of a pipeline's (selection.h) cuts. 0: cells stay whole.
  std::int64_t segment_bytes = 0;
  // Whether what was simulated is not what was asked, because that has too many steps: all nodes as
  // large as the largest, or each rank on its own.
  bool is_estimate = false;
};

// So many steps take about a second.
inline constexpr std::int64_t kMostStepsOfAlgorithm = 1'200'000;

// An algorithm of algorithms_of(), simulated. A pipeline runs in the cuts that make it fastest: of
// the powers of 2, times the fewest that the executor makes, up to 64 or to cuts of 4 KiB. Where
// ranks that differ have more than most_steps steps, a tensor is made longer by less than one
// element for each rank, so that they are alike; then nodes are taken as alike; then up to
// kMostSteps are simulated, except of a pipeline for which fewer than kMostStepsOfAlgorithm are
// allowed. kUnsupported where there are too many steps nevertheless.
Result<AlgorithmCost> cost_of(const CostQuestion& question, std::string_view algorithm,
                              std::int64_t most_steps = kMostStepsOfAlgorithm);

// No simulation of the algorithm takes less: what the first, the second and the last rank of all,
// and of the first node, have to do.
ExactTime least_time(const CostQuestion& question, std::string_view algorithm);

// No algorithm is faster than the largest of: telling all ranks one thing, ceil(log2 p) * alpha if
// gap is 1 (Karp, Sahay, Santos, Schauser, SPAA 1993); what one port must carry; what the ports of
// a node must carry together to other nodes.
ExactTime lower_bound(const CostQuestion& question);

}  // namespace gradwire
