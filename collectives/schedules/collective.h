// The operations that have algorithms; to the next rank and from the one before, at the same time,
// is one where costs are asked for (the last).
#pragma once

#include <cstdint>

namespace gradwire {

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBarrier,
  kReduce,
  kGather,
  kScatter,
  kExclusiveScan,
  kSendRecv,
};

}  // namespace gradwire
