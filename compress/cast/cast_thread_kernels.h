// cast's kernels: plain ones, a thread for each element, right for every beginning; and those that
// read and write 16 bytes at a time, eight elements to a thread. Memory of the latter: 4 bytes an
// element in and 2 out; with error feedback 8 in, and 4 more out.
#pragma once

#include "base/small_floats.h"
#include "compress/cuda/slices.h"

namespace gradwire::cuda {

// What kernels of cast find: what is left of an element is not finite.
inline constexpr unsigned kCastNotFinite = 1;

struct HalfOfFp16 {
  static constexpr std::uint16_t round(float value) { return fp16_from_float(value); }
  static constexpr float widen(std::uint16_t half) { return float_from_fp16(half); }
};
struct HalfOfBf16 {
  static constexpr std::uint16_t round(float value) { return bf16_from_float(value); }
  static constexpr float widen(std::uint16_t half) { return float_from_bf16(half); }
};

// What an element is multiplied by before it is rounded, and after it was widened.
struct HalfFactors {
  float before = 1;
  float after = 1;
};

// wire = half(p * before), and what error feedback keeps.
template <class Half>
struct CastElements {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 1;
  using Shared = NothingShared;

  Source source;
  HalfFactors factors;
  std::byte* wire;
  std::uint64_t* verdict;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= source.count) return;
    const float p = source.at(i);
    store_bytes(wire + 2 * i, code(p), 2);
    if (source.next != nullptr) source.next[i] = rest(block, i, p);
  }

  GW_DEVICE std::uint16_t code(float p) const { return Half::round(times(p, factors.before)); }
  // Of element i, which is p.
  template <class Block>
  GW_DEVICE float rest(Block& block, std::int64_t i, float p) const {
    const float left = p - times(Half::widen(code(p)), factors.after) * source.own_scale;
    if (!is_finite(left)) {
      block.least(verdict, word_of(static_cast<std::uint64_t>(i), kCastNotFinite));
    }
    return left;
  }
};

// The same where everything begins at 16 bytes.
template <class Half>
struct CastEights {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 8;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  CastElements<Half> one;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const Source& source = one.source;
    const std::int64_t begin = kEach * (block.block() * kThreads + block.thread());
    if (begin >= source.count) return;
    if (source.count - begin < kEach) {
      for (std::int64_t i = begin; i < source.count; ++i) {
        const float p = source.at(i);
        store_bytes(one.wire + 2 * i, one.code(p), 2);
        if (source.next != nullptr) source.next[i] = one.rest(block, i, p);
      }
      return;
    }
    Pack<std::uint16_t, 8> codes;
    for (int q = 0; q < 2; ++q) {
      const std::int64_t at = begin / 4 + q;
      Four p = reinterpret_cast<const Four*>(source.grad)[at];
      if (source.residual != nullptr) {
        const Four e = reinterpret_cast<const Four*>(source.residual)[at];
        for (int j = 0; j < 4; ++j) p.at[j] += e.at[j];
      }
      for (int j = 0; j < 4; ++j) codes.at[4 * q + j] = one.code(p.at[j]);
      if (source.next == nullptr) continue;
      for (int j = 0; j < 4; ++j) p.at[j] = one.rest(block, begin + 4 * q + j, p.at[j]);
      reinterpret_cast<Four*>(source.next)[at] = p;
    }
    reinterpret_cast<Pack<std::uint16_t, 8>*>(one.wire)[begin / 8] = codes;
  }
};

// dst = (add: +=) wire * factor.
template <class Half>
struct UncastElements {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 1;
  using Shared = NothingShared;

  const std::byte* wire;
  float factor;
  bool add;
  float* dst;
  std::int64_t count;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i < count) one(i);
  }
  GW_DEVICE void one(std::int64_t i) const {
    const float value = of(static_cast<std::uint16_t>(load_bytes(wire + 2 * i, 2)));
    dst[i] = add ? dst[i] + value : value;
  }
  GW_DEVICE float of(std::uint16_t half) const { return times(Half::widen(half), factor); }
};

// The same where everything begins at 16 bytes.
template <class Half>
struct UncastEights {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 8;
  using Shared = NothingShared;
  using Four = Pack<float, 4>;

  UncastElements<Half> all;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t begin = kEach * (block.block() * kThreads + block.thread());
    if (begin >= all.count) return;
    if (all.count - begin < kEach) {
      for (std::int64_t i = begin; i < all.count; ++i) all.one(i);
      return;
    }
    const auto codes = reinterpret_cast<const Pack<std::uint16_t, 8>*>(all.wire)[begin / 8];
    for (int q = 0; q < 2; ++q) {
      Four* const to = reinterpret_cast<Four*>(all.dst) + begin / 4 + q;
      Four value = {};
      if (all.add) value = *to;
      for (int j = 0; j < 4; ++j) {
        const float own = all.of(codes.at[4 * q + j]);
        value.at[j] = all.add ? value.at[j] + own : own;
      }
      *to = value;
    }
  }
};

// dst = what the payload of the source decodes to; dst may be the source's gradient.
template <class Half>
struct CastThrough {
  static constexpr unsigned kThreads = 256;
  static constexpr std::int64_t kEach = 1;
  using Shared = NothingShared;

  Source source;
  HalfFactors factors;
  float* dst;

  template <class Block>
  GW_DEVICE void run(Block& block, Shared&) const {
    const std::int64_t i = block.block() * kThreads + block.thread();
    if (i >= source.count) return;
    const std::uint16_t half = Half::round(times(source.at(i), factors.before));
    dst[i] = times(Half::widen(half), factors.after);
  }
};

}  // namespace gradwire::cuda
