// What the closed forms of all algorithms are written with.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/cost/model.h"

namespace gradwire {

// A question in the letters of the formulas.
struct CostShape {
  explicit CostShape(const CostQuestion& question);

  LinkModel links;
  std::int64_t p = 1;         // ranks
  std::int64_t nodes = 1;     //
  std::int64_t per_node = 1;  // ranks of the largest node
  std::int64_t elem = 4;      // bytes of an element
  std::int64_t n = 0;         // elements of the tensor, or of a row
  std::int64_t m = 0;         // their bytes
  std::int64_t chunk = 0;     // bytes of the largest of p almost equal pieces of n
  int log = 0;                // ceil(log2 p)
  bool power_of_two = false;  // p
  bool divides = false;       // p divides n
  bool alike = false;         // nodes have the same number of ranks
  bool flat() const { return nodes == 1 || per_node == 1; }
  std::int64_t segment = 0;  // bytes of a cell's cuts in the executor, at most; 0: no limit
  std::vector<int> levels;   // of blueconnect

  // Whether ranks `distance` apart, in groups of twice as many, share a node.
  bool near(std::int64_t distance) const;
  // Whether groups of 2, 4, 8, ... ranks are whole or inside one node: `near` says all then.
  bool aligned() const;

  // `count` messages of `bytes` one after another...
  CostTerms intra(std::int64_t count, std::int64_t bytes) const;
  CostTerms inter(std::int64_t count, std::int64_t bytes) const;
  // ... between ranks `distance` apart in groups of twice as many,
  CostTerms apart(std::int64_t distance, std::int64_t count, std::int64_t bytes) const;
  // ... over whatever is slowest among the links that a turn of all ranks crosses.
  CostTerms hops(std::int64_t count, std::int64_t bytes) const;
  // What `count` messages add that leave the same port behind another one.
  CostTerms following(std::int64_t count, std::int64_t bytes) const;
  // One from each rank to the next, one behind the other.
  CostTerms line(std::int64_t bytes) const;
  // As many at once from one port, or to one.
  CostTerms burst(std::int64_t count, std::int64_t bytes) const;
};

constexpr CostTerms gamma_of(std::int64_t bytes) { return {.gamma_bytes = bytes}; }
CostTerms operator+(CostTerms a, const CostTerms& b);

int ceil_log2(std::int64_t x);
constexpr int round_count(std::int64_t rounds) { return static_cast<int>(rounds); }

// Costs that several algorithms are made of. `chunk` is the bytes of one rank's part.
CostTerms halving_terms(const CostShape& s, std::int64_t chunk);        // reduce-scatter
CostTerms doubling_terms(const CostShape& s, std::int64_t chunk);       // all-gather
CostTerms interval_tree_terms(const CostShape& s, std::int64_t chunk);  // gather or scatter
struct Knomial {
  CostTerms broadcast;
  CostTerms reduce;
  std::int64_t children = 0;  // of the root
  int levels = 0;
};
Knomial knomial_terms(const CostShape& s, int radix, std::int64_t bytes);
// Double trees: one cut through all levels but the top's, two children each...
CostTerms tree_levels(const CostShape& s, std::int64_t bytes);
// ... and what `count` messages add that keep every port, a third of them between nodes.
CostTerms tree_follow(const CostShape& s, std::int64_t count, std::int64_t bytes);
Cost double_tree_one_way(const CostShape& s);
// Cuts of a pipeline: of the powers of 2, times the fewest that the executor makes, the one that
// makes terms_of(cuts) fastest.
std::int64_t best_cuts(const CostShape& s, std::int64_t elems,
                       const std::function<CostTerms(std::int64_t cuts)>& terms_of);

// By collective; nullopt where the algorithm has no closed form.
std::optional<Cost> all_reduce_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> reduce_scatter_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> reduce_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> exclusive_scan_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> broadcast_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> all_gather_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> all_to_all_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> gather_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> scatter_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> send_recv_cost(const CostShape& s, std::string_view algorithm);
std::optional<Cost> barrier_cost(const CostShape& s, std::string_view algorithm);

}  // namespace gradwire
