#include "collectives/cost/forms.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradwire {
namespace {

std::vector<int> levels_of(const CostQuestion& question) {
  if (!question.levels.empty()) return question.levels;
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

constexpr std::int64_t kMostCuts = 64;
constexpr std::int64_t kLeastCut = 4096;  // bytes

}  // namespace

int ceil_log2(std::int64_t x) {
  return x <= 1 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(x - 1)));
}

CostShape::CostShape(const CostQuestion& question)
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
      segment(question.segment_bytes),
      levels(levels_of(question)) {}

bool CostShape::near(std::int64_t distance) const {
  return nodes == 1 || (nodes < p && 2 * distance <= per_node);
}

bool CostShape::aligned() const {
  return flat() || (alike && std::has_single_bit(static_cast<std::uint64_t>(per_node)));
}

CostTerms CostShape::intra(std::int64_t count, std::int64_t bytes) const {
  return {.alphas_intra = count, .beta_intra_bytes = count * bytes};
}

CostTerms CostShape::inter(std::int64_t count, std::int64_t bytes) const {
  return {.alphas = count, .beta_bytes = count * bytes};
}

CostTerms CostShape::hops(std::int64_t count, std::int64_t bytes) const {
  const CostTerms outer = inter(count, bytes);
  const CostTerms inner = intra(count, bytes);
  if (nodes == 1) return inner;
  if (per_node == 1) return outer;
  return time_of(inner, links) > time_of(outer, links) ? inner : outer;
}

CostTerms CostShape::apart(std::int64_t distance, std::int64_t count, std::int64_t bytes) const {
  return near(distance) ? intra(count, bytes) : inter(count, bytes);
}

CostTerms CostShape::following(std::int64_t count, std::int64_t bytes) const {
  CostTerms terms = hops(count, bytes);
  std::swap(terms.gaps, terms.alphas);
  std::swap(terms.gaps_intra, terms.alphas_intra);
  return terms;
}

CostTerms CostShape::line(std::int64_t bytes) const {
  return intra(p - nodes, bytes) + inter(nodes - 1, bytes);
}

// A port carries them one after another; the last one's start-up is all its own. With nodes, those
// inside are counted first.
CostTerms CostShape::burst(std::int64_t count, std::int64_t bytes) const {
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

CostTerms operator+(CostTerms a, const CostTerms& b) { return a += b; }

// Groups are halved, the larger half first. The odd one out of it talks to the first of the smaller
// half, who then has two to listen to; the path that decides is taken to go through them.
CostTerms halving_terms(const CostShape& s, std::int64_t chunk) {
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

CostTerms doubling_terms(const CostShape& s, std::int64_t chunk) {
  CostTerms terms = halving_terms(s, chunk);
  terms.gamma_bytes = 0;
  return terms;
}

CostTerms interval_tree_terms(const CostShape& s, std::int64_t chunk) {
  CostTerms terms;
  for (std::int64_t group = s.p; group > 1; group = (group + 1) / 2) {
    terms += s.apart((group + 1) / 2, 1, group / 2 * chunk);
  }
  return terms;
}

// Along the root: all children of a level at once, level by level.
Knomial knomial_terms(const CostShape& s, int radix, std::int64_t bytes) {
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

std::int64_t best_cuts(const CostShape& s, std::int64_t elems,
                       const std::function<CostTerms(std::int64_t cuts)>& terms_of) {
  const std::int64_t bytes = elems * s.elem;
  const bool executed = s.segment > 0;
  std::int64_t best = executed ? std::max<std::int64_t>(1, (bytes + s.segment - 1) / s.segment) : 1;
  for (std::int64_t cuts = 2 * best; executed || cuts <= kMostCuts; cuts *= 2) {
    if (bytes / cuts < kLeastCut) break;
    if (time_of(terms_of(cuts), s.links) < time_of(terms_of(best), s.links)) best = cuts;
  }
  return best;
}

CostTerms tree_levels(const CostShape& s, std::int64_t bytes) {
  CostTerms terms;
  for (std::int64_t distance = 1; 2 * distance < s.p; distance *= 2) {
    const bool inside = s.near(distance);
    terms += s.apart(distance, 1, 2 * bytes);
    terms += {.gaps = inside ? 0 : 1, .gaps_intra = inside ? 1 : 0};
  }
  return terms;
}

CostTerms tree_follow(const CostShape& s, std::int64_t count, std::int64_t bytes) {
  if (s.flat()) return s.following(count, bytes);
  CostShape inside = s;
  inside.nodes = 1;
  CostShape outside = s;
  outside.per_node = 1;
  return outside.following(count / 3, bytes) + inside.following(count - count / 3, bytes);
}

// Two trees of all ranks but the root, which feeds the tops, or takes from them. As the
// all-reduce's in one direction: each further cut keeps every port for two messages, half as long
// again.
Cost double_tree_one_way(const CostShape& s) {
  const std::int64_t half = (s.n + 1) / 2;
  const auto terms_of = [&](std::int64_t cuts) {
    const std::int64_t bytes = (half + cuts - 1) / cuts * s.elem;
    return tree_levels(s, bytes) + s.hops(1, 2 * bytes) + s.following(1, 0) +
           tree_follow(s, 3 * (cuts - 1), bytes);
  };
  const std::int64_t cuts = best_cuts(s, half, terms_of);
  return {.terms = terms_of(cuts),
          .rounds = 2,
          .wire_bytes_max = s.m,
          .segment_bytes = cuts == 1 ? 0 : (half + cuts - 1) / cuts * s.elem};
}

}  // namespace gradwire
