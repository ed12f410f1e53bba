// Error feedback: what compression cut off in this step is added to the next step's gradient.
//
//   p = g + e                  what is compressed
//   own = scale * D(C(p))      what this rank contributed
//   mean = scale * mean D(C)   the average over ranks of own
//   e <- p - own               kept in gradient units; e = 0 at first
//
// Invariant after every step T: sum_t mean_t + average over ranks of e == sum_t average of g_t, to
// rounding: nothing is lost, only late.
// Source: Seide et al., Interspeech 2014 (the idea); Karimireddy et al., "Error feedback fixes
// SignSGD", ICML 2019, algorithm 1 (there e is in step units; the two agree for a constant step).
// Scaling: C unbiased with variance omega makes C/(1+omega) a contraction (Beznosikov et al.,
// "On biased compression for distributed learning", JMLR 2023, lemma on scaled unbiased operators).
#pragma once

#include <memory>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

// A decorator over any coder, of one round or two, summed or gathered; payloads are the inner
// coder's. `inner` must have been opened with the same shape and placement, and its method must
// have Traits::mean_is_average_of_own (error_feedback/legality.h decides which pairs are sound). 0
// < scale <= 1: 1/(1+omega) for unbiased methods with omega >= 1, else 1.
//
// begin(), or encode() where `inner` takes the residual into its own pass (Coder::takes_feedback):
// kInvalidArgument, naming the element, when gradient + residual is not finite: one NaN in e would
// stay for ever. finish(): the same when the new residual is not finite (the method's range
// overflowed). All leave e as it was, and so does a step that ends before finish(): the new
// residual is written elsewhere, and the two change places at the end.
// Memory, in tensors of the gradient's size: 2 where inner takes the residual, else 3.
// state(): "error" (the opened shape), then the inner coder's.
Result<std::unique_ptr<Coder>> make_ef14(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where, double scale = 1);

}  // namespace gradwire
