// The loops of minmax and absmax for each instruction set: four vectors of levels make one of
// codes.
#include "compress/uniform/uniform_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/uniform/uniform_simd.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void simd_nearest(const UniformPlace<float>& place, std::span<const float> x, std::uint8_t* codes) {
  plain::round_nearest(place, x, codes);
}
void simd_stochastic(const UniformPlace<float>& place, std::span<const float> x,
                     const std::byte* draws, std::uint8_t* codes) {
  plain::round_stochastic(place, x, draws, codes);
}
void simd_expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes, bool add,
                 std::span<float> dst) {
  plain::expand(meaning, codes, add, dst);
}
std::size_t simd_find(std::span<const float> x, float value, std::size_t except) {
  return plain::find(x, value, except);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr Int32s kInts;
constexpr Int16s kShorts;
constexpr hn::ScalableTag<std::uint8_t> kCodes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kRun = 4 * kLanes;  // elements whose codes fill a vector
using Floats = hn::Vec<hn::ScalableTag<float> >;

// UniformPlace in every lane.
struct Places {
  explicit Places(const UniformPlace<float>& place)
      : base(hn::Set(kFloats, place.base)),
        before(hn::Set(kFloats, place.before)),
        by(hn::Set(kFloats, place.by)),
        zero(hn::Set(kFloats, place.zero)) {}
  HWY_INLINE Floats of(const float* x) const {
    const Floats above = hn::Sub(hn::LoadU(kFloats, x), base);
    return hn::Add(hn::Mul(hn::Mul(above, before), by), zero);
  }
  Floats base;
  Floats before;
  Floats by;
  Floats zero;
};

// Levels of kRun elements, cut at `most`.
HWY_INLINE void store_codes(const hn::Vec<Int32s>* levels, hn::Vec<Int16s> most,
                            std::uint8_t* codes) {
  Halves all = halves(levels);
  all.low = hn::Min(all.low, most);
  all.high = hn::Min(all.high, most);
  hn::StoreU(unsigned_bytes_of(all), kCodes, codes);
}

void simd_nearest(const UniformPlace<float>& place, std::span<const float> x, std::uint8_t* codes) {
  const Places places(place);
  const auto most = hn::Set(kShorts, static_cast<std::int16_t>(place.most));
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    hn::Vec<Int32s> levels[4];
    for (std::size_t v = 0; v < 4; ++v) {
      levels[v] = nearest(places.of(x.data() + i + v * kLanes));
    }
    store_codes(levels, most, codes + i);
  }
  plain::round_nearest(place, x.subspan(i), codes + i);
}

void simd_stochastic(const UniformPlace<float>& place, std::span<const float> x,
                     const std::byte* draws, std::uint8_t* codes) {
  const hn::Rebind<std::uint16_t, hn::ScalableTag<float> > narrow;
  const Places places(place);
  const auto most = hn::Set(kShorts, static_cast<std::int16_t>(place.most));
  const auto half = hn::Set(kFloats, 0.5f);
  const auto unit = hn::Set(kFloats, 0x1p-16f);
  const auto one = hn::Set(kFloats, 1.0f);
  const auto* words = reinterpret_cast<const std::uint16_t*>(draws);
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    hn::Vec<Int32s> levels[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const std::size_t at = i + v * kLanes;
      const Floats a = places.of(x.data() + at);
      const Floats whole = hn::Trunc(a);
      const auto word = hn::PromoteTo(kInts, hn::LoadU(narrow, words + at));
      const Floats draw = hn::Mul(hn::Add(hn::ConvertTo(kFloats, word), half), unit);
      const auto up = hn::Lt(draw, hn::Sub(a, whole));
      levels[v] = nearest(hn::Add(whole, hn::IfThenElseZero(up, one)));
    }
    store_codes(levels, most, codes + i);
  }
  plain::round_stochastic(place, x.subspan(i), draws + 2 * i, codes + i);
}

template <bool Add>
HWY_INLINE std::size_t expand_vectors(const UniformMeaning<float>& meaning,
                                      const std::uint8_t* codes, std::span<float> dst) {
  const hn::Rebind<std::uint8_t, hn::ScalableTag<float> > bytes;
  const auto base = hn::Set(kFloats, meaning.base);
  const auto scale = hn::Set(kFloats, meaning.scale);
  const auto zero = hn::Set(kFloats, meaning.zero);
  const auto step = hn::Set(kFloats, meaning.step);
  float* to = dst.data();
  std::size_t i = 0;
  for (; i + kLanes <= dst.size(); i += kLanes) {
    const Floats code = hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(bytes, codes + i)));
    Floats value = hn::Add(base, hn::Mul(scale, hn::Mul(hn::Sub(code, zero), step)));
    if constexpr (Add) value = hn::Add(hn::LoadU(kFloats, to + i), value);
    hn::StoreU(value, kFloats, to + i);
  }
  return i;
}

void simd_expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes, bool add,
                 std::span<float> dst) {
  const std::size_t done =
      add ? expand_vectors<true>(meaning, codes, dst) : expand_vectors<false>(meaning, codes, dst);
  plain::expand(meaning, codes + done, add, dst.subspan(done));
}

std::size_t simd_find(std::span<const float> x, float value, std::size_t except) {
  const auto wanted = hn::BitCast(kInts, hn::Set(kFloats, value));
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    const auto bits = hn::BitCast(kInts, hn::LoadU(kFloats, x.data() + i));
    std::size_t found = hn::CountTrue(kInts, hn::Eq(bits, wanted));
    if (except >= i && except < i + kLanes) {
      found -= std::bit_cast<std::int32_t>(x[except]) == std::bit_cast<std::int32_t>(value) ? 1 : 0;
    }
    if (found > 0) break;
  }
  const std::size_t left = except < i ? x.size() : except - i;
  return i + plain::find(x.subspan(i), value, left);
}

#endif
}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_nearest);
HWY_EXPORT(simd_stochastic);
HWY_EXPORT(simd_expand);
HWY_EXPORT(simd_find);

void round_nearest(const UniformPlace<float>& place, std::span<const float> x,
                   std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_nearest)(place, x, codes);
}
void round_stochastic(const UniformPlace<float>& place, std::span<const float> x,
                      const std::byte* draws, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_stochastic)(place, x, draws, codes);
}
void expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes, bool add,
            std::span<float> dst) {
  HWY_DYNAMIC_DISPATCH(simd_expand)(meaning, codes, add, dst);
}
std::size_t find(std::span<const float> x, float value, std::size_t except) {
  return HWY_DYNAMIC_DISPATCH(simd_find)(x, value, except);
}

}  // namespace gradwire::cpu::simd
#endif
