// signsgd: one bit per element. Scaled sign (an L1 scale per bucket, for error feedback), the bare
// sign, and the majority vote.
//
//   signsgd                    scale=l1, bucket=4096
//   signsgd:bucket=tensor      one scale per slice: the whole tensor, or a rank's chunk under sra
//   signsgd:scale=none         -1 or +1; its mean is the average of the ranks' signs
//   signsgd:vote=majority      the mean is the sign of the sum of the ranks' signs; 0 on a tie
//   ...,zeros=1                of the two without scales: blocks of 256 elements that are all
//                              zero are marked, decode to zero and have no vote; the payload is
//                              signum's
//
// Payload of a slice of m elements, little-endian:
//
//   payload := scales signs                 ceil(m/bucket) * w + ceil(m/8) bytes; w = 4 (f32), 8
//   (f64) scales  := scale{ceil(m/bucket)}        the gradient's own type, finite, >= 0; none with
//   scale=none scale   := mean of |v| over the bucket's elements (the last bucket: over those it
//   has) signs   := byte{ceil(m/8)}              bit i % 8 of byte i / 8 is 1 where v_i < 0; unused
//   bits 0
//
// An element decodes to -scale or +scale, so sign(0) = +1 (and sign(-0) = +1), and a bucket of
// zeros, whose scale is 0, decodes to zeros. Buckets start anew at each slice. A vote's payload is
// `signs` alone; its second stage under sra, of the sums of signs, is
//
//   votes   := byte{ceil(m/4)}              bits 2(i%4) and up of byte i/4: 0 tie, 1 plus, 2 minus
//
// and decodes to the mean itself: under a vote (mean_is_average_of_own = false) nobody divides by
// the number of ranks.
//
// Non-finite elements: pack() and encode() refuse them (kInvalidArgument); so do sums of |v| beyond
// the range of a double. Received scales that are negative or not finite, set unused bits and the
// vote 3 are kCorruptPayload.
//
// Bound of scaled sign, n elements a bucket: |v - C(v)|^2 = |v|_2^2 - |v|_1^2 / n, and |v|_1 >=
// |v|_2, so a contraction with value 1/n (reached by one non-zero element; 0.63 is typical of a
// Gaussian). Source: Bernstein et al., "signSGD", ICML 2018 (vote); Karimireddy et al., "Error
// feedback fixes SignSGD", ICML 2019, equation for C = (|v|_1/d) sign(v). Deviation: buckets, and
// sign(0) = +1.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method signsgd_method();

}  // namespace gradwire
