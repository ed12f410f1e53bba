#include "base/small_floats.h"
#include "compress/cast/half_runs.h"
#include "compress/little_endian.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/cast/cast_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace cast_lanes {

template <HalfType Type>
std::uint16_t half_of(float value) {
  return Type == HalfType::kFp16 ? fp16_from_float(value) : bf16_from_float(value);
}
template <HalfType Type>
float float_of(std::uint16_t half) {
  return Type == HalfType::kFp16 ? float_from_fp16(half) : float_from_bf16(half);
}

#if HWY_TARGET == HWY_SCALAR

template <HalfType Type>
std::size_t half_vectors(const float*, std::size_t, float, std::byte*) {
  return 0;
}
template <HalfType Type>
std::size_t float_vectors(const std::byte*, std::size_t, float, bool, float*) {
  return 0;
}

#else

using Floats = hn::ScalableTag<float>;
using Int32s = hn::ScalableTag<std::int32_t>;
using Halves = hn::Rebind<std::int16_t, Floats>;
constexpr std::size_t kLanes = hn::MaxLanes(Floats());

// The upper halves, rounded to nearest even, with sign: they fit 16 bits. NaN becomes quiet.
HWY_INLINE hn::Vec<Halves> to_bf16(hn::Vec<Floats> value) {
  const Int32s d;
  const auto bits = hn::BitCast(d, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto up = hn::Add(hn::And(upper, hn::Set(d, 1)), hn::Set(d, 0x7fff));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, up));
  const auto is_nan = hn::RebindMask(d, hn::IsNaN(value));
  const auto quiet = hn::Or(upper, hn::Set(d, 0x40));
  return hn::DemoteTo(Halves(), hn::IfThenElse(is_nan, quiet, rounded));
}

template <HalfType Type>
std::size_t half_vectors(const float* from, std::size_t count, float factor, std::byte* wire) {
  const Floats d;
  const auto by = hn::Set(d, factor);
  auto* to = reinterpret_cast<std::int16_t*>(wire);
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    fetch_ahead(from + i);
    for (std::size_t v = i; v < i + kGroup; v += kLanes) {
      const auto value = hn::Mul(hn::LoadU(d, from + v), by);
      if constexpr (Type == HalfType::kFp16) {
        const hn::Rebind<hwy::float16_t, Floats> halves;
        hn::StoreU(hn::BitCast(Halves(), hn::DemoteTo(halves, value)), Halves(), to + v);
      } else {
        hn::StoreU(to_bf16(value), Halves(), to + v);
      }
    }
  }
  return i;
}

template <HalfType Type>
HWY_INLINE hn::Vec<Floats> widen(hn::Vec<hn::Rebind<std::uint16_t, Floats> > half) {
  if constexpr (Type == HalfType::kFp16) {
    return hn::PromoteTo(Floats(), hn::BitCast(hn::Rebind<hwy::float16_t, Floats>(), half));
  } else {
    const hn::ScalableTag<std::uint32_t> bits;
    return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(bits, half)));
  }
}

template <HalfType Type>
std::size_t float_vectors(const std::byte* wire, std::size_t count, float factor, bool add,
                          float* to) {
  const Floats d;
  const hn::Rebind<std::uint16_t, Floats> halves;
  const auto by = hn::Set(d, factor);
  const auto* from = reinterpret_cast<const std::uint16_t*>(wire);
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    fetch_ahead(from + i);
    for (std::size_t v = i; v < i + kGroup; v += kLanes) {
      auto value = hn::Mul(widen<Type>(hn::LoadU(halves, from + v)), by);
      if (add) value = hn::Add(hn::LoadU(d, to + v), value);
      hn::StoreU(value, d, to + v);
    }
  }
  return i;
}

#endif

template <HalfType Type>
void half_all(const float* from, std::size_t count, float factor, std::byte* wire) {
  std::size_t i = half_vectors<Type>(from, count, factor, wire);
  for (; i < count; ++i) store_le(wire, half_of<Type>(from[i] * factor), i);
}
template <HalfType Type>
void float_all(const std::byte* wire, std::size_t count, float factor, bool add, float* to) {
  std::size_t i = float_vectors<Type>(wire, count, factor, add, to);
  for (; i < count; ++i) {
    const float value = float_of<Type>(load_le<std::uint16_t>(wire, i)) * factor;
    to[i] = add ? to[i] + value : value;
  }
}

void simd_half_run(HalfType type, const float* from, std::size_t count, float factor,
                   std::byte* wire) {
  type == HalfType::kFp16 ? half_all<HalfType::kFp16>(from, count, factor, wire)
                          : half_all<HalfType::kBf16>(from, count, factor, wire);
}
void simd_float_run(HalfType type, const std::byte* wire, std::size_t count, float factor, bool add,
                    float* to) {
  type == HalfType::kFp16 ? float_all<HalfType::kFp16>(wire, count, factor, add, to)
                          : float_all<HalfType::kBf16>(wire, count, factor, add, to);
}

}  // namespace cast_lanes

using cast_lanes::simd_float_run;
using cast_lanes::simd_half_run;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu {

HWY_EXPORT(simd_half_run);
HWY_EXPORT(simd_float_run);

void half_run(HalfType type, const float* from, std::size_t count, float factor, std::byte* wire) {
  HWY_DYNAMIC_DISPATCH(simd_half_run)(type, from, count, factor, wire);
}
void float_run(HalfType type, const std::byte* wire, std::size_t count, float factor, bool add,
               float* to) {
  HWY_DYNAMIC_DISPATCH(simd_float_run)(type, wire, count, factor, add, to);
}

}  // namespace gradwire::cpu
#endif
