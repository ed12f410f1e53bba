// Where the buckets of a slice lie.
#pragma once

#include <bit>
#include <cstdint>

namespace gradwire::cuda {

// Buckets of `bucket` elements. What is left behind the last whole one is a shorter bucket, or,
// with `digits`, as many as its length has binary digits, the largest first (300: 256, 32, 8, 4);
// `bucket` is a power of two then.
struct BucketPlaces {
  std::int64_t elems;
  std::int64_t bucket;
  bool digits = false;

  constexpr std::int64_t whole() const { return elems / bucket; }
  constexpr std::int64_t rest() const { return elems % bucket; }
  constexpr std::int64_t number() const {
    if (digits) return whole() + std::popcount(static_cast<std::uint64_t>(rest()));
    return whole() + (rest() > 0 ? 1 : 0);
  }
  // Of number() too: the end of the last.
  constexpr std::int64_t begin(std::int64_t b) const {
    const std::int64_t full = whole();
    if (b <= full) return b * bucket;
    if (!digits) return elems;
    auto left = static_cast<std::uint64_t>(rest());
    std::int64_t at = full * bucket;
    for (std::int64_t t = full; t < b && left != 0; ++t) {
      const std::uint64_t most = std::bit_floor(left);
      at += static_cast<std::int64_t>(most);
      left -= most;
    }
    return at;
  }
  constexpr std::int64_t count(std::int64_t b) const { return begin(b + 1) - begin(b); }
  // The bucket of element i.
  constexpr std::int64_t of(std::int64_t i) const {
    const std::int64_t full = whole();
    if (!digits || i < full * bucket) return i / bucket;
    auto left = static_cast<std::uint64_t>(rest());
    auto within = static_cast<std::uint64_t>(i - full * bucket);
    std::int64_t b = full;
    for (std::uint64_t most = std::bit_floor(left); within >= most && left > most; ++b) {
      within -= most;
      left -= most;
      most = std::bit_floor(left);
    }
    return b;
  }
};

}  // namespace gradwire::cuda
