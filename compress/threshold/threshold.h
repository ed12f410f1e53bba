// threshold: every element of magnitude tau or more, with its place.
//
//   payload := count:u32 pairs          compress/sparse/pair_payloads.h
//
// How many there are depends on the gradient alone, so payloads vary in length, from 4 bytes to 64
// bits an element; tau is in the gradient's units (those of gradient + residual under error
// feedback), rounded to its type. Magnitudes compare as topk's do: NaN and infinity always travel.
// Nothing is claimed of the share that is kept, since a gradient below tau is not sent at all;
// under error feedback no element of the residual ever reaches tau. At most 2^32 - 1 elements. A
// second stage codes the values. Source: Strom, "Scalable distributed DNN training using commodity
// GPU cloud computing", Interspeech 2015 (a fixed threshold over gradient + residual). Deviation:
// the values travel, not
// +-tau.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method threshold_method();

}  // namespace gradwire
