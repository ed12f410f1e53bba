#include "apps/sweep/capacity.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "apps/control_groups.h"

namespace gradwire {
namespace {

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
  const auto left = static_cast<std::uint64_t>(free_group_memory(0).bytes);
  return std::min(available_by_kernel(), left);
}

}  // namespace gradwire
