// base/tiny_floats.h's conversions by vectors: the same bits.
#include <cstddef>
#include <cstdint>

#if defined(GW_COMPRESS_SIMD_TINY_FLOATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GW_COMPRESS_SIMD_TINY_FLOATS_INL_H
#undef GW_COMPRESS_SIMD_TINY_FLOATS_INL_H
#else
#define GW_COMPRESS_SIMD_TINY_FLOATS_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// Float::from_float() of every lane, in 0 ... 255.
template <class Float>
HWY_INLINE hn::Vec<hn::ScalableTag<std::uint32_t> > tiny_codes(
    hn::Vec<hn::ScalableTag<float> > values) {
  const hn::ScalableTag<float> floats;
  const hn::ScalableTag<std::uint32_t> d;
  constexpr int kDrop = 23 - Float::kMantissa;
  const auto bits = hn::BitCast(d, values);
  const auto magnitude =
      hn::Min(hn::And(bits, hn::Set(d, 0x7fffffffu)), hn::Set(d, Float::kLargestBits));
  const auto is_tiny = hn::Lt(magnitude, hn::Set(d, Float::kLeastNormalBits));
  const auto adder = hn::Set(d, Float::kStepAdderBits);
  const auto low = hn::IfThenElseZero(is_tiny, magnitude);
  const auto tiny =
      hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(floats, low), hn::BitCast(floats, adder))), adder);
  const auto odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(d, 1u));
  const auto half = hn::Set(d, (1u << (kDrop - 1)) - 1);
  const auto rounded = hn::ShiftRight<kDrop>(hn::Add(hn::Add(magnitude, half), odd));
  constexpr auto kBias = static_cast<std::uint32_t>(127 - Float::kBias) << Float::kMantissa;
  const auto code = hn::IfThenElse(is_tiny, tiny, hn::Sub(rounded, hn::Set(d, kBias)));
  return hn::Or(code, hn::ShiftLeft<Float::kBits - 1>(hn::ShiftRight<31>(bits)));
}

// Float::to_float() of every lane's code.
template <class Float>
HWY_INLINE hn::Vec<hn::ScalableTag<float> > tiny_values(
    hn::Vec<hn::ScalableTag<std::uint32_t> > codes) {
  const hn::ScalableTag<float> floats;
  const hn::ScalableTag<std::uint32_t> d;
  const auto least = hn::Set(d, Float::kLeastNormalBits);
  const auto shifted =
      hn::ShiftLeft<23 - Float::kMantissa>(hn::And(codes, hn::Set(d, Float::kMagnitudeMask)));
  const auto tiny = hn::BitCast(
      d, hn::Sub(hn::BitCast(floats, hn::Add(shifted, least)), hn::BitCast(floats, least)));
  constexpr auto kBias = static_cast<std::uint32_t>(127 - Float::kBias) << 23;
  const auto normal = hn::Add(shifted, hn::Set(d, kBias));
  const auto magnitude = hn::IfThenElse(hn::Lt(shifted, hn::Set(d, 1u << 23)), tiny, normal);
  const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<Float::kBits - 1>(codes));
  return hn::BitCast(floats, hn::Or(magnitude, sign));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
