#include "apps/memory_room.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>

#include "apps/control_groups.h"
#include "base/text.h"

namespace gradwire {
namespace {

// "MemTotal:        24684448 kB" and so on, in bytes by name.
std::map<std::string, std::int64_t> kernel_memory() {
  std::map<std::string, std::int64_t> all;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(' ', colon + 1);
    if (begin == std::string::npos) continue;
    const auto kib = to_int(line.substr(begin, line.find(' ', begin) - begin));
    if (kib) all[line.substr(0, colon)] = *kib * 1024;
  }
  return all;
}

// Bytes under a name; none where the kernel does not say.
std::optional<std::int64_t> kernel_bytes(const char* name) {
  const auto all = kernel_memory();
  const auto found = all.find(name);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

MemoryRoom of_kernel(const char* memory, const char* swap) {
  const auto bytes = kernel_bytes(memory);
  if (!bytes) return {kUnlimitedMemory, "no limit known"};
  return {*bytes + kernel_bytes(swap).value_or(0),
          std::string(memory) + " and " + swap + " of /proc/meminfo"};
}

MemoryRoom lesser(const MemoryRoom& one, const MemoryRoom& other) {
  return other.bytes < one.bytes ? other : one;
}

// Of this process, now.
std::int64_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::int64_t pages = 0;
  file >> pages;
  return pages * static_cast<std::int64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryRoom free_memory() {
  const MemoryRoom room = lesser(of_kernel("MemAvailable", "SwapFree"),
                                 free_group_memory(kernel_bytes("SwapFree").value_or(0)));
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return room;
  const std::int64_t left = std::max<std::int64_t>(
      static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimitedMemory)) -
          address_space(),
      0);
  return lesser(room, {left, "ulimit -v"});
}

MemoryRoom host_memory() {
  return lesser(of_kernel("MemTotal", "SwapTotal"),
                group_memory(kernel_bytes("SwapTotal").value_or(0)));
}

}  // namespace gradwire
