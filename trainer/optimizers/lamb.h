// Adam's direction, scaled per tensor so that a step is as long as the tensor times the rate.
//
//   u <- (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay x
//   x <- x - lr r u,    r = |x| / |u|, or 1 where either norm is 0
//
// Norms are of whole tensors, summed in double; a rank that holds a part adds up with the others,
// so its sums may round differently from those of the whole.
// Source: You et al., "Large batch optimization for deep learning", ICLR 2020, algorithm 2 with
// phi(z) = z.
#pragma once

#include <memory>

#include "trainer/optimizers/optimizer.h"

namespace gradwire {

Result<std::unique_ptr<Optimizer>> make_lamb(const OptimizerOptions& options, SliceTable slices,
                                             SumOverShards sum, const MemoryArena& arena);

}  // namespace gradwire
