#include "comm/shm/region.h"

#include <iterator>

namespace gradwire::shm {

Region::Region(std::uint64_t begin, std::uint64_t end) {
  if (begin < end) free_.emplace(begin, end);
}

std::optional<std::uint64_t> Region::take(std::uint64_t bytes) {
  const std::uint64_t wanted = rounded(bytes);
  if (wanted < bytes) return std::nullopt;
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    const auto [begin, end] = *gap;
    if (end - begin < wanted) continue;
    free_.erase(gap);
    if (begin + wanted < end) free_.emplace(begin + wanted, end);
    return begin;
  }
  return std::nullopt;
}

void Region::give_back(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t begin = offset;
  std::uint64_t end = offset + rounded(bytes);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  free_.emplace(begin, end);
}

std::uint64_t Region::free_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [begin, end] : free_) sum += end - begin;
  return sum;
}

}  // namespace gradwire::shm
