// qsgd's loops for each instruction set. Levels are computed as two's complement with eight bits
// behind the point: 32 bits after the product, 16 to add the draws, 8 to make codes. Elements that
// need a second draw, one in 256, are noted on the way, and rounded once more at the end.
#include "compress/qsgd/qsgd_loops.h"

#include <algorithm>
#include <array>
#include <bit>

#include "compress/little_endian.h"
#include "compress/simd/statistics.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/qsgd/qsgd_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/beside-inl.h"
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

#ifndef GW_COMPRESS_QSGD_SIMD_ONCE
#define GW_COMPRESS_QSGD_SIMD_ONCE
namespace gradwire::cpu {

inline void plain_round(const QsgdGrid& grid, const QsgdRounding& bucket, std::size_t first) {
  plain::round_to_codes(grid, bucket.scaling, Corrected<float>(bucket.x.subspan(first)),
                        bucket.draws.from(first), bucket.codes + first);
}

// Which elements need a second draw: bit i % 8 of byte i / 8.
struct QsgdTies {
  static constexpr std::size_t kBytes = kMostQsgdRounding / 8;
  alignas(64) std::uint8_t bits[kBytes + 8];

  // Calls round(i) for those before `count`, a multiple of eight. How many a word has is not
  // guessed well: its first is written down whether there is one or not.
  template <typename Round>
  void each(std::size_t count, const Round& round) {
    std::fill_n(bits + count / 8, 8, std::uint8_t{0});
    std::array<std::size_t, kMostQsgdRounding / 64> first;
    std::size_t words = 0;
    for (std::size_t begin = 0; begin < count; begin += 64) {
      auto word = load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(bits + begin / 8));
      first[words] = begin + static_cast<std::size_t>(std::countr_zero(word));
      words += word != 0 ? 1 : 0;
      for (word &= word - 1; word != 0; word &= word - 1) {
        round(begin + static_cast<std::size_t>(std::countr_zero(word)));
      }
    }
    for (std::size_t w = 0; w < words; ++w) round(first[w]);
  }
};
inline void round_ties(const QsgdGrid& grid, const QsgdScaling<float>& scaling,
                       const Corrected<float>& p, const QsgdDraws& draws, std::size_t count,
                       QsgdTies& ties, std::uint8_t* codes) {
  ties.each(count, [&](std::size_t i) {
    codes[i] = qsgd_code(scaling, p[i], draws.bytes[i], *draws.stream, draws.first + i, grid.bits);
  });
}
// Makes the sum's elements from `first` on; returns their largest magnitude as bits.
inline std::uint32_t plain_sum(const QsgdGrid& grid, const QsgdSum& next, std::size_t first) {
  const std::span<float> sum = next.sum.subspan(first);
  if (sum.empty()) return 0;
  if (next.onto != next.sum.data()) std::copy_n(next.onto + first, sum.size(), sum.begin());
  plain::expand(grid, next.to, next.codes + first, true, sum);
  return plain_largest_bits(sum);
}

}  // namespace gradwire::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace qsgd_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_round(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                const QsgdDraws& draws, std::uint8_t* codes) {
  plain::round_to_codes(grid, scaling, p, draws, codes);
}
float simd_round_reading(const QsgdGrid& grid, const QsgdRounding& bucket,
                         std::span<const float> next) {
  if (!bucket.x.empty()) plain_round(grid, bucket, 0);
  return std::bit_cast<float>(plain_largest_bits(next));
}
float simd_round_adding(const QsgdGrid& grid, const QsgdRounding& bucket, const QsgdSum& next) {
  if (!bucket.x.empty()) plain_round(grid, bucket, 0);
  return std::bit_cast<float>(plain_sum(grid, next, 0));
}
void simd_expand(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes, bool add,
                 std::span<float> dst) {
  plain::expand(grid, to, codes, add, dst);
}
void simd_take_away(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes,
                    float own_scale, const Corrected<float>& p, float* next) {
  plain::take_away(grid, to, codes, own_scale, p, next);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kBits;
constexpr hn::ScalableTag<std::uint8_t> kCodes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kRun = kBesideRun;  // elements whose codes fill a vector
using Floats = hn::Vec<hn::ScalableTag<float> >;

// What rounds kRun elements.
struct Rounder {
  Rounder(const QsgdGrid& grid, float factor)
      : by(hn::Set(kFloats, factor)),
        sign_bit(hn::Set(kCodes, static_cast<std::uint8_t>(1u << (grid.bits - 1)))),
        tie(hn::Set(kCodes, static_cast<std::uint8_t>(kQsgdTie))),
        low_byte(hn::Set(Int16s(), std::int16_t{255})) {}

  template <bool Fed>
  HWY_INLINE void run(const Corrected<float>& p, std::size_t i, const std::uint8_t* draws,
                      QsgdTies& ties, std::uint8_t* codes) const {
    hn::Vec<Int32s> parts[4];
    for (std::size_t v = 0; v < 4; ++v) {
      parts[v] = floor_of(hn::Mul(load<Fed>(kFloats, p, i + v * kLanes), by));
    }
    Halves sums = halves(parts);
    const Halves draw = halves(hn::LoadU(kCodes, draws + i));
    sums.low = hn::Add(sums.low, draw.low);
    sums.high = hn::Add(sums.high, draw.high);
    const auto ends =
        unsigned_bytes_of({hn::And(sums.low, low_byte), hn::And(sums.high, low_byte)});
    hn::StoreMaskBits(kCodes, hn::Eq(ends, tie), ties.bits + i / 8);
    sums.low = hn::ShiftRight<8>(sums.low);
    sums.high = hn::ShiftRight<8>(sums.high);
    const auto levels = bytes_of(sums);
    const auto sign = hn::And(hn::BitCast(kCodes, hn::BroadcastSignBit(levels)), sign_bit);
    hn::StoreU(hn::Or(hn::BitCast(kCodes, hn::Abs(levels)), sign), kCodes, codes + i);
  }

  Floats by;
  hn::Vec<hn::ScalableTag<std::uint8_t> > sign_bit;
  hn::Vec<hn::ScalableTag<std::uint8_t> > tie;
  hn::Vec<Int16s> low_byte;
};

template <bool Fed>
std::size_t round_runs(const QsgdGrid& grid, float factor, const Corrected<float>& p,
                       const std::uint8_t* draws, QsgdTies& ties, std::uint8_t* codes) {
  const Rounder rounder(grid, factor);
  std::size_t i = 0;
  for (; i + kRun <= p.size; i += kRun) rounder.run<Fed>(p, i, draws, ties, codes);
  return i;
}

void simd_round(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                const QsgdDraws& draws, std::uint8_t* codes) {
  std::size_t done = 0;
  if (scaling.before == 1) {
    QsgdTies ties;
    done = p.residual != nullptr ? round_runs<true>(grid, scaling.by, p, draws.bytes, ties, codes)
                                 : round_runs<false>(grid, scaling.by, p, draws.bytes, ties, codes);
    round_ties(grid, scaling, p, draws, done, ties, codes);
  }
  plain::round_to_codes(grid, scaling, p.part(done, p.size - done), draws.from(done), codes + done);
}

// What codes stand for.
struct Values {
  Values(const QsgdGrid& grid, QsgdMagnitude<float> to)
      : norm(hn::Set(kFloats, to.norm)),
        step(hn::Set(kFloats, to.step)),
        level_mask(hn::Set(kBits, (1u << (grid.bits - 1)) - 1)),
        shift(32 - grid.bits) {}

  HWY_INLINE Floats of(const std::uint8_t* codes) const {
    const hn::Rebind<std::uint8_t, hn::ScalableTag<std::uint32_t> > bytes;
    const hn::RebindToSigned<hn::ScalableTag<std::uint32_t> > ints;
    const auto code = hn::PromoteTo(kBits, hn::LoadU(bytes, codes));
    const auto level = hn::ConvertTo(kFloats, hn::BitCast(ints, hn::And(code, level_mask)));
    const auto magnitude = hn::BitCast(kBits, hn::Mul(norm, hn::Mul(level, step)));
    const auto sign = hn::And(hn::ShiftLeftSame(code, shift), hn::Set(kBits, 0x80000000u));
    return hn::BitCast(kFloats, hn::Xor(magnitude, sign));
  }

  Floats norm;
  Floats step;
  hn::Vec<hn::ScalableTag<std::uint32_t> > level_mask;
  int shift;
};

// What a fold does beside rounding.
struct Adding {
  Adding(const QsgdGrid& grid, const QsgdSum& next) : to(next), values(grid, next.to) {}
  std::size_t size() const { return to.sum.size(); }
  HWY_INLINE void run(std::size_t i) {
    hwy::Prefetch(to.codes + i + kAheadBytes / 2);
    for (std::size_t g = 0; g < kRun; g += kGroup) fetch_ahead(to.onto + i + g);
    for (std::size_t v = i; v < i + kRun; v += 2 * kLanes) {
      largest.see(one(v), one(v + kLanes));
    }
  }
  HWY_INLINE Floats one(std::size_t i) const {
    const Floats sum = hn::Add(hn::LoadU(kFloats, to.onto + i), values.of(to.codes + i));
    hn::StoreU(sum, kFloats, to.sum.data() + i);
    return sum;
  }
  const QsgdSum& to;
  Values values;
  Largest largest;
};

// Rounds all of the bucket; returns how many of beside's elements were met.
template <class Beside>
std::size_t round_beside(const QsgdGrid& grid, const QsgdRounding& bucket, Beside& beside) {
  const bool vectors = bucket.scaling.before == 1;
  const Rounder rounder(grid, bucket.scaling.by);
  const Corrected<float> p(bucket.x);
  QsgdTies ties;
  const RunsDone done =
      runs_beside(vectors ? bucket.x.size() : 0, beside, [&](std::size_t i) HWY_ATTR {
        rounder.run<false>(p, i, bucket.draws.bytes, ties, bucket.codes);
      });
  round_ties(grid, bucket.scaling, p, bucket.draws, done.own, ties, bucket.codes);
  if (done.own < bucket.x.size()) plain_round(grid, bucket, done.own);
  return done.beside;
}

float simd_round_reading(const QsgdGrid& grid, const QsgdRounding& bucket,
                         std::span<const float> next) {
  Reading reading(next);
  const std::size_t met = round_beside(grid, bucket, reading);
  return std::bit_cast<float>(
      std::max(reading.largest.bits(), plain_largest_bits(next.subspan(met))));
}

float simd_round_adding(const QsgdGrid& grid, const QsgdRounding& bucket, const QsgdSum& next) {
  Adding adding(grid, next);
  const std::size_t met = round_beside(grid, bucket, adding);
  return std::bit_cast<float>(std::max(adding.largest.bits(), plain_sum(grid, next, met)));
}

// Calls put(i, value) for every whole vector of what the codes stand for; the elements done.
template <class Put>
HWY_INLINE std::size_t each_value(const QsgdGrid& grid, QsgdMagnitude<float> to,
                                  const std::uint8_t* codes, std::size_t count, const Put& put) {
  const Values values(grid, to);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) put(i, values.of(codes + i));
  return i;
}

void simd_expand(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes, bool add,
                 std::span<float> dst) {
  float* out = dst.data();
  std::size_t done = 0;
  if (add) {
    done = each_value(grid, to, codes, dst.size(), [out](std::size_t i, Floats value) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(kFloats, out + i), value), kFloats, out + i);
    });
  } else {
    done = each_value(grid, to, codes, dst.size(), [out](std::size_t i, Floats value) HWY_ATTR {
      hn::StoreU(value, kFloats, out + i);
    });
  }
  plain::expand(grid, to, codes + done, add, dst.subspan(done));
}

void simd_take_away(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes,
                    float own_scale, const Corrected<float>& p, float* next) {
  const auto factor = hn::Set(kFloats, own_scale);
  const std::size_t done =
      each_value(grid, to, codes, p.size, [&](std::size_t i, Floats value) HWY_ATTR {
        hn::StoreU(hn::Sub(load<true>(kFloats, p, i), hn::Mul(value, factor)), kFloats, next + i);
      });
  plain::take_away(grid, to, codes + done, own_scale, p.part(done, p.size - done), next + done);
}

#endif
}  // namespace qsgd_lanes

using qsgd_lanes::simd_expand;
using qsgd_lanes::simd_round;
using qsgd_lanes::simd_round_adding;
using qsgd_lanes::simd_round_reading;
using qsgd_lanes::simd_take_away;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_round);
HWY_EXPORT(simd_round_reading);
HWY_EXPORT(simd_round_adding);
HWY_EXPORT(simd_expand);
HWY_EXPORT(simd_take_away);

void round_to_codes(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                    const QsgdDraws& draws, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_round)(grid, scaling, p, draws, codes);
}
float round_reading(const QsgdGrid& grid, const QsgdRounding& bucket, std::span<const float> next) {
  return HWY_DYNAMIC_DISPATCH(simd_round_reading)(grid, bucket, next);
}
float round_adding(const QsgdGrid& grid, const QsgdRounding& bucket, const QsgdSum& next) {
  return HWY_DYNAMIC_DISPATCH(simd_round_adding)(grid, bucket, next);
}
void expand(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes, bool add,
            std::span<float> dst) {
  HWY_DYNAMIC_DISPATCH(simd_expand)(grid, to, codes, add, dst);
}
void take_away(const QsgdGrid& grid, QsgdMagnitude<float> to, const std::uint8_t* codes,
               float own_scale, const Corrected<float>& p, float* next) {
  HWY_DYNAMIC_DISPATCH(simd_take_away)(grid, to, codes, own_scale, p, next);
}

}  // namespace gradwire::cpu::simd
#endif
