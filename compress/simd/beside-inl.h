// Making codes of one bucket while the next is read: neither waits for the other. A bucket's scale
// is known only when all of it was seen, so that a kernel that does one after the other leaves
// memory idle while it rounds, and the other way around.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#if defined(GW_COMPRESS_SIMD_BESIDE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GW_COMPRESS_SIMD_BESIDE_INL_H
#undef GW_COMPRESS_SIMD_BESIDE_INL_H
#else
#define GW_COMPRESS_SIMD_BESIDE_INL_H
#endif

#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

inline constexpr std::size_t kBesideRun = 4 * hn::MaxLanes(hn::ScalableTag<float>());  // elements

// The largest magnitude that goes by, as bits: NaN's are largest.
class Largest {
 public:
  using Floats = hn::Vec<hn::ScalableTag<float> >;

  // Written out, because one that the compiler adds is for the least processor (clang).
  HWY_INLINE Largest() : even_(hn::Zero(Words())), odd_(hn::Zero(Words())) {}
  HWY_INLINE void see(Floats a, Floats b) {
    const Words d;
    const auto magnitude = hn::Set(d, 0x7fffffffu);
    even_ = hn::Max(even_, hn::And(hn::BitCast(d, a), magnitude));
    odd_ = hn::Max(odd_, hn::And(hn::BitCast(d, b), magnitude));
  }
  HWY_INLINE std::uint32_t bits() const {
    return hn::GetLane(hn::MaxOfLanes(Words(), hn::Max(even_, odd_)));
  }

 private:
  using Words = hn::ScalableTag<std::uint32_t>;
  hn::Vec<Words> even_;
  hn::Vec<Words> odd_;
};

// What may run beside rounding: nothing, ...
struct Nothing {
  static std::size_t size() { return 0; }
  HWY_INLINE void run(std::size_t) {}
};
// ... or the largest magnitude of elements that come from memory. (Others: a method's own sums.)
struct Reading {
  explicit Reading(std::span<const float> from) : x(from) {}
  std::size_t size() const { return x.size(); }
  HWY_INLINE void run(std::size_t i) {
    const hn::ScalableTag<float> d;
    constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
    for (std::size_t g = 0; g < kBesideRun; g += kGroup) fetch_ahead(x.data() + i + g);
    for (std::size_t v = i; v < i + kBesideRun; v += 2 * kLanes) {
      largest.see(hn::LoadU(d, x.data() + v), hn::LoadU(d, x.data() + v + kLanes));
    }
  }
  std::span<const float> x;
  Largest largest;
};

// How far runs have come.
struct RunsDone {
  std::size_t own = 0;
  std::size_t beside = 0;
};
// Calls round(i) and beside.run(i) for every whole run of `count` elements and of beside's, by
// turns while there are both.
template <class Beside, class Round>
HWY_INLINE RunsDone runs_beside(std::size_t count, Beside& beside, const Round& round) {
  const std::size_t both = std::min(count, beside.size()) / kBesideRun * kBesideRun;
  RunsDone done;
  for (; done.own < both; done.own += kBesideRun) {
    beside.run(done.own);
    round(done.own);
  }
  done.beside = done.own;
  for (; done.own + kBesideRun <= count; done.own += kBesideRun) round(done.own);
  for (; done.beside + kBesideRun <= beside.size(); done.beside += kBesideRun) {
    beside.run(done.beside);
  }
  return done;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
