// mx: blocks of 32 elements as 4-, 6- or 8-bit floats under a shared power of two: the OCP MX
// formats MXFP8 (e4m3, e5m2), MXFP6 (e3m2, e2m3) and MXFP4 (e2m1).
//
// Payload of a slice of m elements; blocks start at the slice's start:
//
//   payload := block{m/32}
//   block   := scale code{n}          n: the block's elements, 32 but in the last
//   scale   := u8: 2^(scale - 127), or 255 for NaN (E8M0)
//   code    := a float of b bits, sign on top; codes are a little-endian bit stream that starts
//              at a byte, free bits of the last byte are 0
//
// scale = floor(log2 M) - emax + 127, at least 0, where M is the block's largest magnitude and emax
// the exponent of the type's largest number (8, 15, 4, 2, 2); codes are x / 2^(scale - 127) rounded
// to nearest, ties to even, saturating: so the uppermost of a binade (7/8 of it and more for e4m3
// and e5m2) is cut to the largest number. A block of zeros has scale 0, a block with a NaN or an
// infinity, or with magnitudes from 2^128 on, scale 255 and codes 0: it decodes to NaN as a whole.
// Codes that stand for NaN or infinity are corrupt.
// 8 + 1/4, 6 + 1/4 or 4 + 1/4 bits an element. Source: OCP Microscaling Formats (MX) Specification
// 1.0, 2023, section 6.3; Rouhani et al., "Microscaling data formats for deep learning",
// arXiv:2310.10537, 2023.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method mx_method();

}  // namespace gradwire
