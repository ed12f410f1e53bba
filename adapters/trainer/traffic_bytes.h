// Bytes that a rank sent, by what they were for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gradwire/aggregator.h"

namespace gradwire {

// By TrafficClass.
using TrafficBytes = std::array<std::uint64_t, kTrafficClasses>;

inline std::uint64_t& bytes_of(TrafficBytes& bytes, TrafficClass traffic) {
  return bytes[static_cast<std::size_t>(traffic)];
}

}  // namespace gradwire
