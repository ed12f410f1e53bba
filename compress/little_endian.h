// Payloads are little-endian and may start at any byte; values are read and written through here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>

namespace gradwire {

static_assert(std::endian::native == std::endian::little,
              "payloads are written in memory order; a big-endian port must swap here");

// Value `index` of an array of T that starts at `bytes`, aligned or not.
template <typename T>
T load_le(const std::byte* bytes, std::size_t index = 0) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void store_le(std::byte* bytes, T value, std::size_t index = 0) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

}  // namespace gradwire
