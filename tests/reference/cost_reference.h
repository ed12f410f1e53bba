// What algorithms cost in closed form, written from the papers and not from the schedules: integers
// of alphas, bytes and gaps, in the model of collectives/cost/simulate.h. Double trees, whose ports
// wait for each other, have none. Sources: Thakur, Rabenseifner, Gropp, IJHPCA 2005; Bruck, Ho,
// Kipnis, Upfal, Weathersby, IEEE TPDS 1997; van de Geijn, JPDC 1994; Chan, Heimlich, Purkayastha,
// van de Geijn, CCPE 2007; Patarasuk and Yuan, JPDC 2009; Cho et al., MLSys 2019.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/cost/model.h"

namespace gradwire::cost_reference {

// Counted along the path that decides.
struct CostTerms {
  std::int64_t alphas = 0;  // messages between nodes, one after another
  std::int64_t beta_bytes = 0;
  std::int64_t alphas_intra = 0;  // messages inside a node
  std::int64_t beta_intra_bytes = 0;
  std::int64_t gamma_bytes = 0;
  std::int64_t gaps = 0;  // messages that have others leave their port before them, between nodes
  std::int64_t gaps_intra = 0;
  CostTerms& operator+=(const CostTerms& other) {
    alphas += other.alphas;
    beta_bytes += other.beta_bytes;
    alphas_intra += other.alphas_intra;
    beta_intra_bytes += other.beta_intra_bytes;
    gamma_bytes += other.gamma_bytes;
    gaps += other.gaps;
    gaps_intra += other.gaps_intra;
    return *this;
  }
  friend CostTerms operator+(CostTerms a, const CostTerms& b) { return a += b; }
};

inline ExactTime time_of(const CostTerms& terms, const LinkModel& links) {
  return terms.alphas * ExactTime::from_seconds(links.alpha) +
         terms.beta_bytes * ExactTime::from_seconds(links.beta) +
         terms.alphas_intra * ExactTime::from_seconds(links.alpha_intra) +
         terms.beta_intra_bytes * ExactTime::from_seconds(links.beta_intra) +
         terms.gamma_bytes * ExactTime::from_seconds(links.gamma) +
         terms.gaps * ExactTime::from_seconds(links.gap * links.alpha) +
         terms.gaps_intra * ExactTime::from_seconds(links.gap * links.alpha_intra);
}

struct Form {
  CostTerms terms = {};
  int rounds = 0;                   // of the rank that has most
  std::int64_t wire_bytes_max = 0;  // sent by the rank that sends most
  bool exact = false;               // equals the simulation
};

inline int ceil_log2(std::int64_t x) {
  return x <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x - 1)));
}

inline std::vector<int> levels_of(const CostQuestion& question) {
  const bool alike = question.ranks % question.nodes == 0;
  if (alike && question.nodes > 1 && question.nodes < question.ranks) {
    return {question.ranks / question.nodes, question.nodes};
  }
  std::vector<int> factors;
  int left = question.ranks;
  for (int factor = 2; left > 1; ++factor) {
    for (; left % factor == 0; left /= factor) factors.push_back(factor);
  }
  return factors;
}

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
  std::vector<int> levels;  // of blueconnect

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

inline CostShape::CostShape(const CostQuestion& question)
    : links(question.links),
      p(question.ranks),
      nodes(std::clamp(question.nodes, 1, std::max(1, question.ranks))),
      per_node((p + nodes - 1) / nodes),
      elem(question.elem_bytes),
      n(elems_of(question)),
      m(n * elem),
      chunk((n + p - 1) / p * elem),
      log(ceil_log2(p)),
      power_of_two(std::has_single_bit(static_cast<std::uint64_t>(p))),
      divides(n % p == 0),
      alike(p % nodes == 0),
      levels(levels_of(question)) {}

inline bool CostShape::near(std::int64_t distance) const {
  return nodes == 1 || (nodes < p && 2 * distance <= per_node);
}

inline bool CostShape::aligned() const {
  return flat() || (alike && std::has_single_bit(static_cast<std::uint64_t>(per_node)));
}

inline CostTerms CostShape::intra(std::int64_t count, std::int64_t bytes) const {
  return {.alphas_intra = count, .beta_intra_bytes = count * bytes};
}

inline CostTerms CostShape::inter(std::int64_t count, std::int64_t bytes) const {
  return {.alphas = count, .beta_bytes = count * bytes};
}

inline CostTerms CostShape::hops(std::int64_t count, std::int64_t bytes) const {
  const CostTerms outer = inter(count, bytes);
  const CostTerms inner = intra(count, bytes);
  if (nodes == 1) return inner;
  if (per_node == 1) return outer;
  return time_of(inner, links) > time_of(outer, links) ? inner : outer;
}

inline CostTerms CostShape::apart(std::int64_t distance, std::int64_t count,
                                  std::int64_t bytes) const {
  return near(distance) ? intra(count, bytes) : inter(count, bytes);
}

inline CostTerms CostShape::following(std::int64_t count, std::int64_t bytes) const {
  CostTerms terms = hops(count, bytes);
  std::swap(terms.gaps, terms.alphas);
  std::swap(terms.gaps_intra, terms.alphas_intra);
  return terms;
}

inline CostTerms CostShape::line(std::int64_t bytes) const {
  return intra(p - nodes, bytes) + inter(nodes - 1, bytes);
}

// A port carries them one after another; the last one's start-up is all its own. With nodes, those
// inside are counted first.
inline CostTerms CostShape::burst(std::int64_t count, std::int64_t bytes) const {
  if (count == 0) return {};
  const std::int64_t inside = nodes == 1 ? count : std::min(count, per_node - 1);
  const bool inside_last = inside == count;
  CostTerms terms;
  terms.beta_intra_bytes = inside * bytes;
  terms.beta_bytes = (count - inside) * bytes;
  terms.gaps_intra = inside - (inside_last ? 1 : 0);
  terms.gaps = count - inside - (inside_last ? 0 : 1);
  (inside_last ? terms.alphas_intra : terms.alphas) = 1;
  return terms;
}

constexpr CostTerms gamma_of(std::int64_t bytes) { return {.gamma_bytes = bytes}; }
constexpr int round_count(std::int64_t rounds) { return static_cast<int>(rounds); }

// Groups are halved, the larger half first. The odd one out of it talks to the first of the smaller
// half, who then has two to listen to; the path that decides is taken to go through them.
inline CostTerms halving_terms(const CostShape& s, std::int64_t chunk) {
  CostTerms terms;
  for (std::int64_t group = s.p; group > 1; group = (group + 1) / 2) {
    const std::int64_t larger = (group + 1) / 2;
    const std::int64_t smaller = group / 2;
    const bool two = larger != smaller && smaller > 0;
    terms += s.apart(larger, 1, (two ? 2 * smaller : larger) * chunk);
    if (two)
      terms += CostTerms{.gaps = s.near(larger) ? 0 : 1, .gaps_intra = s.near(larger) ? 1 : 0};
    terms += gamma_of(larger * chunk);
  }
  return terms;
}

inline CostTerms doubling_terms(const CostShape& s, std::int64_t chunk) {
  CostTerms terms = halving_terms(s, chunk);
  terms.gamma_bytes = 0;
  return terms;
}

inline CostTerms interval_tree_terms(const CostShape& s, std::int64_t chunk) {
  CostTerms terms;
  for (std::int64_t group = s.p; group > 1; group = (group + 1) / 2) {
    terms += s.apart((group + 1) / 2, 1, group / 2 * chunk);
  }
  return terms;
}

struct Knomial {
  CostTerms broadcast;
  CostTerms reduce;
  std::int64_t children = 0;  // of the root
  int levels = 0;
};

// Along the root: all children of a level at once, level by level.
inline Knomial knomial_terms(const CostShape& s, int radix, std::int64_t bytes) {
  Knomial tree;
  for (std::int64_t digit = 1; digit < s.p; digit *= radix) {
    const std::int64_t count = std::min<std::int64_t>(radix - 1, (s.p - 1) / digit);
    CostShape level = s;  // whose ports carry a burst over one kind of link
    const bool inside = s.nodes == 1 || radix * digit <= s.per_node;
    (inside ? level.nodes : level.per_node) = 1;
    tree.broadcast += level.burst(count, bytes);
    tree.reduce += level.burst(count, bytes) + gamma_of(count * bytes);
    tree.children += count;
    ++tree.levels;
  }
  return tree;
}

// p - 1 links one behind the other, k cuts: the first reaches the end, the others follow at the
// pace of one link.
inline Form chain(const CostShape& s, std::int64_t cuts) {
  const std::int64_t bytes = (s.n + cuts - 1) / cuts * s.elem;
  return {.terms = s.line(bytes) + s.following(cuts - 1, bytes),
          .rounds = s.p > 2 ? 2 : 1,
          .wire_bytes_max = s.m,
          .exact = s.flat() && s.n % cuts == 0};
}

inline std::int64_t rows_with_bit(std::int64_t bit, std::int64_t p) {
  return p / (2 * bit) * bit + std::max<std::int64_t>(0, p % (2 * bit) - bit);
}

inline std::optional<Form> broadcast_cost(const CostShape& s, std::string_view algorithm,
                                          std::int64_t cuts) {
  if (algorithm == "binomial" || algorithm == "knomial") {
    const Knomial tree = knomial_terms(s, algorithm == "binomial" ? 2 : 4, s.m);
    return Form{.terms = tree.broadcast,
                .rounds = tree.levels,
                .wire_bytes_max = tree.children * s.m,
                .exact = s.flat()};
  }
  if (algorithm == "chain") return chain(s, cuts);
  if (algorithm == "scatter_all_gather") {
    return Form{.terms = interval_tree_terms(s, s.chunk) + doubling_terms(s, s.chunk),
                .rounds = 2 * s.log,
                .wire_bytes_max = 2 * (s.p - 1) * s.chunk,
                .exact = s.power_of_two && s.divides && s.aligned()};
  }
  return std::nullopt;
}

inline std::optional<Form> all_gather_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  Form cost{.rounds = s.log, .wire_bytes_max = others * s.m};
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

inline std::optional<Form> all_to_all_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  Form cost{.wire_bytes_max = others * s.m, .exact = s.flat()};
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

inline std::optional<Form> gather_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "binomial") {
    return Form{.terms = interval_tree_terms(s, s.m),
                .rounds = s.log,
                .wire_bytes_max = s.p / 2 * s.m,
                .exact = s.flat()};
  }
  if (algorithm == "linear") {
    return Form{
        .terms = s.burst(s.p - 1, s.m), .rounds = 1, .wire_bytes_max = s.m, .exact = s.flat()};
  }
  return std::nullopt;
}

inline std::optional<Form> scatter_cost(const CostShape& s, std::string_view algorithm) {
  auto cost = gather_cost(s, algorithm);
  if (cost) cost->wire_bytes_max = (s.p - 1) * s.m;
  return cost;
}

inline std::optional<Form> send_recv_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm != "direct") return std::nullopt;
  return Form{.terms = s.hops(1, s.m), .rounds = 1, .wire_bytes_max = s.m, .exact = true};
}

inline std::optional<Form> barrier_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "dissemination") {
    return Form{.terms = s.hops(s.log, 0), .rounds = s.log, .exact = s.flat()};
  }
  if (algorithm == "tree") {
    const Knomial tree = knomial_terms(s, 2, 0);
    return Form{
        .terms = tree.reduce + tree.broadcast, .rounds = 2 * tree.levels, .exact = s.flat()};
  }
  return std::nullopt;
}

// All chunks but two neighbouring ones twice, those once.
inline std::int64_t ring_wire(const CostShape& s) {
  const std::int64_t base = s.n / s.p;
  const std::int64_t smaller = s.p - s.n % s.p;
  return s.elem * (2 * s.n - 2 * base - (smaller >= 2 ? 0 : 1));
}

inline Form ring(const CostShape& s) {
  return {.terms = s.hops(2 * (s.p - 1), s.chunk) + gamma_of((s.p - 1) * s.chunk),
          .rounds = round_count(2 * (s.p - 1)),
          .wire_bytes_max = ring_wire(s),
          .exact = s.alike};
}

// Two bursts of a chunk to everybody.
inline Form canonical(const CostShape& s) {
  const CostTerms round = s.burst(s.p - 1, s.chunk);
  const std::int64_t own = s.n / s.p;  // the owner of a small chunk sends most of the large ones
  const std::int64_t small_owner = (s.n - own) + (s.p - 1) * own;
  const std::int64_t large_owner = (s.n - own - 1) + (s.p - 1) * (own + 1);
  return {.terms = round + round + gamma_of((s.p - 1) * s.chunk),
          .rounds = 2,
          .wire_bytes_max = s.elem * (s.divides ? small_owner : std::max(small_owner, large_owner)),
          .exact = s.divides && s.flat()};
}

inline Form direct(const CostShape& s) {
  return {.terms = s.burst(s.p - 1, s.m) + gamma_of((s.p - 1) * s.m),
          .rounds = 1,
          .wire_bytes_max = (s.p - 1) * s.m,
          .exact = s.flat()};
}

inline Form parameter_server(const CostShape& s) {
  const CostTerms round = s.burst(s.p - 1, s.m);
  return {.terms = round + round + gamma_of((s.p - 1) * s.m),
          .rounds = 2,
          .wire_bytes_max = (s.p - 1) * s.m,
          .exact = s.flat()};
}

// Ranks beyond a power of two hand over before and are told after.
inline Form recursive_doubling(const CostShape& s) {
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
          .exact = s.flat() || (!folded && s.aligned())};
}

inline Form halving_doubling(const CostShape& s) {
  return {.terms = halving_terms(s, s.chunk) + doubling_terms(s, s.chunk),
          .rounds = 2 * s.log,
          .wire_bytes_max = 2 * (s.p - 1) * s.chunk,
          .exact = s.power_of_two && s.divides && s.aligned()};
}

inline Form tree(const CostShape& s, int radix) {
  const Knomial tree = knomial_terms(s, radix, s.m);
  return {.terms = tree.reduce + tree.broadcast,
          .rounds = 2 * tree.levels,
          .wire_bytes_max = tree.children * s.m,
          .exact = s.flat()};
}

inline Form two_level(const CostShape& s) {
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

inline Form blueconnect(const CostShape& s) {
  Form cost{.exact = s.divides && (s.flat() || s.alike)};
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

inline std::optional<Form> all_reduce_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "ring") return ring(s);
  if (algorithm == "canonical") return canonical(s);
  if (algorithm == "direct") return direct(s);
  if (algorithm == "recursive_doubling") return recursive_doubling(s);
  if (algorithm == "halving_doubling") return halving_doubling(s);
  if (algorithm == "tree") return tree(s, 2);
  if (algorithm == "knomial") return tree(s, 4);
  if (algorithm == "parameter_server") return parameter_server(s);
  if (algorithm == "two_level") return two_level(s);
  if (algorithm == "blueconnect") return blueconnect(s);
  return std::nullopt;
}

inline std::optional<Form> reduce_scatter_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  const CostTerms added = gamma_of(others * s.m);
  if (algorithm == "ring" || algorithm == "pairwise") {
    return Form{.terms = s.hops(others, s.m) + added,
                .rounds = round_count(others),
                .wire_bytes_max = others * s.m,
                .exact = s.flat() || (algorithm == "ring" && s.alike)};
  }
  if (algorithm == "canonical") {
    return Form{.terms = s.burst(others, s.m) + added,
                .rounds = 1,
                .wire_bytes_max = others * s.m,
                .exact = s.flat()};
  }
  if (algorithm == "recursive_halving") {
    return Form{.terms = halving_terms(s, s.m),
                .rounds = s.log,
                .wire_bytes_max = others * s.m,
                .exact = s.power_of_two && s.aligned()};
  }
  return std::nullopt;
}

inline std::optional<Form> reduce_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "binomial" || algorithm == "knomial") {
    const Knomial tree = knomial_terms(s, algorithm == "binomial" ? 2 : 4, s.m);
    return Form{
        .terms = tree.reduce, .rounds = tree.levels, .wire_bytes_max = s.m, .exact = s.flat()};
  }
  if (algorithm == "scatter_gather") {
    return Form{.terms = halving_terms(s, s.chunk) + interval_tree_terms(s, s.chunk),
                .rounds = 2 * s.log,
                .wire_bytes_max = (s.p - 1 + s.p / 2) * s.chunk,
                .exact = s.power_of_two && s.divides && s.aligned()};
  }
  if (algorithm == "canonical") {
    const CostTerms round = s.burst(s.p - 1, s.chunk);
    return Form{.terms = round + round + gamma_of((s.p - 1) * s.chunk),
                .rounds = 2,
                .wire_bytes_max = s.p * s.chunk,
                .exact = s.divides && s.flat()};
  }
  return std::nullopt;
}

inline std::optional<Form> exclusive_scan_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "linear") {
    return Form{.terms = s.line(s.m) + gamma_of((s.p - 2) * s.m),
                .rounds = s.p > 2 ? 2 : 1,
                .wire_bytes_max = s.m,
                .exact = s.alike};
  }
  if (algorithm == "recursive_doubling") {
    const int rounds = ceil_log2(s.p - 1);
    return Form{.terms = s.hops(1 + rounds, s.m) + gamma_of(rounds * s.m),
                .rounds = 1 + rounds,
                .wire_bytes_max = (1 + rounds) * s.m,
                .exact = s.flat()};
  }
  return std::nullopt;
}

// nullopt for an algorithm without a form. cuts: of a chain.
inline std::optional<Form> form_of(const CostQuestion& question, std::string_view algorithm,
                                   std::int64_t cuts) {
  if (question.ranks == 1) return Form{.exact = true};
  const CostShape shape(question);
  switch (question.collective) {
    case OpKind::kAllReduce: return all_reduce_cost(shape, algorithm);
    case OpKind::kReduceScatter: return reduce_scatter_cost(shape, algorithm);
    case OpKind::kAllGather: return all_gather_cost(shape, algorithm);
    case OpKind::kAllToAll: return all_to_all_cost(shape, algorithm);
    case OpKind::kBroadcast: return broadcast_cost(shape, algorithm, cuts);
    case OpKind::kBarrier: return barrier_cost(shape, algorithm);
    case OpKind::kReduce: return reduce_cost(shape, algorithm);
    case OpKind::kGather: return gather_cost(shape, algorithm);
    case OpKind::kScatter: return scatter_cost(shape, algorithm);
    case OpKind::kExclusiveScan: return exclusive_scan_cost(shape, algorithm);
    case OpKind::kSend: return send_recv_cost(shape, algorithm);
    default: return std::nullopt;  // has no schedules of its own (op_traits.h)
  }
}

}  // namespace gradwire::cost_reference
