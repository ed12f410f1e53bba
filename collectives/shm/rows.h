// Where rank q's row lies among all: rows of call.elems, or of call.lengths.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives/shm/call.h"
#include "gradwire/schedule.h"

namespace gradwire {

// Elements before row q; q = size: of all rows.
inline std::int64_t begin_of_row(const ShmCall& call, int q) {
  if (call.lengths.empty()) return q * call.elems;
  std::int64_t sum = 0;
  for (int i = 0; i < q; ++i) sum += call.lengths[static_cast<std::size_t>(i)];
  return sum;
}

inline Range row_of(const ShmCall& call, int q) {
  const std::int64_t begin = begin_of_row(call, q);
  const auto& lengths = call.lengths;
  return {begin, begin + (lengths.empty() ? call.elems : lengths[static_cast<std::size_t>(q)])};
}

inline std::int64_t longest_row(const ShmCall& call) {
  return call.lengths.empty() ? call.elems : *std::ranges::max_element(call.lengths);
}

}  // namespace gradwire
