// How much main memory there is, and what says so.
#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

struct MemoryRoom {
  std::int64_t bytes = 0;
  std::string limit;  // "MemAvailable and SwapFree of /proc/meminfo", "ulimit -v"
};
// What this process can still get: of the host with its swap, and below its limit of address space.
MemoryRoom free_memory();
// What the host has in all, or the control group's limit where that is less.
MemoryRoom host_memory();

}  // namespace gradwire
