// What the collectives of the library that plays NCCL compute: as NCCL does, in the order of a ring
// and in the arithmetic of the type.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <vector>

namespace fake {

// What a rank has asked for.
struct Call {
  enum class Kind {
    kAllReduce,
    kReduce,
    kBroadcast,
    kReduceScatter,
    kAllGather,
    kSend,
    kRecv
  } kind;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int op = ncclSum;
  double scale = 1;  // of this rank's elements, before they are added
  bool scaled = false;
  int root = 0;  // of a send and a receive: the peer
};

std::size_t width_of(ncclDataType_t type);

// What rank's `out` is after the calls of all ranks, which are collectives and alike; empty for a
// rank that gets nothing. The sum that a rank ends with begins at the rank behind it and goes round
// the ring: of an all-reduce each rank ends one chunk, in their order, and all have its result.
std::vector<std::byte> result_of(const std::vector<Call>& calls, int rank);

}  // namespace fake
