// Stochastic gradient descent with heavy-ball or Nesterov momentum.
//
//   g <- g + weight_decay x    where it decays
//   m <- momentum m + g
//   x <- x - lr m              heavy ball (sgd)
//   x <- x - lr (g + momentum m)    nesterov
//
// Source: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in
// deep learning", ICML 2013, equations 1 to 4, in the form that keeps the gradient at x.
#pragma once

#include <memory>

#include "trainer/optimizers/optimizer.h"

namespace gradwire {

Result<std::unique_ptr<Optimizer>> make_sgd(const OptimizerOptions& options, SliceTable slices,
                                            const MemoryArena& arena);
Result<std::unique_ptr<Optimizer>> make_nesterov(const OptimizerOptions& options, SliceTable slices,
                                                 const MemoryArena& arena);

}  // namespace gradwire
