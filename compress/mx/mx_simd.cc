#include "compress/mx/mx_loops.h"

#include <algorithm>
#include <bit>
#include <limits>

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/mx/mx_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/tiny_floats-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace mx_lanes {
#if HWY_TARGET == HWY_SCALAR

bool simd_mx_codes(MxType, std::span<const float>, std::uint8_t*, std::uint8_t*) { return false; }
bool simd_mx_values(MxType, const std::uint8_t*, const std::uint8_t*, bool, std::span<float>) {
  return false;
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr hn::ScalableTag<std::int32_t> kInts;
constexpr hn::Rebind<std::uint8_t, hn::ScalableTag<float> > kBytes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kVectors = kMxBlock / kLanes;

template <class Float>
HWY_INLINE std::uint8_t code_block(const float* x, std::uint8_t* codes) {
  const auto magnitude = hn::Set(kWords, 0x7fffffffu);
  hn::Vec<hn::ScalableTag<float> > value[kVectors];
  auto most = hn::Zero(kWords);
  for (std::size_t v = 0; v < kVectors; ++v) {
    value[v] = hn::LoadU(kFloats, x + v * kLanes);
    most = hn::Max(most, hn::And(hn::BitCast(kWords, value[v]), magnitude));
  }
  const int field = static_cast<int>(hn::GetLane(hn::MaxOfLanes(kWords, most)) >> 23);
  if (field >= 255) {
    std::fill_n(codes, kMxBlock, std::uint8_t{0});
    return static_cast<std::uint8_t>(kMxNaN);
  }
  const int scale = std::max(field - exponent_of_largest<Float>(), 0);
  const auto factor = hn::Set(kFloats, power_of_two<float>(127 - scale));
  for (std::size_t v = 0; v < kVectors; ++v) {
    const auto code = tiny_codes<Float>(hn::Mul(value[v], factor));
    hn::StoreU(hn::DemoteTo(kBytes, hn::BitCast(kInts, code)), kBytes, codes + v * kLanes);
  }
  return static_cast<std::uint8_t>(scale);
}

bool simd_mx_codes(MxType type, std::span<const float> x, std::uint8_t* scales,
                   std::uint8_t* codes) {
  return with_mx_float(type, [&]<typename Float>() HWY_ATTR {
    for (std::size_t b = 0; b < x.size() / kMxBlock; ++b) {
      const float* const block = x.data() + b * kMxBlock;
      fetch_ahead(block);
      fetch_ahead(block + kGroup);
      scales[b] = code_block<Float>(block, codes + b * kMxBlock);
    }
    return true;
  });
}

template <class Float, bool Add>
HWY_INLINE void value_blocks(const std::uint8_t* scales, const std::uint8_t* codes,
                             std::span<float> dst) {
  for (std::size_t b = 0; b < dst.size() / kMxBlock; ++b) {
    const auto factor =
        hn::Set(kFloats, scales[b] == kMxNaN ? std::numeric_limits<float>::quiet_NaN()
                                             : power_of_two<float>(scales[b] - 127));
    for (std::size_t i = b * kMxBlock; i < (b + 1) * kMxBlock; i += kLanes) {
      const auto code = hn::PromoteTo(kWords, hn::LoadU(kBytes, codes + i));
      auto value = hn::Mul(tiny_values<Float>(code), factor);
      if constexpr (Add) value = hn::Add(hn::LoadU(kFloats, dst.data() + i), value);
      hn::StoreU(value, kFloats, dst.data() + i);
    }
  }
}

bool simd_mx_values(MxType type, const std::uint8_t* scales, const std::uint8_t* codes, bool add,
                    std::span<float> dst) {
  return with_mx_float(type, [&]<typename Float>() HWY_ATTR {
    add ? value_blocks<Float, true>(scales, codes, dst)
        : value_blocks<Float, false>(scales, codes, dst);
    return true;
  });
}

#endif
}  // namespace mx_lanes

using mx_lanes::simd_mx_codes;
using mx_lanes::simd_mx_values;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_mx_codes);
HWY_EXPORT(simd_mx_values);

bool mx_codes(MxType type, std::span<const float> x, std::uint8_t* scales, std::uint8_t* codes) {
  return HWY_DYNAMIC_DISPATCH(simd_mx_codes)(type, x, scales, codes);
}
bool mx_values(MxType type, const std::uint8_t* scales, const std::uint8_t* codes, bool add,
               std::span<float> dst) {
  return HWY_DYNAMIC_DISPATCH(simd_mx_values)(type, scales, codes, add, dst);
}

}  // namespace gradwire::cpu
#endif
