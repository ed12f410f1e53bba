// lossless: the gradient bit for bit, its exponents in fewer bits. For those who refuse any risk.
//
// Gradients fill few of the 256 (fp64: 2048) exponents: a normal distribution needs about 3 bits of
// its 8. Signs and mantissas are noise and travel as they are, but for low mantissa bytes that are
// zero in a whole block (values of bf16 in fp32, of fp32 in fp64), which do not travel.
//
//   payload    := block{m/512}
//   block      := 0xff element{n}                                     n: the block's elements
//               | head base escapes codes exceptions [tops] planes    where that is shorter
//   head       := u8: w + 16 t; w: bits of a code, 0 ... 8; t: what is left out, 0 ... P + 1
//   base       := exponent: the block's largest exponent field
//   exponent   := u8 (fp64: u16, below 2048)
//   escapes    := u16: how many exceptions follow; 0 if w = 0
//   codes      := code{n} of w bits, a little-endian bit stream, free bits of the last byte 0:
//                 base minus the element's exponent field, or 2^w - 1 for the next exception.
//                 Every exponent is base if w = 0
//   exceptions := exponent{escapes}
//   tops       := top{n} of 8 (fp64: 5) bits, a bit stream likewise: sign above the mantissa's
//                 7 (4) highest bits; left out, and 0, if t = P + 1
//   planes     := byte{n}{P - t}: the mantissa's other bytes, the highest of all elements first;
//                 P = 2 (fp64: 6), the t lowest are left out and 0
//
// Infinity and NaN have an exponent field as every number, so their bits survive too. A payload is
// at most one byte in 512 elements longer than the gradient: 0.05 % (fp64: 0.03 %). Lengths vary,
// so payloads are gathered; the mean is the sum in rank order times 1/size, as of `none` but for
// the order of additions. Blocks of zeros take 4 bytes (fp64: 5). Source: Zukowski, Heman,
// Nes, Boncz, "Super-scalar RAM-CPU cache compression", ICDE 2006, section 3 (patched frames of
// reference); that exponents are what compresses: Gajjala et al., "Huffman coding based encoding
// techniques for fast distributed deep learning", DistributedML 2020.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method lossless_method();

}  // namespace gradwire
