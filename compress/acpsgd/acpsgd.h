// acpsgd: powersgd with one of its two factors a step, in turn, so that a step has one exchange.
//
//   acpsgd                     rank=4
//   acpsgd:rank=2              or acpsgd:2
//   acpsgd:rank=4,min_rate=2   only matrices of which a step sends less than half
//
// A tensor of two or more dimensions is the matrix M of (a, c) = (shape[0], the rest); r =
// min(rank, a, c). On rank i of n, with Q^ and P^ orthonormal columns of Q and P:
//
//   even steps   P_i = M_i Q^     summed over ranks   P <- sum / n   mean = P Q^^T, own = P_i Q^^T
//   odd steps    Q_i = M_i^T P^   summed over ranks   Q <- sum / n   mean = P^ Q^T, own = P^ Q_i^T
//
// The first P and Q are N(0, 1), drawn alike by all ranks from (seed, tensor). 1-d tensors travel
// dense, and so do matrices with a c <= min_rate r (a + c) / 2: by default those that would not
// shrink.
//
// Payload, little-endian, w = 4 (f32) or 8 (f64) bytes a value: w r a bytes at even steps, w r c at
// odd ones; half of powersgd's on average:
//
//   even := value{a}{r}        column 0 of P_i, then column 1, ...; dense: the elements
//   odd  := value{c}{r}        column 0 of Q_i, then column 1, ...; dense: the elements
//
// own is the orthogonal projection of M_i on the rows' or columns' space that the last step found:
// |M_i - own| <= |M_i|, the claim (a contraction with value 0). What error feedback keeps is M_i
// less its own projection, known before the exchange. Columns without a part of their own become
// random directions, as powersgd's. At rank min(a, c) every other step gives the exact mean, and
// both do for square matrices (which travel dense unless min_rate=0).
//
// Non-finite elements: they reach the sum, and every rank's absorb(), on a device finish(), refuses
// a sum that is not finite (kCorruptPayload, dense ones too); P and Q stay as they were. State:
// "p", (r, a), row k is column k of P, and "q", (r, c) likewise. Source: Zhang, Zhang, Shi, Chu,
// Li, "Evaluation and optimization of gradient compression for distributed deep learning", ICDCS
// 2023, algorithm 2.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method acpsgd_method();

}  // namespace gradwire
