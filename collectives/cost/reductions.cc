// Closed forms of what adds: all-reduce, reduce-scatter, reduce, exclusive scan. Sources: Thakur,
// Rabenseifner, Gropp, IJHPCA 2005; Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007; Patarasuk
// and Yuan, JPDC 2009; Sanders, Speck, Traeff, Parallel Comput. 2009; Cho et al., MLSys 2019.
#include <algorithm>
#include <bit>

#include "collectives/cost/forms.h"

namespace gradwire {
namespace {

// All chunks but two neighbouring ones twice, those once.
std::int64_t ring_wire(const CostShape& s) {
  const std::int64_t base = s.n / s.p;
  const std::int64_t smaller = s.p - s.n % s.p;
  return s.elem * (2 * s.n - 2 * base - (smaller >= 2 ? 0 : 1));
}

Cost ring(const CostShape& s) {
  return {.terms = s.hops(2 * (s.p - 1), s.chunk) + gamma_of((s.p - 1) * s.chunk),
          .rounds = round_count(2 * (s.p - 1)),
          .wire_bytes_max = ring_wire(s),
          .exact = s.alike,
          .cell_bytes = s.chunk};
}

// What two bursts to everybody lose where chunks are unequal: messages that differ by one element
// fall out of step, and ports then wait for each other. Simulated, 8 to 24 % of the bytes, mostly
// some 12 (7 to 200 ranks).
CostTerms out_of_step(const CostShape& s) {
  if (s.divides) return {};
  CostTerms lost = s.burst(s.p - 1, s.chunk);
  lost = {.beta_bytes = lost.beta_bytes, .beta_intra_bytes = lost.beta_intra_bytes};
  lost.beta_bytes /= 4;  // of one round: an eighth of both
  lost.beta_intra_bytes /= 4;
  return lost;
}

// Two bursts of a chunk to everybody.
Cost canonical(const CostShape& s) {
  const CostTerms round = s.burst(s.p - 1, s.chunk);
  const std::int64_t own = s.n / s.p;  // the owner of a small chunk sends most of the large ones
  const std::int64_t small_owner = (s.n - own) + (s.p - 1) * own;
  const std::int64_t large_owner = (s.n - own - 1) + (s.p - 1) * (own + 1);
  return {.terms = round + round + out_of_step(s) + gamma_of((s.p - 1) * s.chunk),
          .rounds = 2,
          .wire_bytes_max = s.elem * (s.divides ? small_owner : std::max(small_owner, large_owner)),
          .exact = s.divides && s.flat(),
          .cell_bytes = s.chunk};
}

Cost direct(const CostShape& s) {
  return {.terms = s.burst(s.p - 1, s.m) + gamma_of((s.p - 1) * s.m),
          .rounds = 1,
          .wire_bytes_max = (s.p - 1) * s.m,
          .exact = s.flat(),
          .cell_bytes = s.m};
}

Cost parameter_server(const CostShape& s) {
  const CostTerms round = s.burst(s.p - 1, s.m);
  return {.terms = round + round + gamma_of((s.p - 1) * s.m),
          .rounds = 2,
          .wire_bytes_max = (s.p - 1) * s.m,
          .exact = s.flat(),
          .cell_bytes = s.m};
}

// Ranks beyond a power of two hand over before and are told after.
Cost recursive_doubling(const CostShape& s) {
  const auto most = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(s.p)));
  const bool folded = s.p > most;
  CostTerms terms;
  for (std::int64_t distance = 1; distance < most; distance *= 2) {
    terms += s.apart(distance, 1, s.m) + gamma_of(s.m);
  }
  if (folded) terms += s.apart(1, 2, s.m) + gamma_of(s.m);
  const int rounds = ceil_log2(most);
  return {.terms = terms,
          .rounds = rounds + (folded ? 2 : 0),
          .wire_bytes_max = (rounds + (folded ? 1 : 0)) * s.m,
          .exact = s.flat() || (!folded && s.aligned()),
          .cell_bytes = s.m};
}

Cost halving_doubling(const CostShape& s) {
  return {.terms = halving_terms(s, s.chunk) + doubling_terms(s, s.chunk),
          .rounds = 2 * s.log,
          .wire_bytes_max = 2 * (s.p - 1) * s.chunk,
          .exact = s.power_of_two && s.divides && s.aligned()};
}

Cost tree(const CostShape& s, int radix) {
  const Knomial tree = knomial_terms(s, radix, s.m);
  return {.terms = tree.reduce + tree.broadcast,
          .rounds = 2 * tree.levels,
          .wire_bytes_max = tree.children * s.m,
          .exact = s.flat(),
          .cell_bytes = s.m};
}

// Both halves in cuts, up and down. The first cut goes through all levels, two children each but
// for the top's one (two where p is odd); each further one keeps every port for four messages, half
// as long again because ports wait for one another. Not exact.
Cost double_tree(const CostShape& s) {
  const std::int64_t half = (s.n + 1) / 2;
  const std::int64_t height = ceil_log2(s.p - s.p % 2);
  const auto terms_of = [&](std::int64_t cuts) {
    const std::int64_t bytes = (half + cuts - 1) / cuts * s.elem;
    const CostTerms levels = tree_levels(s, bytes);
    return levels + levels + s.hops(2, s.p % 2 == 0 ? bytes : 2 * bytes) +
           tree_follow(s, 6 * (cuts - 1), bytes) + gamma_of((2 * height - 1) * bytes);
  };
  const std::int64_t cuts = best_cuts(s, half, terms_of);
  return {.terms = terms_of(cuts),
          .rounds = 4,
          .wire_bytes_max = 2 * s.m,
          .segment_bytes = cuts == 1 ? 0 : (half + cuts - 1) / cuts * s.elem};
}

Cost two_level(const CostShape& s) {
  const std::int64_t local = s.alike ? s.per_node : s.p / s.nodes;
  const std::int64_t part = (s.n + local - 1) / local;
  const std::int64_t chunk = (part + s.nodes - 1) / s.nodes * s.elem;
  CostShape inside = s;
  inside.nodes = 1;
  const CostTerms burst = inside.burst(local - 1, part * s.elem);
  const std::int64_t others = s.nodes - 1;
  return {.terms = burst + burst + s.inter(2 * others, chunk) +
                   gamma_of((local - 1) * part * s.elem + others * chunk),
          .rounds = round_count(2 * others + (local > 1 ? 2 : 0)),
          .wire_bytes_max = 2 * ((local - 1) * part * s.elem + others * chunk),
          .exact = s.alike && s.n % s.p == 0};
}

Cost blueconnect(const CostShape& s) {
  Cost cost{.exact = s.divides && (s.flat() || s.alike)};
  std::int64_t inside = 1;  // ranks of the levels so far
  for (const int length : s.levels) {
    const std::int64_t before = inside;
    inside *= length;
    const std::int64_t chunk = (s.n + inside - 1) / inside * s.elem;
    const std::int64_t others = length - 1;
    const bool within = s.nodes == 1 || (s.per_node > 1 && s.per_node % inside == 0);
    if (!within && s.per_node > 1 && before % s.per_node != 0) cost.exact = false;
    cost.terms += within ? s.intra(2 * others, chunk) : s.inter(2 * others, chunk);
    cost.terms += gamma_of(others * chunk);
    cost.rounds += round_count(2 * others);
    cost.wire_bytes_max += 2 * others * chunk;
  }
  return cost;
}

}  // namespace

std::optional<Cost> all_reduce_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "ring") return ring(s);
  if (algorithm == "canonical") return canonical(s);
  if (algorithm == "direct") return direct(s);
  if (algorithm == "recursive_doubling") return recursive_doubling(s);
  if (algorithm == "halving_doubling") return halving_doubling(s);
  if (algorithm == "double_tree") return double_tree(s);
  if (algorithm == "tree") return tree(s, 2);
  if (algorithm == "knomial") return tree(s, 4);
  if (algorithm == "parameter_server") return parameter_server(s);
  if (algorithm == "two_level") return two_level(s);
  if (algorithm == "blueconnect") return blueconnect(s);
  return std::nullopt;
}

std::optional<Cost> reduce_scatter_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  const CostTerms added = gamma_of(others * s.m);
  if (algorithm == "ring" || algorithm == "pairwise") {
    return Cost{.terms = s.hops(others, s.m) + added,
                .rounds = round_count(others),
                .wire_bytes_max = others * s.m,
                .exact = s.flat() || (algorithm == "ring" && s.alike),
                .cell_bytes = s.m};
  }
  if (algorithm == "canonical") {
    return Cost{.terms = s.burst(others, s.m) + added,
                .rounds = 1,
                .wire_bytes_max = others * s.m,
                .exact = s.flat(),
                .cell_bytes = s.m};
  }
  if (algorithm == "recursive_halving") {
    return Cost{.terms = halving_terms(s, s.m),
                .rounds = s.log,
                .wire_bytes_max = others * s.m,
                .exact = s.power_of_two && s.aligned()};
  }
  return std::nullopt;
}

std::optional<Cost> reduce_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "binomial" || algorithm == "knomial") {
    const Knomial tree = knomial_terms(s, algorithm == "binomial" ? 2 : 4, s.m);
    return Cost{
        .terms = tree.reduce, .rounds = tree.levels, .wire_bytes_max = s.m, .exact = s.flat()};
  }
  if (algorithm == "double_tree") {
    Cost cost = double_tree_one_way(s);
    const std::int64_t cut = cost.segment_bytes > 0 ? cost.segment_bytes : (s.n + 1) / 2 * s.elem;
    cost.terms += gamma_of((2 * s.log - 1) * cut);
    return cost;
  }
  if (algorithm == "scatter_gather") {
    return Cost{.terms = halving_terms(s, s.chunk) + interval_tree_terms(s, s.chunk),
                .rounds = 2 * s.log,
                .wire_bytes_max = (s.p - 1 + s.p / 2) * s.chunk,
                .exact = s.power_of_two && s.divides && s.aligned()};
  }
  if (algorithm == "canonical") {
    const CostTerms round = s.burst(s.p - 1, s.chunk);
    return Cost{.terms = round + round + gamma_of((s.p - 1) * s.chunk),
                .rounds = 2,
                .wire_bytes_max = s.p * s.chunk,
                .exact = s.divides && s.flat()};
  }
  return std::nullopt;
}

std::optional<Cost> exclusive_scan_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "linear") {
    return Cost{.terms = s.line(s.m) + gamma_of((s.p - 2) * s.m),
                .rounds = s.p > 2 ? 2 : 1,
                .wire_bytes_max = s.m,
                .exact = s.alike};
  }
  if (algorithm == "recursive_doubling") {
    const int rounds = ceil_log2(s.p - 1);
    return Cost{.terms = s.hops(1 + rounds, s.m) + gamma_of(rounds * s.m),
                .rounds = 1 + rounds,
                .wire_bytes_max = (1 + rounds) * s.m,
                .exact = s.flat()};
  }
  return std::nullopt;
}

}  // namespace gradwire
