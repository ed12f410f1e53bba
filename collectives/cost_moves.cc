// Closed forms of what only moves: broadcast, all-gather, all-to-all, barrier. Sources: Thakur,
// Rabenseifner, Gropp, IJHPCA 2005; Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 1997.
#include "collectives/cost_forms.h"

namespace gradwire {

std::optional<Cost> broadcast_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "binomial") {
    return Cost{.terms = s.doubling(s.m),
                .rounds = s.log,
                .wire_bytes_max = s.log * s.m,
                .exact = s.flat()};
  }
  return std::nullopt;
}

std::optional<Cost> all_gather_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  if (algorithm == "ring") {
    return Cost{.terms = s.hops(others, s.m),
                .rounds = static_cast<int>(others),
                .wire_bytes_max = others * s.m,
                .exact = s.alike};
  }
  return std::nullopt;
}

std::optional<Cost> all_to_all_cost(const CostShape& s, std::string_view algorithm) {
  const std::int64_t others = s.p - 1;
  if (algorithm == "pairwise") {
    return Cost{.terms = s.hops(others, s.m),
                .rounds = static_cast<int>(others),
                .wire_bytes_max = others * s.m,
                .exact = s.flat()};
  }
  return std::nullopt;
}

std::optional<Cost> barrier_cost(const CostShape& s, std::string_view algorithm) {
  if (algorithm == "dissemination") {
    return Cost{.terms = s.hops(s.log, 0), .rounds = s.log, .exact = s.flat()};
  }
  return std::nullopt;
}

}  // namespace gradwire
