// onebit's loops for each instruction set, sixteen elements at a time.
#include "compress/onebit/onebit_loops.h"

#include "compress/little_endian.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/onebit/onebit_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace onebit_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_sum_sides(std::span<const float> x, SideSums& sums, std::byte* signs) {
  plain::sum_sides(x, sums, signs);
}
void simd_put_sides(const std::byte* signs, float plus, float minus, const float* onto,
                    std::span<float> dst) {
  plain::put_sides(signs, plus, minus, onto, dst);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kVectors = kGroup / kLanes;
static_assert(kGroup == SideSums::kLanes);

// SideSums in registers.
class GroupSides {
 public:
  HWY_INLINE explicit GroupSides(const SideSums& sums) {
    for (std::size_t v = 0; v < kParts; ++v) {
      plus_[v] = hn::LoadU(kDoubles, sums.plus.data() + v * kHalf);
      minus_[v] = hn::LoadU(kDoubles, sums.minus.data() + v * kHalf);
    }
  }
  HWY_INLINE void add(const float* x) {
    const auto zero = hn::Zero(kDoubles);
    for (std::size_t v = 0; v < kParts; ++v) {
      const auto value = hn::PromoteTo(kDoubles, hn::LoadU(kHalves, x + v * kHalf));
      const auto negative = hn::Lt(value, zero);
      plus_[v] = hn::Add(plus_[v], hn::IfThenZeroElse(negative, value));
      minus_[v] = hn::Add(minus_[v], hn::IfThenElseZero(negative, hn::Neg(value)));
    }
  }
  HWY_INLINE void store(SideSums& sums) const {
    for (std::size_t v = 0; v < kParts; ++v) {
      hn::StoreU(plus_[v], kDoubles, sums.plus.data() + v * kHalf);
      hn::StoreU(minus_[v], kDoubles, sums.minus.data() + v * kHalf);
    }
  }

 private:
  static constexpr hn::ScalableTag<double> kDoubles{};
  static constexpr hn::Rebind<float, hn::ScalableTag<double> > kHalves{};
  static constexpr std::size_t kHalf = hn::MaxLanes(kDoubles);
  static constexpr std::size_t kParts = kGroup / kHalf;
  hn::Vec<hn::ScalableTag<double> > plus_[kParts];
  hn::Vec<hn::ScalableTag<double> > minus_[kParts];
};

void simd_sum_sides(std::span<const float> x, SideSums& sums, std::byte* signs) {
  GroupSides sides(sums);
  auto* const bits = reinterpret_cast<std::uint8_t*>(signs);
  std::size_t i = 0;
  for (; i + kGroup <= x.size(); i += kGroup) {
    fetch_ahead(x.data() + i);
    sides.add(x.data() + i);
    hn::Mask<decltype(kFloats)> below[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      below[v] = hn::Lt(hn::LoadU(kFloats, x.data() + i + v * kLanes), hn::Zero(kFloats));
      sums.below += hn::CountTrue(kFloats, below[v]);
    }
    store_group_bits(kFloats, below, bits + i / 8);
  }
  sides.store(sums);
  plain::sum_sides(x.subspan(i), sums, signs + i / 8);
}

template <bool Onto>
HWY_INLINE std::size_t put_groups(const std::byte* signs, float plus, float minus,
                                  const float* onto, std::span<float> dst) {
  const auto above = hn::Set(kFloats, plus);
  const auto below = hn::Set(kFloats, -minus);
  std::size_t i = 0;
  for (; i + kGroup <= dst.size(); i += kGroup) {
    hwy::Prefetch(signs + i / 8 + kAheadBytes / 8);
    const unsigned group = load_le<std::uint16_t>(signs + i / 8);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kLanes;
      auto value = hn::IfThenElse(group_mask(kFloats, group, v), below, above);
      if constexpr (Onto) value = hn::Add(hn::LoadU(kFloats, onto + at), value);
      hn::StoreU(value, kFloats, dst.data() + at);
    }
  }
  return i;
}

void simd_put_sides(const std::byte* signs, float plus, float minus, const float* onto,
                    std::span<float> dst) {
  const std::size_t done = onto != nullptr ? put_groups<true>(signs, plus, minus, onto, dst)
                                           : put_groups<false>(signs, plus, minus, onto, dst);
  plain::put_sides(signs + done / 8, plus, minus, onto == nullptr ? onto : onto + done,
                   dst.subspan(done));
}

#endif
}  // namespace onebit_lanes

using onebit_lanes::simd_put_sides;
using onebit_lanes::simd_sum_sides;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_sum_sides);
HWY_EXPORT(simd_put_sides);

void sum_sides(std::span<const float> x, SideSums& sums, std::byte* signs) {
  HWY_DYNAMIC_DISPATCH(simd_sum_sides)(x, sums, signs);
}
void put_sides(const std::byte* signs, float plus, float minus, const float* onto,
               std::span<float> dst) {
  HWY_DYNAMIC_DISPATCH(simd_put_sides)(signs, plus, minus, onto, dst);
}

}  // namespace gradwire::cpu::simd
#endif
