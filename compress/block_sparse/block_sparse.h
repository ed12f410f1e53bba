// block_sparse: the blocks that hold anything at all, as they are. Rows of an embedding that no
// sample touched, frozen layers and pruned weights cost nothing; what is sent is exact.
//
//   payload := count:u32 indices values
//   indices := of the blocks that travel (compress/sparse/index_coding.h, `count` out of the
//              ceil(m / block))
//   values  := the elements of those blocks, one block after another (the tensor's last block may
//              be shorter), or what the second stage packs of them (slice {step, tensor, rank,
//              stage 0, first 0})
//
// A block travels if any bit of it is set: -0 is not nothing, so that every element comes back bit
// for bit, NaN and infinity too. A gradient without a block of zeros takes 32/block bits an element
// more than it would as it is. At most 2^32 - 1 blocks. Payloads are gathered.
// Source: Fei et al., "Efficient sparse collective communication and its application to accelerate
// distributed deep learning" (OmniReduce), SIGCOMM 2021, section 3 (blocks of 256; non-zero blocks
// are sent). Deviation: gathered, where OmniReduce streams blocks through aggregators.
#pragma once

#include "gradwire/registry.h"

namespace gradwire {

Registry::Method block_sparse_method();

}  // namespace gradwire
