// Closed forms of what adds: all-reduce, reduce-scatter, reduce. Sources: Thakur, Rabenseifner,
// Gropp, IJHPCA 2005; Chan, Heimlich, Purkayastha, van de Geijn, CCPE 2007; Patarasuk and Yuan,
// JPDC 2009.
#include <algorithm>

#include "collectives/cost_forms.h"

namespace gradwire {
namespace {

int twice_rounds(std::int64_t rounds) { return static_cast<int>(2 * rounds); }

// All chunks but two neighbouring ones twice, those once.
std::int64_t ring_wire(const CostShape& s) {
  const std::int64_t base = s.n / s.p;
  const std::int64_t smaller = s.p - s.n % s.p;
  return s.elem * (2 * s.n - 2 * base - (smaller >= 2 ? 0 : 1));
}

Cost ring(const CostShape& s) {
  return {.terms = s.hops(2 * (s.p - 1), s.chunk) + gamma_of((s.p - 1) * s.chunk),
          .rounds = twice_rounds(s.p - 1),
          .wire_bytes_max = ring_wire(s),
          .exact = s.alike && s.per_node != s.p - 1};
}

// Two bursts of a chunk to everybody.
Cost canonical(const CostShape& s) {
  const CostTerms round = s.burst(s.p - 1, s.chunk);
  const std::int64_t own = s.n / s.p;  // the owner of a small chunk sends most of the large ones
  return {.terms = round + round + gamma_of((s.p - 1) * s.chunk),
          .rounds = 2,
          .wire_bytes_max = s.divides ? 2 * (s.p - 1) * s.chunk
                                      : std::max((s.n - own) + (s.p - 1) * own,
                                                 (s.n - own - 1) + (s.p - 1) * (own + 1)) *
                                            s.elem,
          .exact = s.divides && s.flat()};
}

}  // namespace

std::optional<Cost> all_reduce_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "ring") return ring(s);
  if (algorithm == "canonical") return canonical(s);
  return std::nullopt;
}

std::optional<Cost> reduce_scatter_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  if (algorithm == "ring") {
    return Cost{.terms = s.hops(others, s.m) + gamma_of(others * s.m),
                .rounds = static_cast<int>(others),
                .wire_bytes_max = others * s.m,
                .exact = s.alike};
  }
  if (algorithm == "canonical") {
    return Cost{.terms = s.burst(others, s.m) + gamma_of(others * s.m),
                .rounds = 1,
                .wire_bytes_max = others * s.m,
                .exact = s.flat()};
  }
  return std::nullopt;
}

}  // namespace gradwire
