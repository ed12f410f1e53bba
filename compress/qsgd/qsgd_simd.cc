// qsgd's loops for each instruction set. Levels are computed as two's complement with eight bits
// behind the point: 32 bits after the product, 16 to add the draws, 8 to make codes.
#include "compress/qsgd/qsgd_loops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/qsgd/qsgd_simd.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/narrow-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void simd_round(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                const std::uint8_t* draws, std::uint8_t* codes) {
  plain::round_to_codes(grid, scaling, p, draws, codes);
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
constexpr std::size_t kRun = 4 * kLanes;  // elements whose codes fill a vector
using Floats = hn::Vec<hn::ScalableTag<float> >;

template <bool Fed>
std::size_t round_runs(const QsgdGrid& grid, float factor, const Corrected<float>& p,
                       const std::uint8_t* draws, std::uint8_t* codes) {
  const auto by = hn::Set(kFloats, factor);
  const auto sign_bit = hn::Set(kCodes, static_cast<std::uint8_t>(1u << (grid.bits - 1)));
  std::size_t i = 0;
  for (; i + kRun <= p.size; i += kRun) {
    hn::Vec<Int32s> parts[4];
    for (std::size_t v = 0; v < 4; ++v) {
      parts[v] = nearest(hn::Mul(load<Fed>(kFloats, p, i + v * kLanes), by));
    }
    Halves sums = halves(parts);
    const Halves draw = halves(hn::LoadU(kCodes, draws + i));
    sums.low = hn::ShiftRight<8>(hn::Add(sums.low, draw.low));
    sums.high = hn::ShiftRight<8>(hn::Add(sums.high, draw.high));
    const auto levels = bytes_of(sums);
    const auto sign = hn::And(hn::BitCast(kCodes, hn::BroadcastSignBit(levels)), sign_bit);
    hn::StoreU(hn::Or(hn::BitCast(kCodes, hn::Abs(levels)), sign), kCodes, codes + i);
  }
  return i;
}

void simd_round(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                const std::uint8_t* draws, std::uint8_t* codes) {
  std::size_t done = 0;
  if (scaling.before == 1) {
    done = p.residual != nullptr ? round_runs<true>(grid, scaling.by, p, draws, codes)
                                 : round_runs<false>(grid, scaling.by, p, draws, codes);
  }
  plain::round_to_codes(grid, scaling, p.part(done, p.size - done), draws + done, codes + done);
}

// Calls put(i, value) for every whole vector of what the codes stand for; the elements done.
template <class Put>
HWY_INLINE std::size_t each_value(const QsgdGrid& grid, QsgdMagnitude<float> to,
                                  const std::uint8_t* codes, std::size_t count, const Put& put) {
  const hn::Rebind<std::uint8_t, hn::ScalableTag<std::uint32_t> > bytes;
  const hn::RebindToSigned<hn::ScalableTag<std::uint32_t> > ints;
  const auto norm = hn::Set(kFloats, to.norm);
  const auto step = hn::Set(kFloats, to.step);
  const auto level_mask = hn::Set(kBits, (1u << (grid.bits - 1)) - 1);
  const auto sign_bit = hn::Set(kBits, 0x80000000u);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto code = hn::PromoteTo(kBits, hn::LoadU(bytes, codes + i));
    const auto level = hn::ConvertTo(kFloats, hn::BitCast(ints, hn::And(code, level_mask)));
    const auto magnitude = hn::BitCast(kBits, hn::Mul(norm, hn::Mul(level, step)));
    const auto sign = hn::And(hn::ShiftLeftSame(code, 32 - grid.bits), sign_bit);
    put(i, hn::BitCast(kFloats, hn::Xor(magnitude, sign)));
  }
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
}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_round);
HWY_EXPORT(simd_expand);
HWY_EXPORT(simd_take_away);

void round_to_codes(const QsgdGrid& grid, QsgdScaling<float> scaling, const Corrected<float>& p,
                    const std::uint8_t* draws, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_round)(grid, scaling, p, draws, codes);
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
