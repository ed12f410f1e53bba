// atomo: a few of a matrix's singular vectors, drawn so that the average is the matrix.
//
//   atomo                      budget=3: so many vectors a step on average
//   atomo:budget=1.5           or atomo:1.5
//
// A tensor of two or more dimensions is the matrix M of (a, c) = (shape[0], the rest), M = sum_k
// l_k u_k v_k^T with l_1 >= l_2 >= ... >= 0. Atom k travels with probability p_k, weighing l_k /
// p_k. The p_k sum to the budget s and make the variance sum_k l_k^2 (1/p_k - 1) least:
//
//   p_k = 1 for the m largest, l_k (s - m) / sum_{j > m} l_j for the rest,
//
// with the smallest m that leaves no p_k above 1. If s atoms or fewer are not zero, all travel. An
// empty draw is sent as it is: drawing again would make the average too large. Rank r of n draws
// for itself. 1-d tensors travel dense.
//
// Payload, little-endian, w = 4 (f32) or 8 (f64) bytes a value:
//
//   payload := count:u32 atom{count}
//   atom    := weight:value u:value{a} v:value{c}      weight finite and >= 0, |u_i|, |v_j|
//   <= 1.001 1-d     := value{m}
//
// On average 4 + s w (a + c + 1) bytes; at most min(a, c) atoms. Uniform p_k = s / min(a, c) are
// among the choices, so that the variance is at most omega |M|^2 with omega = min(a, c) / s - 1.
//
// Non-finite elements: encode() refuses them by name. Weights beyond the type's range too.
// Source: Wang, Sievert, Liu, Charles, Papailiopoulos, Wright, "ATOMO", NeurIPS 2018, algorithm 1.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method atomo_method();

}  // namespace gradwire
