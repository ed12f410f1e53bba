// powersgd: a matrix as the product of two thin ones, found by one power iteration per step.
//
//   powersgd                   rank=4
//   powersgd:rank=2            or powersgd:2
//   powersgd:rank=1,warm=false Q drawn anew at every step
//   powersgd:rank=4,min_rate=2 only matrices of which the factors are less than half
//
// A tensor of two or more dimensions is the matrix M of (a, c) = (shape[0], the rest); r =
// min(rank, a, c). On rank i of n:
//
//   round 0   P_i = M_i Q                     summed over ranks: P
//             P^  = orthonormal columns of P  (a sum serves as well as a mean)
//   round 1   Q_i = M_i^T P^                  summed over ranks; Q' = sum / n
//   result    mean = P^ Q'^T, own = P^ Q_i^T  and with warm=true Q <- Q' for the next step
//
// The first Q is N(0, 1), drawn alike by all ranks from (seed, tensor, step); step counts as 0 when
// warm. 1-d tensors travel dense in round 0, and nothing in round 1; so do matrices with a c <=
// min_rate r (a + c), by default those that would not shrink (min_rate=0: none).
//
// Payload, little-endian, w = 4 (f32) or 8 (f64) bytes a value; w r (a + c) bytes a step in all:
//
//   round 0 := value{a}{r}     column 0 of P_i, then column 1, ...; dense: the elements
//   round 1 := value{c}{r}     column 0 of Q_i, then column 1, ...; dense: nothing
//
// Columns are made orthonormal in double, each matrix by itself, by Cholesky-QR, or
// Gram-Schmidt run twice where they are close to dependent. A
// column without a part of its own (zero matrices, rank below r) is replaced by a random direction,
// drawn alike by all ranks: results stay finite, a zero matrix gives zeros, and a direction that
// has once vanished comes back as soon as gradients have it (Q = 0 would otherwise stay 0 for
// ever). So own is always the orthogonal projection of M_i on the columns of P^: |M_i - own| <=
// |M_i|, the claim (a contraction with value 0). Typical shares are far larger, but no positive one
// holds for every matrix after a warm start. Rank min(a, c) gives the exact mean from a full-rank
// Q.
//
// Non-finite elements: they reach the sums, and every rank's absorb() refuses a sum that is not
// finite (kCorruptPayload, dense ones too), on a device finish() that of Q; Q stays as it was.
// State (warm only): "q", (r, c), row k is column k of Q; it may be written between steps.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD", NeurIPS 2019, algorithm 1. Deviations: residuals
// under error feedback are of own, not of mean (both keep the sum of residuals), and the above.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method powersgd_method();

}  // namespace gradwire
