// The search for bits for each instruction set: a cache line or more at a time.
#include <algorithm>

#include "compress/block_sparse/block_kernels.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/block_sparse/block_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace block_lanes {
#if HWY_TARGET == HWY_SCALAR

bool simd_any_bit(const std::byte* words, std::size_t count) {
  return plain::any_bit(words, count);
}

#else

bool simd_any_bit(const std::byte* words, std::size_t count) {
  constexpr hn::ScalableTag<std::uint32_t> kWords;
  constexpr std::size_t kLanes = hn::MaxLanes(kWords);
  constexpr std::size_t kStretch = 4 * kGroup;  // words between two looks at what was found
  const auto* from = reinterpret_cast<const std::uint32_t*>(words);  // for vector loads alone
  std::size_t i = 0;
  for (; i + kStretch <= count; i += kStretch) {
    auto bits = hn::Zero(kWords);
    for (std::size_t line = i; line < i + kStretch; line += kGroup) {
      fetch_ahead(from + line);
      for (std::size_t v = line; v < line + kGroup; v += kLanes) {
        bits = hn::Or(bits, hn::LoadU(kWords, from + v));
      }
    }
    if (!hn::AllTrue(kWords, hn::Eq(bits, hn::Zero(kWords)))) return true;
  }
  return plain::any_bit(words + i * sizeof(std::uint32_t), count - i);
}

#endif
}  // namespace block_lanes

using block_lanes::simd_any_bit;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {
namespace simd {

HWY_EXPORT(simd_any_bit);

bool any_bit(const std::byte* words, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(simd_any_bit)(words, count);
}

}  // namespace simd

void find_blocks(ConstByteSpan bytes, std::size_t block_bytes, std::vector<std::uint32_t>& blocks) {
  blocks.clear();
  std::uint32_t number = 0;
  for (std::size_t begin = 0; begin < bytes.size(); begin += block_bytes, ++number) {
    const std::size_t count = std::min(block_bytes, bytes.size() - begin);
    if (simd::any_bit(bytes.data() + begin, count / sizeof(std::uint32_t))) {
      blocks.push_back(number);
    }
  }
}

}  // namespace gradwire::cpu
#endif
