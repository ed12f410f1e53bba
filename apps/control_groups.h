// What control groups let a process have of the memory (cgroups(7), versions 1 and 2).
#pragma once

#include <cstdint>
#include <string>

#include "apps/memory_room.h"

namespace gradwire {

struct ControlGroupPlaces {
  std::string membership = "/proc/self/cgroup";  // lines "0::/path", "4:memory:/path"
  std::string mounted = "/sys/fs/cgroup";
};

// Bytes that the strictest of the process's group and those above it allows, with what it allows of
// `swap` bytes: kUnlimitedMemory where no group has a limit.
MemoryRoom group_memory(std::int64_t swap, const ControlGroupPlaces& places = {});
// Of these, what is left. Files that groups have cached are, too: the kernel takes them back.
MemoryRoom free_group_memory(std::int64_t swap, const ControlGroupPlaces& places = {});

}  // namespace gradwire
