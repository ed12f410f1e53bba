// Memory is read once: a bucket's range, draws and codes are made while it lies in the nearest
// cache.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "compress/code_groups.h"
#include "compress/dither.h"
#include "compress/hadamard.h"
#include "compress/little_endian.h"
#include "compress/uniform/uniform_meaning.h"

namespace gradwire {
namespace {

constexpr std::size_t kLanes = 16;  // partial sums of the guard; part of what the encoder does
static_assert(kUniformChunk <= Dither::kMost);

template <typename T>
std::byte* write_head(const UniformGrid& grid, const UniformHead<T>& head, std::byte* to) {
  if (!grid.symmetric) {
    store_le(to, head.base);
    to += 4;
  }
  store_le(to, head.scale);
  to += 4;
  if (!grid.spikes) return to;
  store_le(to, static_cast<std::uint16_t>(head.low_at), 0);
  store_le(to, static_cast<std::uint16_t>(head.high_at), 1);
  to += 4;
  store_le(to, head.low, 0);
  store_le(to, head.high, 1);
  return to + 2 * sizeof(T);
}

// Base and scale of a grid over the range; NaN if fp32 cannot hold it.
template <typename T>
void set_grid(const UniformGrid& grid, const ValueRange<T>& range, UniformHead<T>& head) {
  const float nan = std::bit_cast<float>(kNaNScaleBits);
  if (!range.finite) {
    head = {.base = nan, .scale = nan};
    return;
  }
  const auto low = static_cast<double>(range.low);
  const auto high = static_cast<double>(range.high);
  if (grid.symmetric) {
    head.scale = rounded_up(std::max(std::abs(low), std::abs(high)));
  } else {
    head.base = rounded_down(low);
    head.scale = rounded_up(high - static_cast<double>(head.base));
  }
  // The largest code must not decode to more than a float holds.
  const UniformMeaning<T> meaning = meaning_of<T>(grid, head.base, head.scale);
  if (std::isfinite(head.base) && std::isfinite(head.scale) &&
      std::isfinite(meaning.value(grid.levels()))) {
    return;
  }
  head = {.base = nan, .scale = nan};
}

// Where x would stand on the grid, in levels; at least 0 up to rounding.
template <typename T>
struct Position {
  T base;
  LevelFactors<T> factors;
  T zero;

  T of(T x) const { return ((x - base) * factors.before) * factors.by + zero; }
};
template <typename T>
Position<T> position_on(const UniformMeaning<T>& meaning, float scale) {
  return {meaning.base, level_factors<T>(scale, meaning.per_scale), meaning.zero};
}

// Adding this rounds a small positive number to the nearest integer, ties to even.
template <typename T>
constexpr T kRounder = sizeof(T) == 4 ? T{0x1.8p23} : static_cast<T>(0x1.8p52);

template <typename T>
void round_nearest(const Position<T>& position, T most, std::span<const T> x, std::uint8_t* codes) {
  const Position<T> where = position;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T level = (where.of(x[i]) + kRounder<T>)-kRounder<T>;
    codes[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(std::min(level, most)));
  }
}

template <typename T>
void round_stochastic(const Position<T>& position, T most, std::span<const T> x,
                      const std::byte* draws, std::uint8_t* codes) {
  const Position<T> where = position;
  const auto limit = static_cast<std::int32_t>(most);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T a = where.of(x[i]);
    const auto whole = static_cast<std::int32_t>(a);
    const std::int32_t half = load_le<std::uint16_t>(draws, i);
    const T draw = (static_cast<T>(half) + T{0.5}) * T{0x1p-16};
    const std::int32_t up = draw < a - static_cast<T>(whole) ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(std::min(whole + up, limit));
  }
}

// Squared error minus square: what a code costs more than a zero would.
template <typename T>
double excess_of(const UniformMeaning<T>& meaning, T x, std::int32_t code) {
  const auto value = static_cast<double>(x);
  const double error = static_cast<double>(meaning.value(code)) - value;
  return error * error - value * value;
}
template <typename T>
void add_excess(const UniformMeaning<T>& meaning, std::span<const T> x, const std::uint8_t* codes,
                std::array<double, kLanes>& lanes) {
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      lanes[j] += excess_of(meaning, x[i + j], codes[i + j]);
    }
  }
  for (std::size_t j = 0; i + j < x.size(); ++j) {
    lanes[j] += excess_of(meaning, x[i + j], codes[i + j]);
  }
}

// Whether the largest possible error, half a level in every element, is within the sum of squares:
// then nothing needs to be added up exactly.
template <typename T>
bool surely_better_than_zeros(const UniformMeaning<T>& meaning, std::span<const T> x) {
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      lanes[j] += value * value;
    }
  }
  double squares = 0;
  for (const double lane : lanes) squares += lane;
  const double half =
      static_cast<double>(meaning.scale) / static_cast<double>(meaning.per_scale) / 2;
  constexpr double kRounding = 1.001;
  return static_cast<double>(x.size()) * half * half * kRounding <= squares;
}

// One slice's encoding: scratch memory and the random numbers.
template <typename T>
class Encoder {
 public:
  Encoder(const UniformGrid& grid, const SliceKey& key) : grid_(grid), dither_(key) {
    if (grid.hadamard) signs_.emplace(key);
    if (grid.hadamard || grid.spikes) scratch_.resize(grid.bucket);
  }

  // The bucket that starts at element `begin`; returns the end of what it wrote.
  std::byte* bucket(std::size_t begin, std::span<const T> x, std::byte* wire) {
    UniformHead<T> head;
    const std::span<const T> values = prepared(begin, x, head);
    set_grid(grid_, values.empty() ? ValueRange<T>{0, 0, true} : range_of(values), head);
    if (head.is_nan() || head.scale == 0) return plain(head, values.size(), wire);
    std::byte* codes = write_head(grid_, head, wire);
    if (!coded(begin, values, head, codes)) {
      head.base = head.scale = 0;
      return plain(head, values.size(), wire);
    }
    return codes + code_bytes(values.size(), grid_.bits);
  }

 private:
  // Every code 0.
  std::byte* plain(UniformHead<T> head, std::size_t count, std::byte* wire) {
    if (head.is_nan()) head.high_at = count > 1 ? 1 : 0;
    std::byte* codes = write_head(grid_, head, wire);
    const std::size_t length = code_bytes(count, grid_.bits);
    std::fill_n(codes, length, std::byte{0});
    return codes + length;
  }

  // Transformed, and spikes taken out: in their place stands an element that is there anyway.
  std::span<const T> prepared(std::size_t begin, std::span<const T> x, UniformHead<T>& head) {
    if (scratch_.empty()) return x;
    const std::span<T> copy = std::span(scratch_).first(x.size());
    std::copy(x.begin(), x.end(), copy.begin());
    if (signs_) signs_->forward(begin, copy);
    if (grid_.spikes) take_spikes(copy, head);
    return copy;
  }

  void take_spikes(std::span<T> x, UniformHead<T>& head) {
    const ValueRange<T> range = range_of(std::span<const T>(x));
    if (!range.finite) return;
    const auto bits = [](T value) { return std::bit_cast<SignedBits<T>>(value); };
    const auto first = [&](T value, std::size_t other) {
      std::size_t i = 0;
      while (bits(x[i]) != bits(value) || i == other) ++i;
      return i;
    };
    head.low = range.low;
    head.low_at = first(range.low, x.size());
    head.high = range.high;
    head.high_at = x.size() > 1 ? first(range.high, head.low_at) : head.low_at;
    std::size_t other = 0;
    while (other < x.size() && (other == head.low_at || other == head.high_at)) ++other;
    const T filling = other < x.size() ? x[other] : T{0};
    x[head.low_at] = x[head.high_at] = filling;
  }

  // False if zeros would be closer.
  bool coded(std::size_t begin, std::span<const T> x, const UniformHead<T>& head, std::byte* wire) {
    const UniformMeaning<T> meaning = meaning_of<T>(grid_, head.base, head.scale);
    const Position<T> position = position_on(meaning, head.scale);
    const T most = static_cast<T>(grid_.levels());
    const bool watched = grid_.guard && (grid_.spikes || !surely_better_than_zeros(meaning, x));
    std::array<double, kLanes> excess{};
    UniformCodes codes;
    for (std::size_t at = 0; at < x.size(); at += kUniformChunk) {
      const auto chunk = x.subspan(at, std::min(kUniformChunk, x.size() - at));
      if (grid_.stochastic) {
        round_stochastic(position, most, chunk, dither_.of(begin + at, chunk.size()), codes.data());
      } else {
        round_nearest(position, most, chunk, codes.data());
      }
      if (watched) add_excess(meaning, chunk, codes.data(), excess);
      for (const std::size_t spike : {head.low_at, head.high_at}) {
        if (!grid_.spikes || spike < at || spike >= at + chunk.size()) continue;
        if (watched) excess[0] -= excess_of(meaning, x[spike], codes[spike - at]);
        codes[spike - at] = 0;
      }
      write_codes(grid_.bits, codes.data(), chunk.size(), wire + code_bytes(at, grid_.bits));
    }
    double sum = 0;
    for (const double lane : excess) sum += lane;
    return !(sum > 0);
  }

  const UniformGrid& grid_;
  Dither dither_;
  std::optional<HadamardSigns> signs_;
  std::vector<T> scratch_;
};

}  // namespace

template <typename T>
Status UniformKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  Encoder<T> encoder(grid, key);
  std::byte* to = wire.data();
  for (std::size_t begin = 0; begin < x.size(); begin += grid.bucket) {
    // Two pages ahead: hardware prefetchers stop at the end of one.
    const auto* ahead = reinterpret_cast<const std::byte*>(x.data() + begin) + 8192;
    for (std::size_t i = 0; i < grid.bucket * sizeof(T); i += 64) __builtin_prefetch(ahead + i);
    to = encoder.bucket(begin, x.subspan(begin, std::min(grid.bucket, x.size() - begin)), to);
  }
  return {};
}

template Status UniformKernel::encode<float>(const SliceKey&, std::span<const float>,
                                             ByteSpan) const;
template Status UniformKernel::encode<double>(const SliceKey&, std::span<const double>,
                                              ByteSpan) const;

}  // namespace gradwire
