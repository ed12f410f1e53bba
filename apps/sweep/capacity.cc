#include "apps/sweep/capacity.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "base/text.h"

namespace gradwire {
namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  file >> text;
  const auto value = to_int(text);  // "max" where there is no limit
  if (!value || *value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::uint64_t available_by_kernel() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  std::string unit;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

bool Capacity::admits(const RunLoad& load) const {
  if (running_.empty()) return true;
  if (load.alone || running_.front().alone) return false;
  if (jobs_ > 0 && static_cast<int>(running_.size()) >= jobs_) return false;
  int cores = load.cores;
  std::uint64_t bytes = load.bytes;
  for (const RunLoad& other : running_) {
    cores += other.cores;
    bytes += other.bytes;
  }
  return (jobs_ > 0 || cores <= cores_) && bytes <= bytes_;
}

void Capacity::end(const RunLoad& load) {
  const auto found = std::find_if(running_.begin(), running_.end(), [&](const RunLoad& other) {
    return other.cores == load.cores && other.bytes == load.bytes && other.alone == load.alone;
  });
  if (found != running_.end()) running_.erase(found);
}

std::uint64_t available_memory() {
  std::uint64_t bytes = available_by_kernel();
  const auto most = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (most && used) bytes = std::min(bytes, *most > *used ? *most - *used : 0);
  return bytes;
}

}  // namespace gradwire
