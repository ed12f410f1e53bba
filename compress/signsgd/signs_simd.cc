// The fp32 kernels of signsgd for each instruction set.
#include <cmath>
#include <cstring>

#include "compress/little_endian.h"
#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signsgd/signsgd_plain.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/signsgd/signs_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace signs_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_sum_and_pack(const Corrected<float>& p, double* lanes, std::byte* bits) {
  plain::sum_and_pack<float>(p, lanes, bits);
}
void simd_unpack(const std::byte* bits, float scale, bool add, std::span<float> dst) {
  plain::unpack_signs<float>(bits, 0, scale, add, dst);
}
void simd_take_away(const Corrected<float>& p, const std::byte* bits, float scale, float* next) {
  plain::take_away<float>(p, bits, 0, scale, next);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kVectors = kGroup / kLanes;

// Element i of a group into double lane i.
template <bool Fed>
class GroupSum {
 public:
  HWY_INLINE explicit GroupSum(const double* lanes) {
    for (std::size_t v = 0; v < kParts; ++v) part_[v] = hn::LoadU(kDoubles, lanes + v * kHalf);
  }
  HWY_INLINE void add(const Corrected<float>& p, std::size_t i) {
    for (std::size_t v = 0; v < kParts; ++v) {
      const auto value = hn::PromoteTo(kDoubles, load<Fed>(kHalves, p, i + v * kHalf));
      part_[v] = hn::Add(part_[v], hn::Abs(value));
    }
  }
  HWY_INLINE void store(double* lanes) const {
    for (std::size_t v = 0; v < kParts; ++v) hn::StoreU(part_[v], kDoubles, lanes + v * kHalf);
  }

 private:
  static constexpr hn::ScalableTag<double> kDoubles{};
  static constexpr hn::Rebind<float, hn::ScalableTag<double> > kHalves{};
  static constexpr std::size_t kHalf = hn::MaxLanes(kDoubles);
  static constexpr std::size_t kParts = kGroup / kHalf;
  hn::Vec<hn::ScalableTag<double> > part_[kParts];
};

template <bool Fed, bool kPack>
void sum_groups(const Corrected<float>& p, double* lanes, std::byte* bits) {
  GroupSum<Fed> sum(lanes);
  const auto zero = hn::Zero(kFloats);
  std::size_t i = 0;
  for (; i + kGroup <= p.size; i += kGroup) {
    fetch_ahead<Fed>(p, i);
    sum.add(p, i);
    if constexpr (kPack) {
      hn::Mask<decltype(kFloats)> below[kVectors];
      for (std::size_t v = 0; v < kVectors; ++v) {
        below[v] = hn::Lt(load<Fed>(kFloats, p, i + v * kLanes), zero);
      }
      store_group_bits(kFloats, below, reinterpret_cast<std::uint8_t*>(bits) + i / 8);
    }
  }
  sum.store(lanes);
  plain::sum_and_pack<float>(p.part(i, p.size - i), lanes, kPack ? bits + i / 8 : nullptr);
}

void simd_sum_and_pack(const Corrected<float>& p, double* lanes, std::byte* bits) {
  const bool fed = p.residual != nullptr;
  if (bits == nullptr) {
    fed ? sum_groups<true, false>(p, lanes, bits) : sum_groups<false, false>(p, lanes, bits);
  } else {
    fed ? sum_groups<true, true>(p, lanes, bits) : sum_groups<false, true>(p, lanes, bits);
  }
}

// Calls put(i, v, +-scale) for every vector of whole groups; the elements done.
template <class Put>
HWY_INLINE std::size_t each_signed(const std::byte* bits, float scale, std::size_t count,
                                   const Put& put) {
  const auto plus = hn::Set(kFloats, scale);
  const auto minus = hn::Neg(plus);
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    hwy::Prefetch(bits + i / 8 + kAheadBytes / 8);
    const unsigned group = load_le<std::uint16_t>(bits + i / 8);
    for (std::size_t v = 0; v < kVectors; ++v) {
      put(i + v * kLanes, hn::IfThenElse(group_mask(kFloats, group, v), minus, plus));
    }
  }
  return i;
}

void simd_unpack(const std::byte* bits, float scale, bool add, std::span<float> dst) {
  float* to = dst.data();
  using V = hn::Vec<decltype(kFloats)>;
  std::size_t done = 0;
  if (add) {
    done = each_signed(bits, scale, dst.size(), [to](std::size_t i, V value) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(kFloats, to + i), value), kFloats, to + i);
    });
  } else {
    done = each_signed(bits, scale, dst.size(), [to](std::size_t i, V value) HWY_ATTR {
      hn::StoreU(value, kFloats, to + i);
    });
  }
  plain::unpack_signs<float>(bits, done, scale, add, dst.subspan(done));
}

void simd_take_away(const Corrected<float>& p, const std::byte* bits, float scale, float* next) {
  using V = hn::Vec<decltype(kFloats)>;
  const std::size_t done = each_signed(bits, scale, p.size, [&](std::size_t i, V value) HWY_ATTR {
    hn::StoreU(hn::Sub(load<true>(kFloats, p, i), value), kFloats, next + i);
  });
  plain::take_away<float>(p.part(done, p.size - done), bits, done, scale, next + done);
}

#endif
}  // namespace signs_lanes

using signs_lanes::simd_sum_and_pack;
using signs_lanes::simd_take_away;
using signs_lanes::simd_unpack;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_sum_and_pack);
HWY_EXPORT(simd_unpack);
HWY_EXPORT(simd_take_away);

template <>
void sum_and_pack(const Corrected<float>& p, SumLanes& lanes, std::byte* bits) {
  HWY_DYNAMIC_DISPATCH(simd_sum_and_pack)(p, lanes.data(), bits);
}
template <>
void unpack_signs(const std::byte* bits, std::size_t first, float scale, bool add,
                  std::span<float> dst) {
  if (first % 8 != 0) return plain::unpack_signs(bits, first, scale, add, dst);
  HWY_DYNAMIC_DISPATCH(simd_unpack)(bits + first / 8, scale, add, dst);
}
template <>
void take_away(const Corrected<float>& p, const std::byte* bits, std::size_t first, float scale,
               float* next) {
  if (first % 8 != 0) return plain::take_away(p, bits, first, scale, next);
  HWY_DYNAMIC_DISPATCH(simd_take_away)(p, bits + first / 8, scale, next);
}

}  // namespace gradwire::cpu
#endif
