// A log of bounded length.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace gradwire {

// Adds an entry; of more than `most` the oldest go.
template <typename T>
void keep_last(std::deque<T>& log, std::size_t most, T entry) {
  log.push_back(std::move(entry));
  while (log.size() > most) log.pop_front();
}

}  // namespace gradwire
