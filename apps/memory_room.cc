#include "apps/memory_room.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

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

MemoryRoom of_kernel(const char* memory, const char* swap) {
  const auto all = kernel_memory();
  const auto found = all.find(memory);
  if (found == all.end()) return {kUnlimited, "no limit known"};
  const auto swapped = all.find(swap);
  return {found->second + (swapped == all.end() ? 0 : swapped->second),
          std::string(memory) + " and " + swap + " of /proc/meminfo"};
}

std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  const auto value = to_int(text);  // "max" where there is no limit
  return value && *value >= 0 ? std::optional<std::int64_t>(*value) : std::nullopt;
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
  MemoryRoom room = of_kernel("MemAvailable", "SwapFree");
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return room;
  const std::int64_t left = std::max<std::int64_t>(
      static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited)) - address_space(), 0);
  if (left < room.bytes) room = {left, "ulimit -v"};
  return room;
}

MemoryRoom host_memory() {
  MemoryRoom room = of_kernel("MemTotal", "SwapTotal");
  const auto group = number_in("/sys/fs/cgroup/memory.max");
  if (!group || *group >= room.bytes) return room;
  const auto swap = number_in("/sys/fs/cgroup/memory.swap.max");
  const std::int64_t most = *group + swap.value_or(0);
  if (most < room.bytes) room = {most, "memory.max of /sys/fs/cgroup"};
  return room;
}

}  // namespace gradwire
