// The lanes of a sum, some hundred at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/shared_scale/lane_words.h"
#include "compress/shared_scale/shared_scale_loops.h"

namespace gradwire {

class LaneReader {
 public:
  static constexpr std::size_t kMost = 1024;

  // `words` has lanes.bytes(sums) bytes. Requires lanes.fits().
  LaneReader(const LaneWords& lanes, const std::byte* words, std::size_t sums)
      : limit_(lanes.limit()),
        pattern_(lanes.lanes(), lanes.width()),
        words_(words),
        left_(lanes.bytes(sums) / 4) {}

  // The next `count` <= kMost sums; valid until the next call.
  const std::uint32_t* next(std::size_t count) {
    if (held_ - taken_ < count) refill();
    taken_ += count;
    return sums_.data() + taken_ - count;
  }
  // After the last sum: false if a lane was above size * most, or a free bit set.
  [[nodiscard]] bool sound() const {
    return faults_.free == 0 && faults_.largest <= limit_ &&
           std::all_of(sums_.begin() + static_cast<std::ptrdiff_t>(taken_),
                       sums_.begin() + static_cast<std::ptrdiff_t>(held_),
                       [](std::uint32_t sum) { return sum == 0; });
  }

 private:
  void refill() {
    std::copy(sums_.begin() + static_cast<std::ptrdiff_t>(taken_),
              sums_.begin() + static_cast<std::ptrdiff_t>(held_), sums_.begin());
    held_ -= taken_;
    taken_ = 0;
    const std::size_t count = std::min((sums_.size() - held_) / pattern_.lanes, left_);
    cpu::simd::unpack_lanes(pattern_, words_, count, sums_.data() + held_, faults_);
    held_ += count * pattern_.lanes;
    words_ += 4 * count;
    left_ -= count;
  }

  std::uint64_t limit_;
  LanePattern pattern_;
  const std::byte* words_;
  std::size_t left_;  // words
  LaneFaults faults_;
  std::size_t held_ = 0;
  std::size_t taken_ = 0;
  std::array<std::uint32_t, 2 * kMost + 512> sums_;
};

}  // namespace gradwire
