// pick()'s loop for each instruction set.
#include "compress/sparse/pick_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/sparse/pick_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace pick_lanes {
#if HWY_TARGET == HWY_SCALAR

bool simd_copy_finite(const Corrected<float>& p, float* next) {
  return plain::copy_finite<float>(p, next);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);

// x - x is 0 of a number and NaN of anything else; NaN stays in a sum.
template <bool Fed, bool Kept>
bool copy_vectors(const Corrected<float>& p, float* next, std::size_t& done) {
  auto sum = hn::Zero(kFloats);
  for (; done + kGroup <= p.size; done += kGroup) {
    fetch_ahead<Fed>(p, done);
    for (std::size_t v = done; v < done + kGroup; v += kLanes) {
      const auto value = load<Fed>(kFloats, p, v);
      if constexpr (Kept) hn::StoreU(value, kFloats, next + v);
      sum = hn::Add(sum, hn::Sub(value, value));
    }
  }
  return hn::AllTrue(kFloats, hn::Eq(sum, hn::Zero(kFloats)));
}

bool simd_copy_finite(const Corrected<float>& p, float* next) {
  std::size_t done = 0;
  bool finite = true;
  if (p.residual != nullptr) {
    finite = next != nullptr ? copy_vectors<true, true>(p, next, done)
                             : copy_vectors<true, false>(p, next, done);
  } else {
    finite = next != nullptr ? copy_vectors<false, true>(p, next, done)
                             : copy_vectors<false, false>(p, next, done);
  }
  const bool rest = plain::copy_finite<float>(p.part(done, p.size - done),
                                              next == nullptr ? nullptr : next + done);
  return finite && rest;
}

#endif
}  // namespace pick_lanes

using pick_lanes::simd_copy_finite;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_copy_finite);

bool copy_finite(const Corrected<float>& p, float* next) {
  return HWY_DYNAMIC_DISPATCH(simd_copy_finite)(p, next);
}

}  // namespace gradwire::cpu::simd
#endif
