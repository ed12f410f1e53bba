// What is kept of a dynamic programme with several aims: all that nothing else is better than.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gradwire {

// Entries whose N values no other entry's are all at most. `From` says where an entry comes from.
template <std::size_t N, typename From>
class ParetoFront {
 public:
  struct Entry {
    std::array<std::int64_t, N> values = {};
    From from = {};
  };

  void add(const std::array<std::int64_t, N>& values, const From& from) {
    for (const Entry& one : entries_) {
      if (at_most(one.values, values)) return;
    }
    std::erase_if(entries_, [&](const Entry& one) { return at_most(values, one.values); });
    entries_.push_back({values, from});
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  static bool at_most(const std::array<std::int64_t, N>& a, const std::array<std::int64_t, N>& b) {
    for (std::size_t i = 0; i < N; ++i) {
      if (a[i] > b[i]) return false;
    }
    return true;
  }
  std::vector<Entry> entries_;
};

}  // namespace gradwire
