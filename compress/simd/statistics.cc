#include "compress/simd/statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "compress/value_range.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/simd/statistics.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

#ifndef GW_COMPRESS_SIMD_STATISTICS_ONCE
#define GW_COMPRESS_SIMD_STATISTICS_ONCE
namespace gradwire::cpu {

inline constexpr std::uint32_t kMagnitudeBits = 0x7fffffffu;
inline constexpr std::size_t kPartialSums = kSquareSums;
using PartialSums = std::array<double, kPartialSums>;

// Integers in the order of the numbers; see order_of().
struct Extremes {
  std::int32_t low = std::numeric_limits<std::int32_t>::max();
  std::int32_t high = std::numeric_limits<std::int32_t>::min();
};

inline std::uint32_t plain_largest(const Corrected<float>& p, std::size_t from,
                                   std::uint32_t most) {
  for (std::size_t i = from; i < p.size; ++i) {
    most = std::max(most, std::bit_cast<std::uint32_t>(p[i]) & kMagnitudeBits);
  }
  return most;
}
inline Extremes plain_extremes(std::span<const float> x, Extremes found) {
  for (const float value : x) {
    const std::int32_t key = order_of<float>(std::bit_cast<std::int32_t>(value));
    found = {std::min(found.low, key), std::max(found.high, key)};
  }
  return found;
}
inline void plain_squares(std::span<const float> x, PartialSums& sums) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<double>(x[i]);
    sums[i % kPartialSums] += value * value;
  }
}

}  // namespace gradwire::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace statistics_lanes {
#if HWY_TARGET == HWY_SCALAR

std::uint32_t simd_largest(const Corrected<float>& p) { return plain_largest(p, 0, 0); }
Extremes simd_extremes(std::span<const float> x) { return plain_extremes(x, {}); }
void simd_squares(std::span<const float> x, PartialSums& sums) { plain_squares(x, sums); }

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kBits;
constexpr hn::ScalableTag<std::int32_t> kInts;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);

template <bool Fed>
std::uint32_t largest_of(const Corrected<float>& p) {
  const auto magnitude = hn::Set(kBits, kMagnitudeBits);
  auto even = hn::Zero(kBits);
  auto odd = hn::Zero(kBits);
  std::size_t i = 0;
  for (; i + 2 * kGroup <= p.size; i += 2 * kGroup) {
    fetch_ahead<Fed>(p, i);
    fetch_ahead<Fed>(p, i + kGroup);
    for (std::size_t v = 0; v < 2 * kGroup; v += 2 * kLanes) {
      const auto a = hn::BitCast(kBits, load<Fed>(kFloats, p, i + v));
      const auto b = hn::BitCast(kBits, load<Fed>(kFloats, p, i + v + kLanes));
      even = hn::Max(even, hn::And(a, magnitude));
      odd = hn::Max(odd, hn::And(b, magnitude));
    }
  }
  return plain_largest(p, i, hn::GetLane(hn::MaxOfLanes(kBits, hn::Max(even, odd))));
}

std::uint32_t simd_largest(const Corrected<float>& p) {
  return p.residual != nullptr ? largest_of<true>(p) : largest_of<false>(p);
}

Extremes simd_extremes(std::span<const float> x) {
  const auto flip = hn::Set(kInts, static_cast<std::int32_t>(kMagnitudeBits));
  const Extremes none;
  auto low = hn::Set(kInts, none.low);
  auto high = hn::Set(kInts, none.high);
  std::size_t i = 0;
  for (; i + kGroup <= x.size(); i += kGroup) {
    fetch_ahead(x.data() + i);
    for (std::size_t v = i; v < i + kGroup; v += kLanes) {
      const auto bits = hn::BitCast(kInts, hn::LoadU(kFloats, x.data() + v));
      const auto key = hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), flip));
      low = hn::Min(low, key);
      high = hn::Max(high, key);
    }
  }
  return plain_extremes(x.subspan(i), {hn::GetLane(hn::MinOfLanes(kInts, low)),
                                       hn::GetLane(hn::MaxOfLanes(kInts, high))});
}

void simd_squares(std::span<const float> x, PartialSums& sums) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  constexpr std::size_t kWide = hn::MaxLanes(wide);
  hn::Vec<decltype(wide)> parts[kPartialSums / kWide];
  for (std::size_t v = 0; v < kPartialSums / kWide; ++v) {
    parts[v] = hn::LoadU(wide, sums.data() + v * kWide);
  }
  std::size_t i = 0;
  for (; i + kPartialSums <= x.size(); i += kPartialSums) {
    for (std::size_t v = 0; v < kPartialSums / kWide; ++v) {
      const auto value = hn::PromoteTo(wide, hn::LoadU(narrow, x.data() + i + v * kWide));
      parts[v] = hn::Add(parts[v], hn::Mul(value, value));
    }
  }
  for (std::size_t v = 0; v < kPartialSums / kWide; ++v) {
    hn::StoreU(parts[v], wide, sums.data() + v * kWide);
  }
  plain_squares(x.subspan(i), sums);
}

#endif
}  // namespace statistics_lanes

using statistics_lanes::simd_extremes;
using statistics_lanes::simd_largest;
using statistics_lanes::simd_squares;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_largest);
HWY_EXPORT(simd_extremes);
HWY_EXPORT(simd_squares);

float largest_magnitude(const Corrected<float>& p) {
  return std::bit_cast<float>(HWY_DYNAMIC_DISPATCH(simd_largest)(p));
}

static Extremes extremes_of(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(simd_extremes)(x);
}

void add_squares(std::span<const float> x, PartialSums& sums) {
  HWY_DYNAMIC_DISPATCH(simd_squares)(x, sums);
}

}  // namespace gradwire::cpu

namespace gradwire {

template <>
ValueRange<float> range_of<float>(std::span<const float> x) {
  const cpu::Extremes found = cpu::extremes_of(x);
  const auto low = std::bit_cast<float>(order_of<float>(found.low));
  const auto high = std::bit_cast<float>(order_of<float>(found.high));
  return {low, high, std::isfinite(low) && std::isfinite(high)};
}

}  // namespace gradwire
#endif
