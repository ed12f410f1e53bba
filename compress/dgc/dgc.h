// dgc: Deep Gradient Compression, a sparse method with its own loop: momentum and what was not sent
// stay on each rank.
//
//   g <- g min(1, clip / sqrt(ranks) / |g|)       clip=0: as it is; |g| of this tensor on this rank
//   u <- m u + g;   v <- v + u                    nesterov: u <- m (u + g); v <- v + u + g
//   send the largest elements of v;  v <- v - what was sent;  u <- 0 there (masking)
//   mean = the average of what was sent
//
// u and v are 0 at first. Where the gradient was sent, what is left of v is what a second stage
// rounded away, else nothing. Sums of v's are sums of momenta, so the optimizer's own momentum must
// be 0. At ratio=1 the loop is SGD with momentum, or with masking SGD without. Masking forgets the
// momentum of what was sent late, which would point where the gradient pointed long ago.
//
//   payload := count:u32 pairs                    compress/sparse/pair_payloads.h; count <= k
//
// Selection: k = ceil(ratio m). A sample of `sample` of the elements (at least 1,024, one from each
// of as many equal stretches, from the Philox stream (seed, places, tensor, rank, step)) says from
// which magnitude on elements are among the largest `ratio` of it. If k or more elements reach it,
// the k largest of those travel, which are the k largest of all. If fewer than 0.8 k do, the
// magnitude is lowered to 0.8 of itself, up to ten times; in between, those that there are travel.
// sample=1, and tensors of fewer than 2,048 elements, choose the k largest exactly.
//
// Warm-up is a schedule of the ratio, over which u and v go on: ratio=exp(0.25..0.001@372/4).
//
// A step whose u or v would not be finite is refused and changes nothing, and so does one that ends
// before finish(). Memory: four tensors of the gradient's size. state(): "residual" (v) and
// "residual.momentum" (u); under another number of ranks each becomes its average, under another
// loss scale both are multiplied, and with ef_rescale_lr=true v follows the learning rate.
// Source: Lin et al., "Deep gradient compression", ICLR 2018, algorithms 1, 4 and section 3 (their
// published code for the sample and its bounds). Deviations: gradients are clipped by
// each tensor's norm, where theirs are by the norm of all tensors together; more than k candidates
// are cut to the largest, not to the first; the second stage's rest stays in v.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method dgc_method();

}  // namespace gradwire
