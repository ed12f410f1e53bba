// Closed forms of what only moves: broadcast, all-gather, all-to-all, gather, scatter, barrier.
// Sources: Thakur, Rabenseifner, Gropp, IJHPCA 2005; Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE
// TPDS 1997; van de Geijn, JPDC 1994.
#include <algorithm>

#include "collectives/cost/forms.h"

namespace gradwire {
namespace {

// p - 1 links one behind the other, k cuts: the first reaches the end, the others follow at the
// pace of one link.
Cost chain(const CostShape& s) {
  const auto terms_of = [&](std::int64_t cuts) {
    const std::int64_t bytes = (s.n + cuts - 1) / cuts * s.elem;
    return s.line(bytes) + s.following(cuts - 1, bytes);
  };
  const std::int64_t cuts = s.p == 2 ? 1 : best_cuts(s, s.n, terms_of);
  return {.terms = terms_of(cuts),
          .rounds = s.p > 2 ? 2 : 1,
          .wire_bytes_max = s.m,
          .exact = s.flat() && s.n % cuts == 0,
          .segment_bytes = cuts == 1 ? 0 : (s.n + cuts - 1) / cuts * s.elem};
}

std::int64_t rows_with_bit(std::int64_t bit, std::int64_t p) {
  return p / (2 * bit) * bit + std::max<std::int64_t>(0, p % (2 * bit) - bit);
}

}  // namespace

std::optional<Cost> broadcast_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "binomial" || algorithm == "knomial") {
    const Knomial tree = knomial_terms(s, algorithm == "binomial" ? 2 : 4, s.m);
    return Cost{.terms = tree.broadcast,
                .rounds = tree.levels,
                .wire_bytes_max = tree.children * s.m,
                .exact = s.flat()};
  }
  if (algorithm == "double_tree") return double_tree_one_way(s);
  if (algorithm == "chain") return chain(s);
  if (algorithm == "scatter_all_gather") {
    return Cost{.terms = interval_tree_terms(s, s.chunk) + doubling_terms(s, s.chunk),
                .rounds = 2 * s.log,
                .wire_bytes_max = 2 * (s.p - 1) * s.chunk,
                .exact = s.power_of_two && s.divides && s.aligned()};
  }
  return std::nullopt;
}

std::optional<Cost> all_gather_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  Cost cost{.rounds = s.log, .wire_bytes_max = others * s.m};
  if (algorithm == "ring") {
    cost.terms = s.hops(others, s.m);
    cost.rounds = round_count(others);
    cost.exact = s.alike;
    return cost;
  }
  if (algorithm == "recursive_doubling") {
    cost.terms = doubling_terms(s, s.m);
    cost.exact = s.power_of_two && s.aligned();
    return cost;
  }
  if (algorithm == "bruck") {
    for (std::int64_t have = 1; have < s.p; have *= 2) {
      cost.terms += s.hops(1, std::min(have, s.p - have) * s.m);
    }
    cost.exact = s.flat();
    return cost;
  }
  if (algorithm == "direct") {
    cost.terms = s.burst(others, s.m);
    cost.rounds = 1;
    cost.exact = s.flat();
    return cost;
  }
  return std::nullopt;
}

std::optional<Cost> all_to_all_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  Cost cost{.wire_bytes_max = others * s.m, .exact = s.flat()};
  if (algorithm == "pairwise") {
    cost.terms = s.hops(others, s.m);
    cost.rounds = round_count(others);
    return cost;
  }
  if (algorithm == "direct") {
    cost.terms = s.burst(others, s.m);
    cost.rounds = 1;
    return cost;
  }
  if (algorithm == "bruck") {
    cost.wire_bytes_max = 0;
    for (std::int64_t bit = 1; bit < s.p; bit *= 2) {
      const std::int64_t bytes = rows_with_bit(bit, s.p) * s.m;
      cost.terms += s.hops(1, bytes);
      cost.wire_bytes_max += bytes;
      ++cost.rounds;
    }
    return cost;
  }
  return std::nullopt;
}

std::optional<Cost> gather_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "binomial") {
    return Cost{.terms = interval_tree_terms(s, s.m),
                .rounds = s.log,
                .wire_bytes_max = s.p / 2 * s.m,
                .exact = s.flat()};
  }
  if (algorithm == "linear") {
    return Cost{
        .terms = s.burst(s.p - 1, s.m), .rounds = 1, .wire_bytes_max = s.m, .exact = s.flat()};
  }
  return std::nullopt;
}

std::optional<Cost> scatter_cost(const CostShape& s, std::string_view algorithm) {
  auto cost = gather_cost(s, algorithm);
  if (cost) cost->wire_bytes_max = (s.p - 1) * s.m;
  return cost;
}

std::optional<Cost> send_recv_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm != "direct") return std::nullopt;
  return Cost{.terms = s.hops(1, s.m), .rounds = 1, .wire_bytes_max = s.m, .exact = true};
}

std::optional<Cost> barrier_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "dissemination") {
    return Cost{.terms = s.hops(s.log, 0), .rounds = s.log, .exact = s.flat()};
  }
  if (algorithm == "tree") {
    const Knomial tree = knomial_terms(s, 2, 0);
    return Cost{
        .terms = tree.reduce + tree.broadcast, .rounds = 2 * tree.levels, .exact = s.flat()};
  }
  return std::nullopt;
}

}  // namespace gradwire
