// Which parts of a rank's share of an arena are in use: offsets alone, no memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace gradwire::shm {

// First fit over pages; neighbours that are free become one. Used by one thread at a time.
class Region {
 public:
  static constexpr std::uint64_t kPage = 4096;

  // Bytes [begin, end), both multiples of kPage.
  Region(std::uint64_t begin, std::uint64_t end);

  // An offset, a multiple of kPage; nullopt when no gap is large enough.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  // What take(bytes) returned.
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  // What take(bytes) takes.
  static constexpr std::uint64_t rounded(std::uint64_t bytes) {
    return bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage;
  }
  std::uint64_t free_bytes() const;

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // begin -> end
};

}  // namespace gradwire::shm
