// The inner loops of minmax and absmax over part of a bucket. simd::, for fp32, takes the best
// instruction set of the machine and gives the bits that plain:: gives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/corrected.h"
#include "compress/little_endian.h"
#include "compress/uniform/uniform_meaning.h"

namespace gradwire::cpu {

// Where x stands on a grid, in levels: at least 0 up to rounding, and at most `most`.
template <typename T>
struct UniformPlace {
  T base;
  T before;
  T by;
  T zero;
  T most;

  constexpr T of(T x) const { return ((x - base) * before) * by + zero; }
};

// The codes of a bucket and what rounding leaves of it, for error feedback.
struct UniformSettling {
  UniformPlace<float> place = {};
  UniformMeaning<float> meaning = {};
  std::span<const float> x = {};
  std::uint8_t* codes = nullptr;
  float own_scale = 1;
  float* left = nullptr;  // x minus own_scale times what the codes mean
};

namespace plain {

// Adding this rounds a small positive number to the nearest integer, ties to even.
template <typename T>
constexpr T kRounder = sizeof(T) == 4 ? T{0x1.8p23} : static_cast<T>(0x1.8p52);

// The nearest level, ties to even.
template <typename T>
constexpr std::uint8_t nearest_code(const UniformPlace<T>& at, T x) {
  const T level = (at.of(x) + kRounder<T>)-kRounder<T>;
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(level, at.most)));
}
// The one below, or above it with the draw 0 ... 65535.
template <typename T>
constexpr std::uint8_t stochastic_code(const UniformPlace<T>& at, T x, std::int32_t half) {
  const T a = at.of(x);
  const auto whole = static_cast<std::int32_t>(a);
  const T draw = (static_cast<T>(half) + T{0.5}) * T{0x1p-16};
  const std::int32_t up = draw < a - static_cast<T>(whole) ? 1 : 0;
  return static_cast<std::uint8_t>(std::min(whole + up, static_cast<std::int32_t>(at.most)));
}

template <typename T>
void round_nearest(const UniformPlace<T>& place, std::span<const T> x, std::uint8_t* codes) {
  const UniformPlace<T> at = place;
  for (std::size_t i = 0; i < x.size(); ++i) codes[i] = nearest_code(at, x[i]);
}

// Two bytes of `draws` an element, as in dither.h.
template <typename T>
void round_stochastic(const UniformPlace<T>& place, std::span<const T> x, const std::byte* draws,
                      std::uint8_t* codes) {
  const UniformPlace<T> at = place;
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = stochastic_code<T>(at, x[i], load_le<std::uint16_t>(draws, i));
  }
}

// dst = what the codes stand for, added to `onto` unless that is null; onto may be dst. Returns the
// largest code.
template <typename T>
std::uint8_t expand(const UniformMeaning<T>& meaning, const std::uint8_t* codes, const T* onto,
                    std::span<T> dst) {
  const UniformMeaning<T> by = meaning;
  std::uint8_t largest = 0;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = by.value(codes[i]);
    dst[i] = onto != nullptr ? onto[i] + value : value;
    largest = std::max(largest, codes[i]);
  }
  return largest;
}

// As simd::round_settling() says, for elements from `first` on.
inline void settle(const UniformSettling& bucket, std::size_t first) {
  for (std::size_t i = first; i < bucket.x.size(); ++i) {
    bucket.codes[i] = nearest_code(bucket.place, bucket.x[i]);
    bucket.left[i] = bucket.x[i] - bucket.meaning.value(bucket.codes[i]) * bucket.own_scale;
  }
}

// The first place in x, other than `except`, whose bits are those of `value`. It is there.
template <typename T>
std::size_t find(std::span<const T> x, T value, std::size_t except) {
  const auto bits = [](T v) { return std::bit_cast<SignedBits<T>>(v); };
  std::size_t i = 0;
  while (bits(x[i]) != bits(value) || i == except) ++i;
  return i;
}

}  // namespace plain

// A sum that is made while the codes of another bucket are: onto + what the codes stand for.
struct UniformSum {
  UniformMeaning<float> meaning;
  const std::uint8_t* codes = nullptr;
  const float* onto = nullptr;
  std::span<float> sum;
};
// What was seen on the way.
struct UniformSeen {
  std::uint32_t magnitude = 0;  // the bits of the largest |sum|; NaN's are largest
  std::uint8_t code = 0;        // the largest code that was added
};

namespace simd {

void round_nearest(const UniformPlace<float>& place, std::span<const float> x, std::uint8_t* codes);
// round_nearest() of one bucket while the next is read from memory: neither waits for the other.
// Returns the largest magnitude of `next`, as largest_magnitude(). x and next may be empty.
float round_nearest_reading(const UniformPlace<float>& place, std::span<const float> x,
                            std::uint8_t* codes, std::span<const float> next);
// round_nearest() of one bucket while the next is summed.
UniformSeen round_nearest_adding(const UniformPlace<float>& place, std::span<const float> x,
                                 std::uint8_t* codes, const UniformSum& next);
// One bucket is rounded and settled while the next is added up, which goes to `sum`. Returns the
// largest magnitude of the sums. Either may be empty; next has a residual where it is not.
float round_settling(const UniformSettling& bucket, const Corrected<float>& next, float* sum);
void round_stochastic(const UniformPlace<float>& place, std::span<const float> x,
                      const std::byte* draws, std::uint8_t* codes);
std::uint8_t expand(const UniformMeaning<float>& meaning, const std::uint8_t* codes,
                    const float* onto, std::span<float> dst);
std::size_t find(std::span<const float> x, float value, std::size_t except);

}  // namespace simd

// The loops for an element type.
template <typename T>
struct UniformLoops {
  static constexpr auto kRoundNearest = plain::round_nearest<T>;
  static constexpr auto kRoundStochastic = plain::round_stochastic<T>;
  static constexpr auto kExpand = plain::expand<T>;
  static constexpr auto kFind = plain::find<T>;
};
template <>
struct UniformLoops<float> {
  static constexpr auto kRoundNearest = simd::round_nearest;
  static constexpr auto kRoundStochastic = simd::round_stochastic;
  static constexpr auto kExpand = simd::expand;
  static constexpr auto kFind = simd::find;
};

}  // namespace gradwire::cpu
