// cltk: one rank chooses where, all send what they have there. The leader, rank `step mod ranks`,
// takes the places of the k largest of its own elements; the values add up in the network.
//
//   round 0 := [k:u32] indices     from the leader (compress/sparse/index_coding.h), no bytes from
//                                  others; gathered. k is there where the coding's length depends
//                                  on the places: index=gaps|auto
//   round 1 := element{k}          every rank's elements at the leader's places; summed
//            | what the second stage packs of them (slice {step, tensor, rank, stage 0, first 0});
//              gathered
//
// So k values come back however many ranks there are, where gathered choices of their own would
// be n k. The leader chooses as topk does; of its own gradient it sends the most that k elements
// can hold, of another rank's nothing is claimed but that what is left out is at right angles to
// what is sent. Error feedback belongs to it: gradients with what the ranks had left over are
// similar enough for the choice to suit all. With large batches a low-pass filter of the residual
// is advised, e <- (1 - b) e + b (p - sent): ef=loco,ef_storage=fp32,ef_reset=0,ef_beta=1-b.
//
// A gradient that is not finite is refused, wherever the element is: most of them are not sent, and
// would be forgotten. Tensors of 2^32 elements and more are refused.
// Source: Chen et al., "ScaleCom: scalable sparsified gradient compression for
// communication-efficient distributed training", NeurIPS 2020, algorithm 1 (CLT-k). Deviation: the
// leader's choice is exact, not by chunks.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method cltk_method();

}  // namespace gradwire
