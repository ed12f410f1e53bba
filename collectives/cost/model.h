// What every algorithm costs in closed form: integers of alphas, bytes and gaps, priced by a
// LinkModel. The model is that of simulate.h, which agrees exactly where `exact` says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/exact_time.h"
#include "collectives/schedules/selection.h"
#include "gradwire/link_model.h"

namespace gradwire {

// One operation at one size.
struct CostQuestion {
  OpKind collective = OpKind::kAllReduce;
  int ranks = 1;
  int nodes = 1;  // with consecutive ranks on each; costs are exact when all are alike
  // Of the tensor for all_reduce, broadcast, reduce and exclusive_scan; of all ranks' rows together
  // for the others.
  std::int64_t bytes = 0;
  std::int64_t elem_bytes = 4;
  LinkModel links = {};
  // What the executor cuts the cells of divisible schedules into, at most: the reduction of one cut
  // then hides behind the transfer of others. 0: cells stay whole, or in the cuts that are best.
  std::int64_t segment_bytes = 0;
  std::vector<int> levels = {};  // of blueconnect, from the innermost on; none: {ranks of a node,
                                 // nodes}, the prime factors of `ranks` where that says nothing
};

// Elements of the tensor, or of one rank's row: what make_schedule() wants. A row has at least one
// element if there are any bytes.
std::int64_t elems_of(const CostQuestion& question);

// Counted along the path that decides.
struct CostTerms {
  std::int64_t alphas = 0;  // messages between nodes, one after another
  std::int64_t beta_bytes = 0;
  std::int64_t alphas_intra = 0;  // messages inside a node
  std::int64_t beta_intra_bytes = 0;
  std::int64_t gamma_bytes = 0;
  std::int64_t gaps = 0;  // messages that have others leave their port before them, between nodes
  std::int64_t gaps_intra = 0;
  CostTerms& operator+=(const CostTerms& other);
  friend bool operator==(const CostTerms&, const CostTerms&) = default;
};

ExactTime time_of(const CostTerms& terms, const LinkModel& links);

struct Cost {
  CostTerms terms = {};
  int rounds = 0;                   // of the rank that has most
  std::int64_t wire_bytes_max = 0;  // sent by the rank that sends most
  bool exact = false;               // equals simulate()'s time
  // Bytes of a cell's cuts, all in flight together: a pipeline along a tree or a chain lives of
  // them. 0: cells stay whole.
  std::int64_t segment_bytes = 0;
  std::int64_t cell_bytes = 0;  // of the cells that are reduced, if they may be cut
};

// nullopt for an algorithm without a closed form; `auto` never takes one of those.
std::optional<Cost> cost_of(const CostQuestion& question, std::string_view algorithm);

// No algorithm is faster than the largest of: telling all ranks one thing, ceil(log2 p) * alpha if
// gap is 1 (Karp, Sahay, Santos, Schauser, SPAA 1993); what one port must carry; what the ports of
// a node must carry together to other nodes.
ExactTime lower_bound(const CostQuestion& question);

// What "auto" stands for: of the algorithms that are expected to take the least time
// (cost_contention.h), or 1 % more, the first that algorithms_of() names; the first of all if none
// has a closed form. The same on all ranks that ask the same question.
// counted: among those that take unequal rows.
std::string_view choose_algorithm(const CostQuestion& question, bool counted = false);

// The sizes from which another algorithm is chosen, ascending: the first entry has from_bytes ==
// min_bytes. Found between sizes that differ by 2 and then by bisection.
struct Crossover {
  std::int64_t from_bytes = 0;
  std::string_view algorithm;
};
std::vector<Crossover> crossovers(CostQuestion question, std::int64_t min_bytes,
                                  std::int64_t max_bytes);

}  // namespace gradwire
