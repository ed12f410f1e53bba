// signum: the sign of every rank's own momentum, and a majority vote over them.
//
//   m <- (1 - beta) g + beta m        on each rank, kept between steps (state
//                                     "residual_momentum": average and units as of residuals)
//   mean = sign(sum over ranks of sign(m)), 0 on a tie
//
// Blocks of 256 elements whose momentum is all zero (rows of an embedding that no sample touched,
// frozen layers) are marked and count as zero in the vote, instead of as +1: no masks are needed.
//
//   payload := zeros{m/256/8} signs{m/8}
//   zeros   := bit j % 8 of byte j / 8 is 1 where block j is all zero; unused bits are 0
//   signs   := bit i % 8 of byte i / 8 is 1 where m_i < 0; unused bits are 0
//
// A step whose gradient is not finite is refused before the momentum changes. The optimizer's own
// momentum should be 0. Payloads are gathered; there are no slices, because a slice has no state.
// Source: Bernstein et al., "signSGD", ICML 2018, algorithm 2 (Signum) and section 3 (vote).
// Deviations: a tie is 0; sign(0) = +1 within a block that is not all zero.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method signum_method();

}  // namespace gradwire
