#include "compress/hadamard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>

namespace gradwire {
namespace {

constexpr std::size_t kVectorBytes = 64;
template <typename T>
constexpr std::size_t kLanes = kVectorBytes / sizeof(T);

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type [[gnu::vector_size(kVectorBytes)]] = float;
};
template <>
struct VectorOf<double> {
  using Type [[gnu::vector_size(kVectorBytes)]] = double;
};

// Sums where bit `Half` of the lane is 0, differences where it is 1. In place: how registers of
// this width are returned depends on the instruction set.
template <std::size_t Half, typename V, std::size_t... Lane>
void butterfly(V& v, std::index_sequence<Lane...>) {
  constexpr std::size_t kBits = 8 * sizeof(v[0]);
  using Bits [[gnu::vector_size(kVectorBytes)]] =
      std::conditional_t<kBits == 32, std::uint32_t, std::uint64_t>;
  using Bit = std::conditional_t<kBits == 32, std::uint32_t, std::uint64_t>;
  constexpr Bits kMinus = {((Lane & Half) == 0 ? Bit{0} : Bit{1} << (kBits - 1))...};
  const V partner = __builtin_shufflevector(v, v, (Lane ^ Half)...);
  v = partner + reinterpret_cast<V>(reinterpret_cast<Bits>(v) ^ kMinus);
}

// The stages inside each vector register.
template <typename T>
void short_stages(T* x, std::size_t count, T factor) {
  using V = typename VectorOf<T>::Type;
  constexpr auto kAll = std::make_index_sequence<kLanes<T>>();
  for (std::size_t i = 0; i < count; i += kLanes<T>) {
    V v;
    std::memcpy(&v, x + i, sizeof(v));
    v *= factor;
    butterfly<1>(v, kAll);
    butterfly<2>(v, kAll);
    butterfly<4>(v, kAll);
    if constexpr (kLanes<T> == 16) butterfly<8>(v, kAll);
    std::memcpy(x + i, &v, sizeof(v));
  }
}

template <typename T>
void long_stage(T* x, std::size_t count, std::size_t half) {
  for (std::size_t block = 0; block < count; block += 2 * half) {
    T* low = x + block;
    T* high = low + half;
    for (std::size_t j = 0; j < half; ++j) {
      const T a = low[j];
      const T b = high[j];
      low[j] = a + b;
      high[j] = a - b;
    }
  }
}

// Two stages in one pass over memory: `half` and twice that.
template <typename T>
void two_long_stages(T* x, std::size_t count, std::size_t half) {
  for (std::size_t block = 0; block < count; block += 4 * half) {
    T* const p0 = x + block;
    T* const p1 = p0 + half;
    T* const p2 = p1 + half;
    T* const p3 = p2 + half;
    for (std::size_t j = 0; j < half; j += kLanes<T>) {
      typename VectorOf<T>::Type v0, v1, v2, v3;
      std::memcpy(&v0, p0 + j, kVectorBytes);
      std::memcpy(&v1, p1 + j, kVectorBytes);
      std::memcpy(&v2, p2 + j, kVectorBytes);
      std::memcpy(&v3, p3 + j, kVectorBytes);
      const auto s0 = v0 + v1, d0 = v0 - v1, s1 = v2 + v3, d1 = v2 - v3;
      v0 = s0 + s1;
      v1 = d0 + d1;
      v2 = s0 - s1;
      v3 = d0 - d1;
      std::memcpy(p0 + j, &v0, kVectorBytes);
      std::memcpy(p1 + j, &v1, kVectorBytes);
      std::memcpy(p2 + j, &v2, kVectorBytes);
      std::memcpy(p3 + j, &v3, kVectorBytes);
    }
  }
}

// count: a power of two.
template <typename T>
void transform(T* x, std::size_t count) {
  const int log2 = std::countr_zero(count);
  const T root = log2 % 2 == 0 ? T{1} : static_cast<T>(1 / std::numbers::sqrt2);
  const T factor = std::ldexp(root, -(log2 / 2));
  std::size_t half = 1;
  if (count >= kLanes<T>) {
    short_stages(x, count, factor);
    half = kLanes<T>;
  } else {
    for (std::size_t i = 0; i < count; ++i) x[i] *= factor;
  }
  for (; half >= kLanes<T> && 4 * half <= count; half *= 4) two_long_stages(x, count, half);
  for (; half < count; half *= 2) long_stage(x, count, half);
}

template <typename T>
void transform_any(std::span<T> x) {
  while (!x.empty()) {
    const std::size_t count = std::bit_floor(x.size());
    transform(x.data(), count);
    x = x.subspan(count);
  }
}

}  // namespace

HadamardSigns::HadamardSigns(const SliceKey& key)
    : stream_(key.seed, RandomUse::kHadamardSigns, key.slice.tensor, kSharedRank, key.slice.stage,
              key.slice.step),
      first_(static_cast<std::uint64_t>(key.slice.first)) {}

template <typename T>
void HadamardSigns::flip(std::size_t begin, std::span<T> x) const {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr std::size_t kWords = 64;
  std::array<std::uint32_t, kWords + 1> words;
  for (std::size_t at = 0; at < x.size(); at += 32 * kWords) {
    const std::uint64_t element = first_ + begin + at;
    const std::size_t skip = element % 32;
    const std::size_t count = std::min(32 * kWords, x.size() - at);
    stream_.words(element / 32, std::span(words).first((skip + count + 31) / 32));
    for (std::size_t i = 0; i < count; i += 32) {
      std::uint64_t pair = words[i / 32];
      if (skip != 0 && skip + count > i + 32) pair |= std::uint64_t{words[i / 32 + 1]} << 32;
      const auto minus = static_cast<std::uint32_t>(pair >> skip);
      T* to = x.data() + at + i;
      const std::size_t some = std::min<std::size_t>(32, count - i);
      for (std::size_t j = 0; j < some; ++j) {
        const Bits sign = static_cast<Bits>(minus >> j & 1u) << (8 * sizeof(T) - 1);
        to[j] = std::bit_cast<T>(std::bit_cast<Bits>(to[j]) ^ sign);
      }
    }
  }
}

template <typename T>
void HadamardSigns::forward(std::size_t begin, std::span<T> x) const {
  flip(begin, x);
  transform_any(x);
}

template <typename T>
void HadamardSigns::inverse(std::size_t begin, std::span<T> x) const {
  transform_any(x);
  flip(begin, x);
}

template void HadamardSigns::forward<float>(std::size_t, std::span<float>) const;
template void HadamardSigns::forward<double>(std::size_t, std::span<double>) const;
template void HadamardSigns::inverse<float>(std::size_t, std::span<float>) const;
template void HadamardSigns::inverse<double>(std::size_t, std::span<double>) const;

}  // namespace gradwire
