// dgc's momenta for each instruction set: three arrays in, two out.
#include "compress/dgc/dgc_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/dgc/dgc_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace dgc_lanes {
#if HWY_TARGET == HWY_SCALAR

bool simd_accumulate(const MomentumStep<float>& step, float* next_u, float* next_v) {
  return plain::accumulate<float>(step, next_u, next_v);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);

// Products and sums are rounded one by one, as in plain code. x - x is 0 of a number and NaN of
// anything else; NaN stays in a sum.
template <bool Nesterov>
bool accumulate_vectors(const MomentumStep<float>& step, float* next_u, float* next_v,
                        std::size_t& done) {
  const auto factor = hn::Set(kFloats, step.factor);
  const auto momentum = hn::Set(kFloats, step.momentum);
  auto sum = hn::Zero(kFloats);
  for (; done + kGroup <= step.grad.size(); done += kGroup) {
    fetch_ahead(step.grad.data() + done);
    fetch_ahead(step.u.data() + done);
    fetch_ahead(step.v.data() + done);
    for (std::size_t i = done; i < done + kGroup; i += kLanes) {
      const auto g = hn::Mul(hn::LoadU(kFloats, step.grad.data() + i), factor);
      const auto old_u = hn::LoadU(kFloats, step.u.data() + i);
      const auto old_v = hn::LoadU(kFloats, step.v.data() + i);
      const auto u =
          Nesterov ? hn::Mul(momentum, hn::Add(old_u, g)) : hn::Add(hn::Mul(momentum, old_u), g);
      auto v = hn::Add(old_v, u);
      if constexpr (Nesterov) v = hn::Add(v, g);
      hn::StoreU(u, kFloats, next_u + i);
      hn::StoreU(v, kFloats, next_v + i);
      sum = hn::Add(sum, hn::Add(hn::Sub(u, u), hn::Sub(v, v)));
    }
  }
  return hn::AllTrue(kFloats, hn::Eq(sum, hn::Zero(kFloats)));
}

bool simd_accumulate(const MomentumStep<float>& step, float* next_u, float* next_v) {
  std::size_t done = 0;
  const bool finite = step.nesterov ? accumulate_vectors<true>(step, next_u, next_v, done)
                                    : accumulate_vectors<false>(step, next_u, next_v, done);
  const bool rest = plain::accumulate<float>(step.part(done, step.grad.size() - done),
                                             next_u + done, next_v + done);
  return finite && rest;
}

#endif
}  // namespace dgc_lanes

using dgc_lanes::simd_accumulate;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_accumulate);

bool accumulate(const MomentumStep<float>& step, float* next_u, float* next_v) {
  return HWY_DYNAMIC_DISPATCH(simd_accumulate)(step, next_u, next_v);
}

}  // namespace gradwire::cpu::simd
#endif
