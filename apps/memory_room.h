// How much main memory there is, and what says so.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace gradwire {

constexpr std::int64_t kUnlimitedMemory = std::numeric_limits<std::int64_t>::max();

struct MemoryRoom {
  std::int64_t bytes = 0;
  std::string limit;  // "MemAvailable and SwapFree of /proc/meminfo", "ulimit -v"
};
// What this process can still get: of the host with its swap, of what its control groups allow, and
// below its limit of address space.
MemoryRoom free_memory();
// What the host has in all, or the least of the control groups' limits where that is less.
MemoryRoom host_memory();

}  // namespace gradwire
