#include "collectives/cost_forms.h"

#include <algorithm>
#include <bit>

namespace gradwire {

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
      alike(p % nodes == 0) {}

bool CostShape::near(std::int64_t distance) const {
  return nodes == 1 || (distance < per_node && per_node % (2 * distance) == 0);
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

CostTerms CostShape::doubling(std::int64_t bytes) const {
  CostTerms terms;
  for (std::int64_t distance = 1; distance < p; distance *= 2) {
    terms += near(distance) ? intra(1, bytes) : inter(1, bytes);
  }
  return terms;
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

}  // namespace gradwire
