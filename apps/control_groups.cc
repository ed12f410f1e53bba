#include "apps/control_groups.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/text.h"

namespace gradwire {
namespace {

// Version 1 writes "no limit" as a number near this one.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

// One group's memory, in bytes; nullopt where it has no limit or its files are not there.
struct GroupMemory {
  std::string file;  // that says the limit
  std::int64_t limit = 0;
  std::int64_t used = 0;
  std::optional<std::int64_t> swap_limit;
  std::int64_t swap_used = 0;
};

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  const auto value = to_int(text);  // "max" where there is no limit
  if (!value || *value < 0 || *value >= kNoLimit) return std::nullopt;
  return value;
}

// What of a group's memory is cached files: the sum of `names` in its memory.stat.
std::int64_t cached_in(const std::string& path, std::initializer_list<std::string_view> names) {
  std::ifstream file(path);
  std::int64_t sum = 0;
  std::string name;
  std::int64_t bytes = 0;
  while (file >> name >> bytes) {
    if (std::find(names.begin(), names.end(), name) != names.end()) sum += bytes;
  }
  return sum;
}

std::optional<GroupMemory> version_2(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.max");
  if (!limit) return std::nullopt;
  GroupMemory group{.file = folder + "/memory.max", .limit = *limit, .swap_limit = {}};
  const std::int64_t cached =
      cached_in(folder + "/memory.stat", {"inactive_file", "active_file", "slab_reclaimable"});
  group.used = number_in(folder + "/memory.current").value_or(0) - cached;
  group.swap_limit = number_in(folder + "/memory.swap.max");
  group.swap_used = number_in(folder + "/memory.swap.current").value_or(0);
  return group;
}

// Swap has no number of its own there: its limit is of memory and swap together.
std::optional<GroupMemory> version_1(const std::string& folder) {
  const auto limit = number_in(folder + "/memory.limit_in_bytes");
  if (!limit) return std::nullopt;
  GroupMemory group{.file = folder + "/memory.limit_in_bytes", .limit = *limit, .swap_limit = {}};
  const std::int64_t used = number_in(folder + "/memory.usage_in_bytes").value_or(0);
  group.used =
      used - cached_in(folder + "/memory.stat", {"total_inactive_file", "total_active_file"});
  if (const auto both = number_in(folder + "/memory.memsw.limit_in_bytes")) {
    group.swap_limit = *both - *limit;
    group.swap_used = number_in(folder + "/memory.memsw.usage_in_bytes").value_or(used) - used;
  }
  return group;
}

// The group of a path below `root`, which begins with "/", and those above it. A path of another
// namespace is not there: then `root` is this process's own.
template <typename Read>
void add_groups(std::vector<GroupMemory>& groups, const std::string& root, std::string path,
                const Read& read) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    if (const auto group = read(root + path)) groups.push_back(*group);
    if (path.empty()) return;
    path.erase(path.rfind('/'));
  }
}

bool has_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

std::vector<GroupMemory> groups_of(const ControlGroupPlaces& places) {
  std::vector<GroupMemory> groups;
  std::ifstream file(places.membership);
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', std::min(first, line.size() - 1) + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers.empty()) add_groups(groups, places.mounted, path, version_2);
    if (has_memory(controllers)) add_groups(groups, places.mounted + "/memory", path, version_1);
  }
  return groups;
}

// The least of what `bytes` says of each.
template <typename Bytes>
MemoryRoom least(const ControlGroupPlaces& places, const Bytes& bytes) {
  MemoryRoom room{kUnlimitedMemory, "no limit known"};
  for (const GroupMemory& group : groups_of(places)) {
    const std::int64_t own = bytes(group);
    if (own < room.bytes) room = {own, group.file};
  }
  return room;
}

std::int64_t within(std::int64_t value, std::int64_t most) {
  return std::clamp<std::int64_t>(value, 0, most);
}

}  // namespace

MemoryRoom group_memory(std::int64_t swap, const ControlGroupPlaces& places) {
  return least(places, [swap](const GroupMemory& group) {
    return group.limit + within(group.swap_limit.value_or(swap), swap);
  });
}

MemoryRoom free_group_memory(std::int64_t swap, const ControlGroupPlaces& places) {
  return least(places, [swap](const GroupMemory& group) {
    const std::int64_t of_swap =
        group.swap_limit ? within(*group.swap_limit - group.swap_used, swap) : swap;
    return within(group.limit - std::max<std::int64_t>(group.used, 0), group.limit) + of_swap;
  });
}

}  // namespace gradwire
