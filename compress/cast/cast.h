// cast: every element rounded to nearest even into 16 bits, and summed there.
//
//   payload := half{m}          half: fp16 or bfloat16, little-endian
//
// Under sum, fp16 payloads hold grad/size, so that no partial sum leaves the range when every
// |grad| <= 65504 (casting first and dividing afterwards is the classic overflow); what this costs
// is at the small end, where the step of 2^-24 stands for size * 2^-24. bf16 has fp32's range and
// is sent as it is. As slices: stage 0 holds the values, stage 1 (a sum over ranks) of fp16 the
// sum / size.
// Values that fit no fp16 become infinity of their sign, and infinity and NaN travel as such: the
// mean shows them on every rank, as an uncompressed sum would. fp64 rounds through fp32.
// The claimed contraction holds for values in the type's normal range; below it the error is at
// most half a step (2^-25, under sum times size, for fp16).
// Source: Micikevicius et al., "Mixed precision training", ICLR 2018 (fp16); Kalamkar et al., "A
// study of BFLOAT16 for deep learning training", arXiv:1905.12322, 2019.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method cast_method();

}  // namespace gradwire
