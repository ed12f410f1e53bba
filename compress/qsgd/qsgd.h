// qsgd: each element as sign and level on a uniform grid, rounded stochastically, so that its
// expectation is the element. Source: Alistarh et al., "QSGD", NIPS 2017, section 3.1 (levels of
// the L2 norm, per bucket); the L-infinity norm as in its implementations.
//
// clang-format off
//   payload := norm{ceil(m/bucket)} codes      for a slice of m elements; buckets start at its start
//   norm    := fp32, little-endian, finite and >= 0, or the quiet NaN 0x7fc00000
//   codes   := code{m}, a little-endian bit stream: bit j is bit j % 8 of byte j / 8; the last
//              byte's free bits are 0
//   code    := level (b - 1 bits, 0 ... s, low bits first) sign (1 bit)
// clang-format on
//
// b = 1 + ceil(log2(s + 1)); bits=b means s = 2^(b-1) - 1. An element of a bucket of norm N decodes
// to (sign) N * (level * (1/s)). Encoding: a = x * 256 s / N, level with its sign = floor((floor(a)
// + h + c) / 256). h is the first draw: byte e % 16 of block e / 16 of the Philox4x32-7 stream
// (seed, kDither, tensor, rank, stage, step), its words in order and little-endian, e = first + i:
// the same payload under any bucketing of parameters, and after a restart. c is 1 with probability
// a - floor(a), else 0, and decides only where floor(a) + h ends in the byte 255, which is one
// element in 256: c = [u < a - floor(a)] for a >= 0 and [u >= floor(a) + 1 - a] for a < 0, with
// u = word e % 4 of block 2^63 + e / 4 of the same stream, its upper 24 bits, times 2^-24. An a
// within 2^-22 |a| (fp64: 2^-51) of an integer counts as that integer, so that values on the grid
// need no luck. So every element's expectation is the element, to 2^-32 of a level and 2^-22 of
// itself, and every element but 0 is sent sometimes. A level of 0 has sign 0. Norms of fp64
// elements are fp32 too, rounded up, which leaves the expectation where it is. A bucket of zeros
// has norm 0 and decodes to zeros. A bucket with a NaN, an infinity or a norm beyond fp32 travels
// with norm NaN and decodes to NaN as a whole: on every rank alike, visible in the mean.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method qsgd_method();

}  // namespace gradwire
