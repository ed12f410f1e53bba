// Error feedback whose residual rests in few bytes, as it is (ef14) or as a moving average (loco).
//
//   p = g + e                           what is compressed
//   own = scale * D(C(p))
//   e <- beta e + (1 - beta) (p - own)  stored as StoredResidual says
//   e <- 0                              before steps reset, 2 reset, ... (loco)
//
// beta = 0 without resets is ef14, and then nothing is lost but what storing rounds, which has mean
// zero and is not carried: after T steps sum_t mean_t + average of e differs from sum_t average of
// g_t by a sum of T draws, element by element of standard deviation at most sqrt(T) 2^-8 max |e|
// (bf16) or sqrt(T) max |e| / 254 (int8), over the square root of the number of ranks.
// With beta > 0 the average forgets: the share beta of what a step left over is never sent. That
// keeps one outlier from coming back at once, and is why the invariant does not hold.
//
// Steps are counted by begin()'s `step`, not by calls or tensors.
// Source: Xie, Lin, Toh, Zhou, "LoCo: Low-bit communication adaptor for large-scale model
// training", arXiv:2407.04480, 2024 (beta 0.8, int8, a reset now and then). Here rounding is
// stochastic, and a scale belongs to 256 elements.
#pragma once

#include <cstdint>
#include <memory>

#include "compress/error_feedback/feedback.h"
#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

struct LocoOptions {
  ResidualStorage storage = ResidualStorage::kInt8;
  double beta = 0.8;          // 0 <= beta < 1
  std::int64_t reset = 1024;  // 0: never
  double scale = 1;           // 0 < scale <= 1
};

// As make_ef14() (errors, lending, what is left untouched by a step that fails). Between steps it
// holds the stored residual alone; the tensors of computing live from begin() to finish().
// state(): StoredResidual's, then the inner coder's.
Result<std::unique_ptr<Coder>> make_loco(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const LocoOptions& options);

}  // namespace gradwire
