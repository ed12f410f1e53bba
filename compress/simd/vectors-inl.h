// What kernels of several methods share, once for each instruction set: included inside
// foreach_target. HWY_SCALAR, for machines with none of the sets, has plain loops instead of these.
#include <cstddef>
#include <cstdint>

#include "compress/corrected.h"

#if defined(GW_COMPRESS_SIMD_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GW_COMPRESS_SIMD_VECTORS_INL_H
#undef GW_COMPRESS_SIMD_VECTORS_INL_H
#else
#define GW_COMPRESS_SIMD_VECTORS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Hardware prefetchers stop at the end of a page of 4 KB; asking two pages ahead carries on.
inline constexpr std::size_t kAheadBytes = 8192;
inline constexpr std::size_t kGroup = 16;  // elements that kernels handle together: one cache line

HWY_INLINE void fetch_ahead(const void* from) {
  hwy::Prefetch(static_cast<const std::uint8_t*>(from) + kAheadBytes);
}
// Of the line or lines that hold elements i ... i + kGroup - 1.
template <bool Fed>
HWY_INLINE void fetch_ahead(const Corrected<float>& p, std::size_t i) {
  fetch_ahead(p.grad + i);
  if constexpr (Fed) fetch_ahead(p.residual + i);
}

// Elements i, i + 1, ... of p. Fed: p.residual is not null.
template <bool Fed, class D>
HWY_INLINE hn::Vec<D> load(D d, const Corrected<float>& p, std::size_t i) {
  const auto grad = hn::LoadU(d, p.grad + i);
  if constexpr (Fed) {
    return hn::Add(grad, hn::LoadU(d, p.residual + i));
  } else {
    return grad;
  }
}

#if HWY_TARGET != HWY_SCALAR

// Bit i of two bytes: mask of element i of kGroup. Masks come in the order of elements.
template <class D>
HWY_INLINE void store_group_bits(D d, const hn::Mask<D>* masks, std::uint8_t* bits) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  std::uint8_t some[8];  // Highway may write so many
  unsigned all = 0;
  for (std::size_t v = 0; v < kGroup / kLanes; ++v) {
    hn::StoreMaskBits(d, masks[v], some);
    unsigned part = some[0];
    if constexpr (kLanes == 16) part |= static_cast<unsigned>(some[1]) << 8;
    if constexpr (kLanes < 8) part &= (1u << kLanes) - 1;
    all |= part << (v * kLanes);
  }
  const auto low = static_cast<std::uint16_t>(all);
  hwy::CopyBytes<2>(&low, bits);
}

// The mask of elements v * lanes ... of a group whose bits are `bits`.
template <class D>
HWY_INLINE hn::Mask<D> group_mask(D d, unsigned bits, std::size_t v) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  const std::uint64_t shifted = bits >> (v * kLanes);
  return hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&shifted));
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
