// fp8: each element as an 8-bit float (OCP e4m3 or e5m2) under a scale for every row or block.
//
//   fp8                         type=e4m3, scale=block, block=512
//   fp8:e5m2,scale=row          one scale for each row of a matrix (all that lies under one
//                               index of the first dimension); vectors, and rows of fewer than
//                               32 elements, have blocks
//
// Payload of a slice of m elements; groups start at the slice's start:
//
//   payload := group{m/g}
//   group   := scale code{n}     n: the group's elements, g but in the last
//   scale   := fp32, finite and >= 0, or the quiet NaN 0x7fc00000: the largest magnitude,
//              rounded up
//   code    := u8: the 8-bit float nearest to x F/scale, ties to even; F = 448 (e4m3) or
//              57344 (e5m2)
//
// A code c decodes to scale * (value(c) * (1/F)), in the element's type, so that the largest
// magnitude of a group is exact; sums are made in the element's type. A group of zeros has scale 0.
// A group with a NaN or an infinity, or with magnitudes beyond fp32, has scale NaN and codes 0 and
// decodes to NaN as a whole. Codes that stand for NaN or infinity are corrupt.
// Bound: relative 2^-4 (e4m3), 2^-3 (e5m2) an element above the least normal, half its step below.
// Source: Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433, 2022; scales
// inline before rows: the quantised all-reduce of torchft. Deviation: the largest magnitude is
// sent, not its inverse.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method fp8_method();

}  // namespace gradwire
