// How the ranks of Scope::kTensor share the tensors of a model, as one of them sees it.
#pragma once

#include <cstdint>

#include "base/mesh.h"
#include "gradwire/schedule.h"

namespace gradwire {

struct TensorShare {
  int ranks = 1;
  int rank = 0;
  // What stands between the shared layers (norms, dropout, sums) is divided by positions: each rank
  // has a part of every sequence.
  // Source: Korthikanti et al., "Reducing activation recomputation in large transformer models",
  // MLSys 2023, section 4.2.2.
  bool sequence = false;

  bool divides() const { return ranks > 1; }
  // This rank's of so many columns, heads or classes.
  Range part(std::int64_t count) const { return even_part(count, ranks, rank); }
  // Of the positions of a sequence, what stands between the shared layers here.
  Range stream(std::int64_t positions) const {
    return sequence ? part(positions) : Range{0, positions};
  }
};

}  // namespace gradwire
