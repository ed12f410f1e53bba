// natural: each element rounded stochastically to a power of two, so that its expectation is the
// element. No statistics, one pass, arithmetic on the bits alone.
//
//   natural                9 bits: sign and exponent
//   natural:bits=8         sign and 7 bits of exponent: 2^-94 ... 2^31
//
// Payload of a slice of m elements:
//
//   bits=9:  payload := signs{m/8} exponent{m}
//            signs   := bit i % 8 of byte i / 8 is 1 where x_i < 0; unused bits are 0
//            exponent := u8: 0 for zero, e for 2^(e - 127), 255 for NaN
//   bits=8:  payload := code{m}
//            code    := u8: sign (bit 7) and c: 0 for zero, c in 1 ... 126 for 2^(c - 95),
//                       127 for NaN
//
// |x| = 2^e m, m in [1, 2), becomes 2^e with probability 2 - m and 2^(e + 1) with m - 1: 23 bits of
// mantissa plus 128 h + 64 carry into the exponent, h being the element's 16-bit draw (dither.h),
// so that powers of two stay and the expectation is x to 2^-17 of 2^e. Below the least power of two
// it is that power or zero, as likely as x demands. fp64 elements are rounded to fp32 first. Above
// the largest power of two (2^127, 2^31) elements become that power: there the claims end. NaN,
// infinity and magnitudes beyond fp32 travel as NaN.
// E|x - C(x)|^2 <= |x|^2 / 8 (for magnitudes in the window). Source: Horvath et al., "Natural
// compression for distributed deep learning", MSML 2022, definition 1 and theorem 1.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method natural_method();

}  // namespace gradwire
