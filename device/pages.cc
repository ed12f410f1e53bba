#include "device/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gradwire {
namespace {

std::uintptr_t page_bytes() {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return page;
}

// Of the whole pages inside; how many bytes they are, 0 where the system does not do it.
std::size_t advise_pages(ByteSpan bytes, int advice) {
  const std::uintptr_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + bytes.size()) / page * page;
  if (first >= last) return 0;
  auto* inside = bytes.data() + (first - begin);
  return ::madvise(inside, last - first, advice) == 0 ? last - first : 0;
}

}  // namespace

std::size_t drop_pages(ByteSpan bytes) { return advise_pages(bytes, MADV_DONTNEED); }

std::size_t offer_pages(ByteSpan bytes) { return advise_pages(bytes, MADV_FREE); }

std::size_t resident_bytes(ConstByteSpan bytes) {
  if (bytes.empty()) return 0;
  const std::uintptr_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t end = begin + bytes.size();
  const std::uintptr_t first = begin / page * page;
  std::vector<unsigned char> in_memory((end - first + page - 1) / page);
  // mincore() takes the address as it is and writes to `in_memory` alone.
  if (::mincore(reinterpret_cast<void*>(first), end - first, in_memory.data()) != 0) return 0;
  std::size_t resident = 0;
  for (std::size_t i = 0; i < in_memory.size(); ++i) {
    if ((in_memory[i] & 1U) == 0) continue;
    const std::uintptr_t at = first + i * page;
    resident += std::min(end, at + page) - std::max(begin, at);
  }
  return resident;
}

}  // namespace gradwire
