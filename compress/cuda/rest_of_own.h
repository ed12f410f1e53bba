// What error feedback keeps where what was sent had to be decoded first.
#pragma once

#include "compress/cuda/eight.h"

namespace gradwire::cuda {

// next = p - own * scale: eight elements a thread. What is not finite is found.
struct RestOfOwn {
  static constexpr unsigned kThreads = 256;
  using Shared = NothingShared;

  Source source;
  const float* own;
  bool packed;
  unsigned kind;  // of a finding, at an element
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEight * (block.block() * kThreads + block.thread());
    const int count = eight_or(begin, source.count);
    if (count == 0) return;
    float p[kEight];
    float sent[kEight];
    Eight::read(source, begin, count, packed, p);
    Eight::read({.grad = own, .count = source.count}, begin, count, packed, sent);
    for (int j = 0; j < kEight; ++j) {
      p[j] = p[j] - sent[j] * source.own_scale;
      if (j >= count || is_finite(p[j])) continue;
      block.least(verdict, word_of(static_cast<std::uint64_t>(begin + j), kind));
    }
    Eight::write(source.next + begin, count, packed, p);
  }
};

}  // namespace gradwire::cuda
