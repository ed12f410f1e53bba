// randomk: k elements at random places that all ranks draw alike, so that no index travels and the
// values add up in the network.
//
//   payload := element{k}       the elements at the drawn places, in order of place; summed
//            | what the second stage packs of them (slice {step, tensor, rank, stage 0, first 0});
//              gathered, since such codes do not add up
//
// Places are a uniform draw of k out of the m, without replacement, from the Philox stream (seed,
// places, tensor, all ranks, step): names that are permutations of one another, like any others,
// have streams of their own, and no generator outside is touched. With `unbiased=true` values are
// multiplied by m/k: E C(x) = x and E|x - C(x)|^2 = (m/k - 1)|x|^2, so that it needs no error
// feedback (which would divide by m/k again). Without, E|x - C(x)|^2 = (1 - k/m)|x|^2: a
// contraction, for use with error feedback.
//
// A gradient that is not finite is refused, wherever the element is: most of them are not sent, and
// would be forgotten. Tensors of more than 2^32 elements are refused.
// Source: Stich, Cordonnier, Jaggi, "Sparsified SGD with memory", NeurIPS 2018 (rand-k); Floyd in
// Bentley, "Programming pearls: a sample of brilliance", CACM 1987 (the draw).
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method randomk_method();

}  // namespace gradwire
