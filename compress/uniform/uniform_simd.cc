// The loops of minmax and absmax for each instruction set: four vectors of levels make one of
// codes.
#include "compress/uniform/uniform_loops.h"

#include <algorithm>
#include <bit>

#include "compress/simd/statistics.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/uniform/uniform_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/beside-inl.h"
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

#ifndef GW_COMPRESS_UNIFORM_SIMD_ONCE
#define GW_COMPRESS_UNIFORM_SIMD_ONCE
namespace gradwire::cpu {

// Of the sum's elements from `first` on.
inline UniformSeen plain_sum(const UniformSum& next, std::size_t first) {
  if (first == next.sum.size()) return {};
  const std::span<float> sum = next.sum.subspan(first);
  const std::uint8_t code = plain::expand(next.meaning, next.codes + first, next.onto + first, sum);
  return {plain_largest_bits(sum), code};
}

// Of the elements from `first` on.
inline std::uint32_t plain_corrected(const Corrected<float>& p, std::size_t first, float* sum) {
  for (std::size_t i = first; i < p.size; ++i) sum[i] = p.grad[i] + p.residual[i];
  return plain_largest_bits({sum + first, p.size - first});
}

}  // namespace gradwire::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace uniform_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_nearest(const UniformPlace<float>& place, std::span<const float> x, std::uint8_t* codes) {
  plain::round_nearest(place, x, codes);
}
void simd_stochastic(const UniformPlace<float>& place, std::span<const float> x,
                     const std::byte* draws, std::uint8_t* codes) {
  plain::round_stochastic(place, x, draws, codes);
}
float simd_nearest_reading(const UniformPlace<float>& place, std::span<const float> x,
                           std::uint8_t* codes, std::span<const float> next) {
  plain::round_nearest(place, x, codes);
  return std::bit_cast<float>(plain_largest_bits(next));
}
UniformSeen simd_nearest_adding(const UniformPlace<float>& place, std::span<const float> x,
                                std::uint8_t* codes, const UniformSum& next) {
  plain::round_nearest(place, x, codes);
  return plain_sum(next, 0);
}
float simd_settling(const UniformSettling& bucket, const Corrected<float>& next, float* sum) {
  plain::settle(bucket, 0);
  return std::bit_cast<float>(plain_corrected(next, 0, sum));
}
std::uint8_t simd_expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes,
                         const float* onto, std::span<float> dst) {
  return plain::expand(meaning, codes, onto, dst);
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
constexpr std::size_t kRun = kBesideRun;  // elements whose codes fill a vector
using Floats = hn::Vec<hn::ScalableTag<float> >;

// UniformPlace in every lane.
struct Places {
  explicit Places(const UniformPlace<float>& place)
      : base(hn::Set(kFloats, place.base)),
        before(hn::Set(kFloats, place.before)),
        by(hn::Set(kFloats, place.by)),
        zero(hn::Set(kFloats, place.zero)) {}
  // Centred: base is 0 and before is 1, which change nothing.
  template <bool Centred = false>
  HWY_INLINE Floats of(const float* x) const {
    const Floats value = hn::LoadU(kFloats, x);
    if constexpr (Centred) {
      return hn::Add(hn::Mul(value, by), zero);
    } else {
      return hn::Add(hn::Mul(hn::Mul(hn::Sub(value, base), before), by), zero);
    }
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

// UniformMeaning in every lane.
struct Meanings {
  explicit Meanings(const UniformMeaning<float>& meaning)
      : base(hn::Set(kFloats, meaning.base)),
        scale(hn::Set(kFloats, meaning.scale)),
        zero(hn::Set(kFloats, meaning.zero)),
        step(hn::Set(kFloats, meaning.step)) {}
  HWY_INLINE Floats of(const std::uint8_t* codes) const {
    const hn::Rebind<std::uint8_t, hn::ScalableTag<float> > bytes;
    return at(hn::ConvertTo(kFloats, hn::PromoteTo(kInts, hn::LoadU(bytes, codes))));
  }
  HWY_INLINE Floats at(Floats code) const {
    return hn::Add(base, hn::Mul(scale, hn::Mul(hn::Sub(code, zero), step)));
  }
  Floats base;
  Floats scale;
  Floats zero;
  Floats step;
};

HWY_INLINE std::uint8_t largest_byte(hn::Vec<hn::ScalableTag<std::uint8_t> > bytes) {
  const hn::ScalableTag<std::uint16_t> pairs;
  const auto both = hn::BitCast(pairs, bytes);
  const auto low = hn::And(both, hn::Set(pairs, std::uint16_t{0xff}));
  return static_cast<std::uint8_t>(
      hn::GetLane(hn::MaxOfLanes(pairs, hn::Max(low, hn::ShiftRight<8>(both)))));
}

// What a fold does beside rounding.
struct Adding {
  explicit Adding(const UniformSum& next) : to(next), meanings(next.meaning) {}
  std::size_t size() const { return to.sum.size(); }
  HWY_INLINE void run(std::size_t i) {
    hwy::Prefetch(to.codes + i + kAheadBytes / 2);
    for (std::size_t g = 0; g < kRun; g += kGroup) fetch_ahead(to.onto + i + g);
    code = hn::Max(code, hn::LoadU(kCodes, to.codes + i));
    for (std::size_t v = i; v < i + kRun; v += 2 * kLanes) {
      largest.see(one(v), one(v + kLanes));
    }
  }
  HWY_INLINE Floats one(std::size_t i) const {
    const Floats sum = hn::Add(hn::LoadU(kFloats, to.onto + i), meanings.of(to.codes + i));
    hn::StoreU(sum, kFloats, to.sum.data() + i);
    return sum;
  }
  const UniformSum& to;
  Meanings meanings;
  Largest largest;
  hn::Vec<hn::ScalableTag<std::uint8_t> > code = hn::Zero(kCodes);
};

// What error feedback does beside rounding.
struct Summing {
  Summing(const Corrected<float>& p, float* to) : from(p), sum(to) {}
  std::size_t size() const { return from.size; }
  HWY_INLINE void run(std::size_t i) {
    for (std::size_t g = 0; g < kRun; g += kGroup) fetch_ahead<true>(from, i + g);
    for (std::size_t v = i; v < i + kRun; v += 2 * kLanes) largest.see(one(v), one(v + kLanes));
  }
  HWY_INLINE Floats one(std::size_t i) const {
    const Floats p = load<true>(kFloats, from, i);
    hn::StoreU(p, kFloats, sum + i);
    return p;
  }
  const Corrected<float>& from;
  float* sum;
  Largest largest;
};

template <bool Centred>
HWY_INLINE RunsDone settle_runs(const UniformSettling& bucket, Summing& beside) {
  const Places places(bucket.place);
  const Meanings meanings(bucket.meaning);
  const auto most = hn::Set(kShorts, static_cast<std::int16_t>(bucket.place.most));
  const auto most_level = hn::Set(kInts, static_cast<std::int32_t>(bucket.place.most));
  const Floats own_scale = hn::Set(kFloats, bucket.own_scale);
  return runs_beside(bucket.x.size(), beside, [&](std::size_t i) HWY_ATTR {
    hn::Vec<Int32s> levels[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const float* const x = bucket.x.data() + i + v * kLanes;
      levels[v] = nearest(places.of<Centred>(x));
      const Floats own = meanings.at(hn::ConvertTo(kFloats, hn::Min(levels[v], most_level)));
      hn::StoreU(hn::Sub(hn::LoadU(kFloats, x), hn::Mul(own, own_scale)), kFloats,
                 bucket.left + i + v * kLanes);
    }
    store_codes(levels, most, bucket.codes + i);
  });
}

float simd_settling(const UniformSettling& bucket, const Corrected<float>& next, float* sum) {
  Summing beside(next, sum);
  const bool centred = bucket.place.base == 0 && bucket.place.before == 1;
  const RunsDone done =
      centred ? settle_runs<true>(bucket, beside) : settle_runs<false>(bucket, beside);
  plain::settle(bucket, done.own);
  return std::bit_cast<float>(
      std::max(beside.largest.bits(), plain_corrected(next, done.beside, sum)));
}

// Rounds all of x; returns how many of beside's elements were met.
template <bool Centred, class Beside>
HWY_INLINE std::size_t round_runs(const UniformPlace<float>& place, std::span<const float> x,
                                  std::uint8_t* codes, Beside& beside) {
  const Places places(place);
  const auto most = hn::Set(kShorts, static_cast<std::int16_t>(place.most));
  const RunsDone done = runs_beside(x.size(), beside, [&](std::size_t i) HWY_ATTR {
    hn::Vec<Int32s> levels[4];
    for (std::size_t v = 0; v < 4; ++v) {
      levels[v] = nearest(places.of<Centred>(x.data() + i + v * kLanes));
    }
    store_codes(levels, most, codes + i);
  });
  plain::round_nearest(place, x.subspan(done.own), codes + done.own);
  return done.beside;
}
template <class Beside>
std::size_t round_beside(const UniformPlace<float>& place, std::span<const float> x,
                         std::uint8_t* codes, Beside& beside) {
  const bool centred = place.base == 0 && place.before == 1;
  return centred ? round_runs<true>(place, x, codes, beside)
                 : round_runs<false>(place, x, codes, beside);
}

void simd_nearest(const UniformPlace<float>& place, std::span<const float> x, std::uint8_t* codes) {
  Nothing nothing;
  round_beside(place, x, codes, nothing);
}

float simd_nearest_reading(const UniformPlace<float>& place, std::span<const float> x,
                           std::uint8_t* codes, std::span<const float> next) {
  Reading reading(next);
  const std::size_t met = round_beside(place, x, codes, reading);
  return std::bit_cast<float>(
      std::max(reading.largest.bits(), plain_largest_bits(next.subspan(met))));
}

UniformSeen simd_nearest_adding(const UniformPlace<float>& place, std::span<const float> x,
                                std::uint8_t* codes, const UniformSum& next) {
  Adding adding(next);
  const std::size_t met = round_beside(place, x, codes, adding);
  const UniformSeen rest = plain_sum(next, met);
  return {std::max(rest.magnitude, adding.largest.bits()),
          std::max(rest.code, largest_byte(adding.code))};
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

template <bool Onto>
HWY_INLINE std::size_t expand_runs(const UniformMeaning<float>& meaning, const std::uint8_t* codes,
                                   const float* onto, std::span<float> dst, std::uint8_t& largest) {
  const Meanings meanings(meaning);
  auto most = hn::Zero(kCodes);
  std::size_t i = 0;
  for (; i + kRun <= dst.size(); i += kRun) {
    most = hn::Max(most, hn::LoadU(kCodes, codes + i));
    for (std::size_t v = i; v < i + kRun; v += kLanes) {
      Floats value = meanings.of(codes + v);
      if constexpr (Onto) value = hn::Add(hn::LoadU(kFloats, onto + v), value);
      hn::StoreU(value, kFloats, dst.data() + v);
    }
  }
  largest = largest_byte(most);
  return i;
}

std::uint8_t simd_expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes,
                         const float* onto, std::span<float> dst) {
  std::uint8_t largest = 0;
  const std::size_t done = onto != nullptr ? expand_runs<true>(meaning, codes, onto, dst, largest)
                                           : expand_runs<false>(meaning, codes, onto, dst, largest);
  return std::max(largest, plain::expand(meaning, codes + done,
                                         onto == nullptr ? onto : onto + done, dst.subspan(done)));
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
}  // namespace uniform_lanes

using uniform_lanes::simd_expand;
using uniform_lanes::simd_find;
using uniform_lanes::simd_nearest;
using uniform_lanes::simd_nearest_adding;
using uniform_lanes::simd_nearest_reading;
using uniform_lanes::simd_settling;
using uniform_lanes::simd_stochastic;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_nearest);
HWY_EXPORT(simd_stochastic);
HWY_EXPORT(simd_nearest_reading);
HWY_EXPORT(simd_nearest_adding);
HWY_EXPORT(simd_settling);
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
float round_nearest_reading(const UniformPlace<float>& place, std::span<const float> x,
                            std::uint8_t* codes, std::span<const float> next) {
  return HWY_DYNAMIC_DISPATCH(simd_nearest_reading)(place, x, codes, next);
}
UniformSeen round_nearest_adding(const UniformPlace<float>& place, std::span<const float> x,
                                 std::uint8_t* codes, const UniformSum& next) {
  return HWY_DYNAMIC_DISPATCH(simd_nearest_adding)(place, x, codes, next);
}
float round_settling(const UniformSettling& bucket, const Corrected<float>& next, float* sum) {
  return HWY_DYNAMIC_DISPATCH(simd_settling)(bucket, next, sum);
}
std::uint8_t expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes,
                    const float* onto, std::span<float> dst) {
  return HWY_DYNAMIC_DISPATCH(simd_expand)(meaning, codes, onto, dst);
}
std::size_t find(std::span<const float> x, float value, std::size_t except) {
  return HWY_DYNAMIC_DISPATCH(simd_find)(x, value, except);
}

}  // namespace gradwire::cpu::simd
#endif
