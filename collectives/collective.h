// The operations that have algorithms.
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
};

}  // namespace gradwire
