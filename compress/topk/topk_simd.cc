// The selection's loops for each instruction set: compare a vector, compress what passes to the
// front of a register, store the register, advance by the number that passed. No branches.
#include "compress/topk/topk_loops.h"

#ifndef HWY_TARGET_INCLUDE  // set where sources are compiled as one
#define HWY_TARGET_INCLUDE "compress/topk/topk_simd.cc"
#endif
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include "compress/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradwire::cpu::HWY_NAMESPACE {
namespace topk_lanes {
#if HWY_TARGET == HWY_SCALAR

std::size_t simd_collect(const Corrected<float>& p, std::uint32_t low, std::uint32_t begin,
                         std::uint32_t* index, float* next) {
  return plain::collect<float>(p, low, begin, index, next);
}
std::size_t simd_count(const float* value, std::size_t size, std::uint32_t low) {
  return plain::count_at_least<float>(value, size, low);
}
std::size_t simd_keys(const float* value, std::size_t size, std::uint32_t low, std::uint32_t high,
                      std::uint32_t* keys) {
  return plain::keys_between<float>(value, size, low, high, keys);
}
void simd_write(const float* value, const std::uint32_t* index, std::size_t size, std::uint32_t low,
                std::size_t k, std::byte* indices, std::byte* values) {
  plain::write_at_least<float>(value, index, size, low, k, indices, values);
}

#else

constexpr hn::ScalableTag<float> kFloats;
constexpr hn::ScalableTag<std::int32_t> kInts;  // keys have 31 bits: signed comparisons do
constexpr hn::ScalableTag<std::uint32_t> kWords;
constexpr std::size_t kLanes = hn::MaxLanes(kFloats);
using Floats = hn::Vec<hn::ScalableTag<float> >;
using Ints = hn::Vec<hn::ScalableTag<std::int32_t> >;

HWY_INLINE Ints keys_of(Floats value) {
  return hn::And(hn::BitCast(kInts, value), hn::Set(kInts, 0x7fffffff));
}
// For Ge by Gt; low >= 1.
HWY_INLINE Ints below(std::uint32_t low) {
  return hn::Set(kInts, static_cast<std::int32_t>(low - 1));
}

template <bool Fed, bool Kept>
std::size_t collect_vectors(const Corrected<float>& p, std::uint32_t low, std::uint32_t begin,
                            std::uint32_t* index, float* next, std::size_t& done) {
  const Ints limit = below(low);
  auto place = hn::Iota(kWords, begin);
  const auto advance = hn::Set(kWords, static_cast<std::uint32_t>(kLanes));
  std::size_t count = 0;
  for (; done + kGroup <= p.size; done += kGroup) {
    fetch_ahead<Fed>(p, done);
    for (std::size_t v = done; v < done + kGroup; v += kLanes) {
      const Floats value = load<Fed>(kFloats, p, v);
      if constexpr (Kept) hn::StoreU(value, kFloats, next + v);
      const auto chosen = hn::RebindMask(kWords, hn::Gt(keys_of(value), limit));
      hn::StoreU(hn::Compress(place, chosen), kWords, index + count);
      count += hn::CountTrue(kWords, chosen);
      place = hn::Add(place, advance);
    }
  }
  return count;
}

std::size_t simd_collect(const Corrected<float>& p, std::uint32_t low, std::uint32_t begin,
                         std::uint32_t* index, float* next) {
  std::size_t done = 0;
  std::size_t count = 0;
  if (next != nullptr) {
    count = p.residual != nullptr ? collect_vectors<true, true>(p, low, begin, index, next, done)
                                  : collect_vectors<false, true>(p, low, begin, index, next, done);
  } else {
    count = p.residual != nullptr ? collect_vectors<true, false>(p, low, begin, index, next, done)
                                  : collect_vectors<false, false>(p, low, begin, index, next, done);
  }
  return count + plain::collect<float>(p.part(done, p.size - done), low,
                                       begin + static_cast<std::uint32_t>(done), index + count,
                                       next == nullptr ? nullptr : next + done);
}

std::size_t simd_count(const float* value, std::size_t size, std::uint32_t low) {
  const Ints limit = below(low);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    count += hn::CountTrue(kInts, hn::Gt(keys_of(hn::LoadU(kFloats, value + i)), limit));
  }
  return count + plain::count_at_least<float>(value + i, size - i, low);
}

std::size_t simd_keys(const float* value, std::size_t size, std::uint32_t low, std::uint32_t high,
                      std::uint32_t* keys) {
  const Ints limit = below(low);
  const Ints end = hn::Set(kInts, static_cast<std::int32_t>(high));
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Ints key = keys_of(hn::LoadU(kFloats, value + i));
    const auto chosen = hn::And(hn::Gt(key, limit), hn::Gt(end, key));
    hn::StoreU(hn::BitCast(kWords, hn::Compress(key, chosen)), kWords, keys + count);
    count += hn::CountTrue(kInts, chosen);
  }
  return count + plain::keys_between<float>(value + i, size - i, low, high, keys + count);
}

void simd_write(const float* value, const std::uint32_t* index, std::size_t size, std::uint32_t low,
                std::size_t k, std::byte* indices, std::byte* values) {
  const Ints limit = below(low);
  auto* places = reinterpret_cast<std::uint32_t*>(indices);
  auto* copies = reinterpret_cast<float*>(values);
  std::size_t sent = 0;
  std::size_t i = 0;
  // Whole vectors are stored, so the last ones are left to the loop without vectors.
  for (; i + kLanes <= size && sent + kLanes <= k; i += kLanes) {
    const auto chosen =
        hn::RebindMask(kWords, hn::Gt(keys_of(hn::LoadU(kFloats, value + i)), limit));
    hn::StoreU(hn::Compress(hn::LoadU(kWords, index + i), chosen), kWords, places + sent);
    sent += hn::CountTrue(kWords, chosen);
  }
  const std::size_t vectors_end = i;
  const std::size_t vectors_sent = sent;
  for (i = 0, sent = 0; i < vectors_end; i += kLanes) {
    const Floats some = hn::LoadU(kFloats, value + i);
    const auto chosen = hn::RebindMask(kFloats, hn::Gt(keys_of(some), limit));
    hn::StoreU(hn::Compress(some, chosen), kFloats, copies + sent);
    sent += hn::CountTrue(kFloats, chosen);
  }
  plain::write_at_least<float>(value + i, index + i, size - i, low, k - vectors_sent,
                               indices + vectors_sent * sizeof(std::uint32_t),
                               values + vectors_sent * sizeof(float));
}

#endif
}  // namespace topk_lanes

using topk_lanes::simd_collect;
using topk_lanes::simd_count;
using topk_lanes::simd_keys;
using topk_lanes::simd_write;

}  // namespace gradwire::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradwire::cpu::simd {

HWY_EXPORT(simd_collect);
HWY_EXPORT(simd_count);
HWY_EXPORT(simd_keys);
HWY_EXPORT(simd_write);

std::size_t collect(const Corrected<float>& p, std::uint32_t low, std::uint32_t begin,
                    std::uint32_t* index, float* next) {
  return HWY_DYNAMIC_DISPATCH(simd_collect)(p, low, begin, index, next);
}
std::size_t count_at_least(const float* value, std::size_t size, std::uint32_t low) {
  return HWY_DYNAMIC_DISPATCH(simd_count)(value, size, low);
}
std::size_t keys_between(const float* value, std::size_t size, std::uint32_t low,
                         std::uint32_t high, std::uint32_t* keys) {
  return HWY_DYNAMIC_DISPATCH(simd_keys)(value, size, low, high, keys);
}
void write_at_least(const float* value, const std::uint32_t* index, std::size_t size,
                    std::uint32_t low, std::size_t k, std::byte* indices, std::byte* values) {
  HWY_DYNAMIC_DISPATCH(simd_write)(value, index, size, low, k, indices, values);
}

}  // namespace gradwire::cpu::simd
#endif
