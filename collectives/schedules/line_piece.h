// How a tensor is cut into parts that ranks work on side by side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gradwire/schedule.h"

namespace gradwire {

// Piece i of `parts`, cut between cache lines: no two ranks write to one.
inline Range line_piece(std::int64_t elems, std::size_t width, int parts, int i) {
  const auto line = static_cast<std::int64_t>(64 / width);
  const Range lines = piece((elems + line - 1) / line, parts, i);
  const auto cut = [&](std::int64_t at) { return at * line < elems ? at * line : elems; };
  return {cut(lines.begin), cut(lines.end)};
}

}  // namespace gradwire
