// Blocks inside of a layer's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire {

// Elements rounded up to whole cache lines, so that what follows starts on one if this does.
template <typename T>
constexpr std::int64_t whole_lines(std::int64_t elems) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  return (elems + kLine - 1) / kLine * kLine;
}

// Elements [offset, offset + elems); of nothing, nothing: what is not handed in stays away.
template <typename T>
std::span<T> part_of(std::span<T> all, std::int64_t offset, std::int64_t elems) {
  if (all.empty()) return all;
  return all.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(elems));
}

}  // namespace gradwire
