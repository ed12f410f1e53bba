// fp8's loops for each instruction set: four vectors of codes make one of bytes.
#include "compress/fp8/fp8_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/fp8/fp8_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/narrow-inl.h"
#include "compress/simd/tiny_floats-inl.h"
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace fp8_lanes {
#if HWY_TARGET == HWY_SCALAR

void simd_codes(Fp8Type type, const LevelFactors<float>& factors, std::span<const float> x,
                std::uint8_t* codes) {
  plain::fp8_codes<float>(type, factors, x, codes);
}
unsigned simd_values(Fp8Type type, const Fp8Meaning<float>& meaning, const std::uint8_t* codes,
                     const float* onto, std::span<float> dst) {
  return plain::fp8_values<float>(type, meaning, codes, onto, dst);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr hn::ScalableTag<std::uint8_t> kCodes;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
constexpr std::size_t kRun = 4 * kLanes;  // elements whose codes fill a vector

template <class Float>
std::size_t code_runs(const LevelFactors<float>& factors, std::span<const float> x,
                      std::uint8_t* codes) {
  const auto before = hn::Set(kFloats, factors.before);
  const auto by = hn::Set(kFloats, factors.by);
  std::size_t i = 0;
  for (; i + kRun <= x.size(); i += kRun) {
    hn::Vec<Int32s> parts[4];
    for (std::size_t v = 0; v < 4; ++v) {
      const auto value = hn::LoadU(kFloats, x.data() + i + v * kLanes);
      parts[v] = hn::BitCast(Int32s(), tiny_codes<Float>(hn::Mul(hn::Mul(value, before), by)));
    }
    hn::StoreU(unsigned_bytes_of(halves(parts)), kCodes, codes + i);
  }
  return i;
}

void simd_codes(Fp8Type type, const LevelFactors<float>& factors, std::span<const float> x,
                std::uint8_t* codes) {
  const std::size_t done = type == Fp8Type::kE4M3 ? code_runs<Float8E4M3>(factors, x, codes)
                                                  : code_runs<Float8E5M2>(factors, x, codes);
  plain::fp8_codes<float>(type, factors, x.subspan(done), codes + done);
}

template <class Float, bool Onto>
std::size_t value_vectors(const Fp8Meaning<float>& meaning, const std::uint8_t* codes,
                          const float* onto, std::span<float> dst, unsigned& largest) {
  const hn::Rebind<std::uint8_t, hn::ScalableTag<std::uint32_t> > bytes;
  const auto scale = hn::Set(kFloats, meaning.scale);
  const auto inverse = hn::Set(kFloats, meaning.inverse);
  const auto mask = hn::Set(kWords, Float::kMagnitudeMask);
  auto most = hn::Zero(kWords);
  std::size_t i = 0;
  for (; i + kLanes <= dst.size(); i += kLanes) {
    const auto code = hn::PromoteTo(kWords, hn::LoadU(bytes, codes + i));
    most = hn::Max(most, hn::And(code, mask));
    auto value = hn::Mul(scale, hn::Mul(tiny_values<Float>(code), inverse));
    if constexpr (Onto) value = hn::Add(hn::LoadU(kFloats, onto + i), value);
    hn::StoreU(value, kFloats, dst.data() + i);
  }
  largest = hn::GetLane(hn::MaxOfLanes(kWords, most));
  return i;
}
template <class Float>
std::size_t any_values(const Fp8Meaning<float>& meaning, const std::uint8_t* codes,
                       const float* onto, std::span<float> dst, unsigned& largest) {
  return onto != nullptr ? value_vectors<Float, true>(meaning, codes, onto, dst, largest)
                         : value_vectors<Float, false>(meaning, codes, onto, dst, largest);
}

unsigned simd_values(Fp8Type type, const Fp8Meaning<float>& meaning, const std::uint8_t* codes,
                     const float* onto, std::span<float> dst) {
  unsigned largest = 0;
  const std::size_t done = type == Fp8Type::kE4M3
                               ? any_values<Float8E4M3>(meaning, codes, onto, dst, largest)
                               : any_values<Float8E5M2>(meaning, codes, onto, dst, largest);
  const float* const rest = onto == nullptr ? nullptr : onto + done;
  return std::max(largest,
                  plain::fp8_values<float>(type, meaning, codes + done, rest, dst.subspan(done)));
}

#endif
}  // namespace fp8_lanes

using fp8_lanes::simd_codes;
using fp8_lanes::simd_values;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_codes);
HWY_EXPORT(simd_values);

void fp8_codes(Fp8Type type, const LevelFactors<float>& factors, std::span<const float> x,
               std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(simd_codes)(type, factors, x, codes);
}
unsigned fp8_values(Fp8Type type, const Fp8Meaning<float>& meaning, const std::uint8_t* codes,
                    const float* onto, std::span<float> dst) {
  return HWY_DYNAMIC_DISPATCH(simd_values)(type, meaning, codes, onto, dst);
}

}  // namespace gradwire::cpu::simd
#endif
