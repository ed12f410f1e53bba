// global_qsgd: QSGD on norms that all ranks share, so that codes are added in the network.
//
//   round 0 := norm{buckets}               fp32, combined by max
//   round 1 := words                       compress/shared_scale/lane_words.h of code{m}, summed
//   code    := s + level                   level from -s to s on the shared norm
//
// bits=b means s = 2^(b-1) - 1. A lane is as wide as the sum of n ranks needs: 6 bits for bits=4 on
// 4 ranks, five to a word, 6.4 bits an element; payloads widen with the number of ranks and never
// overflow. Unbiased. The error of a rank's own part is relative to the largest magnitudes over all
// ranks.
// Source: Xin, Canini, Richtarik, Horvath, "Global-QSGD", arXiv:2305.18627, 2023; the stochastic
// rounding is that of Alistarh et al., "QSGD", NeurIPS 2017.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method global_qsgd_method();

}  // namespace gradwire
