// Adam with weight decay that does not pass through its denominator.
//
//   m <- beta1 m + (1 - beta1) g          v <- beta2 v + (1 - beta2) g^2
//   x <- x - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) - lr weight_decay x
//
// t counts from 1. The corrections are computed in double and rounded to float once a step.
// Source: Kingma, Ba, "Adam", ICLR 2015, algorithm 1; Loshchilov, Hutter, "Decoupled weight decay
// regularization", ICLR 2019, algorithm 2.
#pragma once

#include <memory>
#include <span>

#include "trainer/optimizers/optimizer.h"

namespace gradwire {

Result<std::unique_ptr<Optimizer>> make_adamw(const OptimizerOptions& options, SliceTable slices,
                                              const MemoryArena& arena);

// The factors of one step, in float as the elements are.
struct AdamFactors {
  // For the step that makes steps() `done` + 1.
  AdamFactors(const OptimizerOptions& options, std::int64_t done);
  float beta1;
  float rest1;  // 1 - beta1
  float beta2;
  float rest2;
  float correct1;  // 1 / (1 - beta1^t)
  float correct2;
  float epsilon;
};

// m and v of one element take `g` in.
constexpr void adam_moments(const AdamFactors& f, float g, float& m, float& v) {
  m = f.beta1 * m + f.rest1 * g;
  v = f.beta2 * v + f.rest2 * (g * g);
}

}  // namespace gradwire
