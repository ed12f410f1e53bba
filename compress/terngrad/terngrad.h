// terngrad: -1, 0 or 1 times a scale, drawn so that the mean over draws is the clipped element.
//
//   s = min(largest |x|, clip * rms)       of the tensor; x is clipped to [-s, s]
//   t = sign(x) with probability |x| / s, else 0
//
// shared=true (default), two rounds; s becomes the maximum over ranks, so that t adds up:
//   round 0 := s                           fp32, combined by max
//   round 1 := words                       compress/shared_scale/lane_words.h of 1 + t, summed
// shared=false, element by element, of a slice:
//   payload := s trits                     s fp32, finite and >= 0, or the quiet NaN 0x7fc00000
//   trits   := byte{m / 5}                 sum of digit_j 3^j, j = 0 ... 4: at most 242
//   digit   := 0 for t = 0, 1 for t = 1, 2 for t = -1; digits beyond the m-th are 0
//
// rms is about 0, where the paper's deviation is about the mean: the same for gradients, whose mean
// is near 0, and a constant is not clipped to nothing. A tensor with NaN or infinity decodes to NaN
// as a whole. clip=0 does not clip and is unbiased.
// Source: Wen, Xu, Yan, Wu, Wang, Chen, Li, "TernGrad", NeurIPS 2017, equations 1 to 3 and sections
// 3.2 (scaler sharing, gradient clipping).
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method terngrad_method();

}  // namespace gradwire
