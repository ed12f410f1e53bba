// What the closed forms of all algorithms are written with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "collectives/cost_model.h"

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
  // Whether ranks `distance` apart, in groups that begin at its multiples, share a node.
  bool near(std::int64_t distance) const;

  // `count` messages of `bytes` one after another...
  CostTerms intra(std::int64_t count, std::int64_t bytes) const;
  CostTerms inter(std::int64_t count, std::int64_t bytes) const;
  // ... over whatever is slowest among the links that such a pattern crosses,
  CostTerms hops(std::int64_t count, std::int64_t bytes) const;
  // ... or one each to the ranks 1, 2, 4, ... places on,
  CostTerms doubling(std::int64_t bytes) const;
  // ... or all at once from one port to as many peers.
  CostTerms burst(std::int64_t count, std::int64_t bytes) const;
};

constexpr CostTerms gamma_of(std::int64_t bytes) { return {.gamma_bytes = bytes}; }
CostTerms operator+(CostTerms a, const CostTerms& b);

int ceil_log2(std::int64_t x);

// By collective; nullopt where the algorithm has no closed form.
std::optional<Cost> all_reduce_cost(const CostShape& shape, std::string_view algorithm);
std::optional<Cost> reduce_scatter_cost(const CostShape& shape, std::string_view algorithm);
std::optional<Cost> reduce_cost(const CostShape& shape, std::string_view algorithm);
std::optional<Cost> broadcast_cost(const CostShape& shape, std::string_view algorithm);
std::optional<Cost> all_gather_cost(const CostShape& shape, std::string_view algorithm);
std::optional<Cost> all_to_all_cost(const CostShape& shape, std::string_view algorithm);
std::optional<Cost> barrier_cost(const CostShape& shape, std::string_view algorithm);

}  // namespace gradwire
