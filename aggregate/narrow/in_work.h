// Memory of the buckets that are in work, before any is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>

#include "aggregate/pipeline.h"

namespace gradwire {

// The largest of what buckets take, as many as are in work at a time: with one memory of each of
// these sizes there is always one that fits.
class InWork {
 public:
  void expect(std::uint64_t bytes) {
    std::uint64_t& least = *std::ranges::min_element(largest_);
    least = std::max(least, bytes);
  }
  // Together, and each: the largest first, 0 where there is no such bucket.
  std::uint64_t most() const {
    return std::accumulate(largest_.begin(), largest_.end(), std::uint64_t{0});
  }
  std::array<std::uint64_t, kBucketsInWork> sizes() const {
    std::array<std::uint64_t, kBucketsInWork> sorted = largest_;
    std::ranges::sort(sorted, std::greater());
    return sorted;
  }

 private:
  std::array<std::uint64_t, kBucketsInWork> largest_ = {};
};

}  // namespace gradwire
