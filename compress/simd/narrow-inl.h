// Four vectors of 32-bit integers to one of bytes and back, by way of two of 16 bits in whatever
// order costs least: Halves.
#include <cstddef>
#include <cstdint>

#if defined(GW_COMPRESS_SIMD_NARROW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GW_COMPRESS_SIMD_NARROW_INL_H
#undef GW_COMPRESS_SIMD_NARROW_INL_H
#else
#define GW_COMPRESS_SIMD_NARROW_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

using Int32s = hn::ScalableTag<std::int32_t>;
using Int16s = hn::ScalableTag<std::int16_t>;
using Bytes = hn::ScalableTag<std::uint8_t>;

// All elements that four vectors of 32-bit integers hold, v0's first, in an order of its own.
struct Halves {
  hn::Vec<Int16s> low;
  hn::Vec<Int16s> high;
};

// To the nearest integer, ties to even. |v| < 2^31.
HWY_INLINE hn::Vec<Int32s> nearest(hn::Vec<hn::ScalableTag<float>> v) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Int32s>{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Int32s>{_mm256_cvtps_epi32(v.raw)};
#else
  return hn::NearestInt(v);
#endif
}

// To the greatest integer that is not above. |v| < 2^31.
HWY_INLINE hn::Vec<Int32s> floor_of(hn::Vec<hn::ScalableTag<float>> v) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Int32s>{
      _mm512_cvt_roundps_epi32(v.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
#else
  return hn::ConvertTo(Int32s(), hn::Floor(v));
#endif
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

// x86 packs each 128 bits by themselves. Four vectors packed into one of bytes have, as 32-bit
// pieces, piece v of lane l where piece l of vector v belongs.
HWY_INLINE hn::Vec<Bytes> lanes_from_order(hn::Vec<Bytes> v) {
#if HWY_TARGET == HWY_AVX3
  const __m512i place = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return hn::Vec<Bytes>{_mm512_permutexvar_epi32(place, v.raw)};
#else
  const __m256i place = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  return hn::Vec<Bytes>{_mm256_permutevar8x32_epi32(v.raw, place)};
#endif
}
HWY_INLINE hn::Vec<Bytes> order_from_lanes(hn::Vec<Bytes> v) {
#if HWY_TARGET == HWY_AVX3
  return lanes_from_order(v);  // a transposition is its own reverse
#else
  const __m256i place = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return hn::Vec<Bytes>{_mm256_permutevar8x32_epi32(v.raw, place)};
#endif
}

// Of values that fit 16 bits.
HWY_INLINE Halves halves(const hn::Vec<Int32s>* v) {
  const Int16s d;
  return {hn::ReorderDemote2To(d, v[0], v[1]), hn::ReorderDemote2To(d, v[2], v[3])};
}
// Of bytes in the order of elements, zero-extended.
HWY_INLINE Halves halves(hn::Vec<Bytes> bytes) {
  const Int16s d;
  const auto lanes = lanes_from_order(bytes);
  const auto zero = hn::Zero(Bytes());
  return {hn::BitCast(d, hn::InterleaveLower(Bytes(), lanes, zero)),
          hn::BitCast(d, hn::InterleaveUpper(Bytes(), lanes, zero))};
}
// In the order of elements. Values fit 8 bits with sign.
HWY_INLINE hn::Vec<hn::RebindToSigned<Bytes>> bytes_of(Halves h) {
  const hn::RebindToSigned<Bytes> d;
#if HWY_TARGET == HWY_AVX3
  const hn::Vec<Bytes> packed{_mm512_packs_epi16(h.low.raw, h.high.raw)};
#else
  const hn::Vec<Bytes> packed{_mm256_packs_epi16(h.low.raw, h.high.raw)};
#endif
  return hn::BitCast(d, order_from_lanes(packed));
}
// The same of values that fit 8 bits without sign.
HWY_INLINE hn::Vec<Bytes> unsigned_bytes_of(Halves h) {
#if HWY_TARGET == HWY_AVX3
  return order_from_lanes(hn::Vec<Bytes>{_mm512_packus_epi16(h.low.raw, h.high.raw)});
#else
  return order_from_lanes(hn::Vec<Bytes>{_mm256_packus_epi16(h.low.raw, h.high.raw)});
#endif
}

#else

HWY_INLINE Halves halves(const hn::Vec<Int32s>* v) {
  const Int16s d;
  const hn::Half<Int16s> half;
  return {hn::Combine(d, hn::DemoteTo(half, v[1]), hn::DemoteTo(half, v[0])),
          hn::Combine(d, hn::DemoteTo(half, v[3]), hn::DemoteTo(half, v[2]))};
}
HWY_INLINE Halves halves(hn::Vec<Bytes> bytes) {
  const Int16s d;
  const hn::Half<Bytes> half;
  return {hn::PromoteTo(d, hn::LowerHalf(half, bytes)),
          hn::PromoteTo(d, hn::UpperHalf(half, bytes))};
}
HWY_INLINE hn::Vec<hn::RebindToSigned<Bytes>> bytes_of(Halves h) {
  const hn::RebindToSigned<Bytes> d;
  const hn::Half<hn::RebindToSigned<Bytes>> half;
  return hn::Combine(d, hn::DemoteTo(half, h.high), hn::DemoteTo(half, h.low));
}
HWY_INLINE hn::Vec<Bytes> unsigned_bytes_of(Halves h) {
  const hn::Half<Bytes> half;
  return hn::Combine(Bytes(), hn::DemoteTo(half, h.high), hn::DemoteTo(half, h.low));
}

#endif

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
