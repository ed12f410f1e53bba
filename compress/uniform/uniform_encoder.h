// Encodes minmax's and absmax's buckets one by one. Memory is read once: a bucket's range, draws
// and codes are made while it lies in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <type_traits>
#include <vector>

#include "compress/code_groups.h"
#include "compress/dither.h"
#include "compress/hadamard.h"
#include "compress/little_endian.h"
#include "compress/shared_scale/magnitudes.h"
#include "compress/simd/line_writer.h"
#include "compress/simd/statistics.h"
#include "compress/uniform/uniform_arithmetic.h"
#include "compress/uniform/uniform_grid.h"
#include "compress/uniform/uniform_loops.h"

namespace gradwire {

inline constexpr std::size_t kGuardLanes = 16;  // partial sums; part of what the encoder does
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

// Whether a bucket is coded in one call that also reads the next one: the largest magnitude is all
// that must be known of it.
inline bool reads_ahead(const UniformGrid& grid) {
  return grid.symmetric && grid.bucket <= kUniformChunk && !grid.stochastic && !grid.spikes &&
         !grid.hadamard && !grid.guard;
}

// Of a symmetric grid the largest magnitude alone matters.
template <typename T>
ValueRange<T> range_for(const UniformGrid& grid, std::span<const T> x) {
  if (x.empty()) return {0, 0, true};
  if constexpr (std::is_same_v<T, float>) {
    if (grid.symmetric) {
      const float largest = cpu::largest_magnitude(Corrected<float>(x));
      return {largest, largest, std::isfinite(largest)};
    }
  }
  return range_of(x);
}

template <typename T>
void add_excess(const UniformMeaning<T>& meaning, std::span<const T> x, const std::uint8_t* codes,
                std::array<double, kGuardLanes>& lanes) {
  std::size_t i = 0;
  for (; i + kGuardLanes <= x.size(); i += kGuardLanes) {
    for (std::size_t j = 0; j < kGuardLanes; ++j) {
      lanes[j] += excess_of(meaning, x[i + j], codes[i + j]);
    }
  }
  for (std::size_t j = 0; i + j < x.size(); ++j) {
    lanes[j] += excess_of(meaning, x[i + j], codes[i + j]);
  }
}

// Every code 0.
template <typename T>
void write_plain(const UniformGrid& grid, UniformHead<T> head, std::size_t count, std::byte* wire) {
  if (head.is_nan()) head.high_at = count > 1 ? 1 : 0;
  std::fill_n(write_head(grid, head, wire), code_bytes(count, grid.bits), std::byte{0});
}

// Two pages ahead: hardware prefetchers stop at the end of one.
template <typename T>
void fetch_ahead(const T* x, std::size_t count) {
  const auto* ahead = reinterpret_cast<const std::byte*>(x) + 8192;
  for (std::size_t i = 0; i < count * sizeof(T); i += 64) __builtin_prefetch(ahead + i);
}

// One slice's encoding: scratch memory and the random numbers.
template <typename T>
class Encoder {
 public:
  Encoder(const UniformGrid& grid, const SliceKey& key) : grid_(grid), dither_(key) {
    if (grid.hadamard) signs_.emplace(key);
    if (grid.hadamard || grid.spikes) scratch_.resize(grid.bucket);
  }

  const HadamardSigns* signs() const { return signs_ ? &*signs_ : nullptr; }

  // The bucket that starts at element `begin`; writes its bytes. False: it decodes to NaN.
  bool bucket(std::size_t begin, std::span<const T> x, std::byte* wire) {
    UniformHead<T> head;
    const std::span<const T> values = prepared(begin, x, head);
    set_grid(grid_, range_for(grid_, values), head);
    if (head.is_nan() || head.scale == 0) {
      write_plain(grid_, head, values.size(), wire);
      return !head.is_nan();
    }
    if (coded(begin, values, head, write_head(grid_, head, wire))) return true;
    head.base = head.scale = 0;
    write_plain(grid_, head, values.size(), wire);
    return true;
  }

 private:
  // Transformed, and spikes taken out: in their place stands an element that is there anyway.
  std::span<const T> prepared(std::size_t begin, std::span<const T> x, UniformHead<T>& head) {
    if (scratch_.empty()) {
      if constexpr (!std::is_same_v<T, float>) fetch_ahead(x.data(), x.size());
      return x;
    }
    fetch_ahead(x.data(), x.size());
    const std::span<T> copy = std::span(scratch_).first(x.size());
    std::copy(x.begin(), x.end(), copy.begin());
    if (signs_) signs_->forward(begin, copy);
    if (grid_.spikes) take_spikes(copy, head);
    return copy;
  }

  void take_spikes(std::span<T> x, UniformHead<T>& head) {
    const ValueRange<T> range = range_of(std::span<const T>(x));
    if (!range.finite) return;
    const auto first = [&](T value, std::size_t except) {
      return cpu::UniformLoops<T>::kFind(std::span<const T>(x), value, except);
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
    const cpu::UniformPlace<T> place = place_on(grid_, meaning, head.scale);
    const bool watched = grid_.guard && (grid_.spikes || !surely_better_than_zeros(
                                                             meaning, x.size(), sum_of_squares(x)));
    std::array<double, kGuardLanes> excess{};
    UniformCodes aside;
    for (std::size_t at = 0; at < x.size(); at += kUniformChunk) {
      const auto chunk = x.subspan(at, std::min(kUniformChunk, x.size() - at));
      std::byte* const to = wire + code_bytes(at, grid_.bits);
      auto* const codes = grid_.bits == 8 ? reinterpret_cast<std::uint8_t*>(to) : aside.data();
      if (grid_.stochastic) {
        cpu::UniformLoops<T>::kRoundStochastic(place, chunk, dither_.of(begin + at, chunk.size()),
                                               codes);
      } else {
        cpu::UniformLoops<T>::kRoundNearest(place, chunk, codes);
      }
      if (watched) add_excess(meaning, chunk, codes, excess);
      for (const std::size_t spike : {head.low_at, head.high_at}) {
        if (!grid_.spikes || spike < at || spike >= at + chunk.size()) continue;
        if (watched) excess[0] -= excess_of(meaning, x[spike], codes[spike - at]);
        codes[spike - at] = 0;
      }
      if (grid_.bits != 8) write_codes(grid_.bits, codes, chunk.size(), to);
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

// Buckets of which reads_ahead() holds: codes of one are made by step(), which also reads the next.
// One slice's, from one thread.
class AheadEncoder {
 public:
  explicit AheadEncoder(const UniformGrid& grid) : grid_(grid) {}

  // What step() is to round: nothing where all codes are 0.
  struct Turn {
    cpu::UniformPlace<float> place = {};
    UniformMeaning<float> meaning = {};
    std::span<const float> x = {};
    std::uint8_t* codes = nullptr;
  };
  // Writes the bucket x, whose largest magnitude is `largest`, and returns what step(turn) does.
  // Nothing is written of an empty bucket.
  template <typename Step>
  auto bucket(std::span<const float> x, float largest, std::byte* wire, const Step& step) {
    UniformHead<float> head;
    set_grid<float>(grid_, {largest, largest, std::isfinite(largest)}, head);
    if (head.is_nan() || head.scale == 0) {
      if (!x.empty()) write_plain(grid_, head, x.size(), wire);
      return step(Turn{});
    }
    const UniformMeaning<float> meaning = meaning_of<float>(grid_, head.base, head.scale);
    std::byte* const to = write_head(grid_, head, wire);
    auto* const codes = grid_.bits == 8 ? reinterpret_cast<std::uint8_t*>(to) : aside_.data();
    auto result = step(Turn{place_on(grid_, meaning, head.scale), meaning, x, codes});
    if (grid_.bits != 8) write_codes(grid_.bits, codes, x.size(), to);
    return result;
  }

 private:
  const UniformGrid& grid_;
  UniformCodes aside_ = {};
};

// Where a slice's buckets are written, one after the other.
class BucketWriter {
 public:
  BucketWriter(const UniformGrid& grid, std::size_t element_bytes, ByteSpan wire)
      : writer_(wire.data(), wire.size()) {
    const std::size_t most =
        uniform_head_bytes(grid, element_bytes) + code_bytes(grid.bucket, grid.bits);
    if (most > cpu::LineWriter::kRoom) large_.resize(most);
  }
  // For one bucket.
  std::byte* room() { return large_.empty() ? writer_.room() : large_.data(); }
  void commit(std::size_t bytes) {
    if (large_.empty()) return writer_.commit(bytes);
    for (std::size_t at = 0; at < bytes; at += cpu::LineWriter::kRoom) {
      const std::size_t some = std::min(cpu::LineWriter::kRoom, bytes - at);
      std::copy_n(large_.data() + at, some, writer_.room());
      writer_.commit(some);
    }
  }
  void finish() { writer_.finish(); }

 private:
  cpu::LineWriter writer_;
  std::vector<std::byte> large_;
};

}  // namespace gradwire
