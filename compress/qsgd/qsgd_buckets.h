// What encoding, decoding and folding of qsgd share: a bucket's norm, its draws, its codes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "base/text.h"
#include "compress/little_endian.h"
#include "compress/qsgd/code_stream.h"
#include "compress/qsgd/qsgd_arithmetic.h"
#include "compress/qsgd/qsgd_kernels.h"
#include "compress/qsgd/qsgd_loops.h"
#include "compress/simd/dither_bytes.h"
#include "compress/simd/line_writer.h"
#include "compress/simd/statistics.h"
#include "compress/value_range.h"

namespace gradwire::cpu {

// Elements whose draws and codes are made at a time.
inline constexpr std::size_t kQsgdChunk = ByteDither::kMost;
static_assert(kQsgdChunk <= kMostQsgdRounding);

// Of `count` elements from `first` of the tensor on; valid until the dither's next ones.
inline QsgdDraws draws_of(ByteDither& dither, std::uint64_t first, std::size_t count) {
  return {dither.of(first, count), &dither.stream(), first};
}

// The loops for an element type.
template <typename T>
struct QsgdLoops {
  static constexpr auto kLargestMagnitude = plain::largest_magnitude<T>;
  static constexpr auto kRoundToCodes = plain::round_to_codes<T>;
  static constexpr auto kExpand = plain::expand<T>;
  static constexpr auto kTakeAway = plain::take_away<T>;
};
template <>
struct QsgdLoops<float> {
  static constexpr auto kLargestMagnitude = largest_magnitude;
  static constexpr auto kRoundToCodes = simd::round_to_codes;
  static constexpr auto kExpand = simd::expand;
  static constexpr auto kTakeAway = simd::take_away;
};

// Squares summed in double: element i into lane i % kSums, lanes then halved upon each other.
template <typename T>
double l2_norm(const Corrected<T>& x) {
  constexpr std::size_t kSums = 16;  // part of the format's definition
  std::array<double, kSums> lane{};
  std::size_t i = 0;
  for (; i + kSums <= x.size; i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      lane[j] += value * value;
    }
  }
  for (std::size_t j = 0; i + j < x.size; ++j) {
    const auto value = static_cast<double>(x[i + j]);
    lane[j] += value * value;
  }
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return std::sqrt(lane[0]);
}

template <typename T>
float norm_of(const QsgdGrid& grid, const Corrected<T>& bucket) {
  auto norm = static_cast<double>(QsgdLoops<T>::kLargestMagnitude(bucket));
  if (grid.l2 && std::isfinite(norm)) norm = std::max(norm, l2_norm(bucket));
  return norm_that_travels(norm);
}

inline Status check_norm(float norm, std::size_t bucket) {
  const auto bits = std::bit_cast<std::uint32_t>(norm);
  if (bits < 0x7f800000u || bits == kNaNScaleBits) return {};
  return {Code::kCorruptPayload,
          format("qsgd: norm of bucket %zu has bits 0x%08x (a finite norm >= 0, or 0x7fc00000)",
                 bucket, bits)};
}

// Only needed when b - 1 bits can hold more than s.
inline Status check_levels(const QsgdGrid& grid, const std::uint8_t* codes, std::size_t count) {
  const int mask = (1 << (grid.bits - 1)) - 1;
  int largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, codes[i] & mask);
  if (largest <= grid.levels) return {};
  return {Code::kCorruptPayload,
          format("qsgd: level %d (expected at most %d)", largest, grid.levels)};
}

// Whether a bucket is coded in one call that also reads the next one: the largest magnitude is all
// that must be known of it.
inline bool reads_ahead(const QsgdGrid& grid) { return !grid.l2 && grid.bucket <= kQsgdChunk; }

// Codes of buckets one after the other, each made by step(QsgdRounding), which also reads what
// comes next. Of grids of which reads_ahead() holds.
class AheadWriter {
 public:
  AheadWriter(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first, ByteSpan wire,
              std::size_t norms)
      : grid_(grid),
        dither_(draws),
        first_(first),
        wire_(wire),
        codes_(grid.bits, wire.subspan(norms)) {}

  // Writes the bucket x, whose largest magnitude is `largest`, and returns what step() does. No
  // elements are to be rounded where all codes are 0.
  template <typename Step>
  auto bucket(std::span<const float> x, float largest, const Step& step) {
    if (x.empty()) return step(QsgdRounding{});
    const float norm = norm_that_travels(static_cast<double>(largest));
    store_le<float>(wire_.data(), norm, written_++);
    QsgdRounding rounding;
    rounding.codes = codes_.room();
    if (norm > 0) {
      rounding.scaling = scaling_of<float>(norm, grid_.levels);
      rounding.x = x;
      rounding.draws = draws_of(dither_, first_, x.size());
    } else {
      std::fill_n(rounding.codes, x.size(), std::uint8_t{0});
    }
    first_ += x.size();
    const auto seen = step(rounding);
    codes_.commit(x.size());
    return seen;
  }
  void finish() { codes_.finish(); }

 private:
  const QsgdGrid& grid_;
  ByteDither dither_;
  std::uint64_t first_;
  ByteSpan wire_;
  std::size_t written_ = 0;
  CodeWriter codes_;
};

// A bucket's codes, and with `next` what error feedback keeps of it.
template <typename T>
void encode_bucket(const QsgdGrid& grid, float norm, const Corrected<T>& bucket,
                   std::uint64_t first, ByteDither& dither, CodeWriter& writer, LineWriter* next,
                   T own_scale) {
  const bool codes_are_zero = !(norm > 0);
  const QsgdScaling<T> scaling =
      codes_are_zero ? QsgdScaling<T>{} : scaling_of<T>(norm, grid.levels);
  for (std::size_t at = 0; at < bucket.size; at += kQsgdChunk) {
    const Corrected<T> chunk = bucket.part(at, std::min(kQsgdChunk, bucket.size - at));
    std::uint8_t* codes = writer.room();
    if (codes_are_zero) {
      std::fill_n(codes, chunk.size, std::uint8_t{0});
    } else {
      QsgdLoops<T>::kRoundToCodes(grid, scaling, chunk, draws_of(dither, first + at, chunk.size),
                                  codes);
    }
    if (next != nullptr) {
      QsgdLoops<T>::kTakeAway(grid, magnitude_of<T>(norm, grid.levels), codes, own_scale, chunk,
                              reinterpret_cast<T*>(next->room()));
      next->commit(chunk.size * sizeof(T));
    }
    writer.commit(chunk.size);
  }
}

// Reads a slice bucket by bucket.
template <typename T>
class BucketReader {
 public:
  BucketReader(const QsgdGrid& grid, ConstByteSpan wire, std::size_t elems)
      : grid_(grid),
        wire_(wire),
        codes_(grid.bits, wire.subspan(qsgd_norm_bytes(grid, elems))),
        every_code_is_legal_(grid.levels == (1 << (grid.bits - 1)) - 1) {}

  // Starts the next bucket.
  Status next_bucket() {
    const float norm = load_le<float>(wire_.data(), bucket_);
    GW_TRY(check_norm(norm, bucket_++));
    magnitude_ = magnitude_of<T>(norm, grid_.levels);
    return {};
  }
  // Of the bucket: what its codes mean; and `count` <= kQsgdChunk of them. Valid until the next
  // call.
  QsgdMagnitude<T> magnitude() const { return magnitude_; }
  Result<const std::uint8_t*> codes(std::size_t count) {
    const std::uint8_t* codes = codes_.next(count);
    if (!every_code_is_legal_) GW_TRY(check_levels(grid_, codes, count));
    return codes;
  }
  // The bucket's next elements, at most kQsgdChunk.
  Status expand(bool add, std::span<T> to) {
    GW_ASSIGN(const std::uint8_t* const from, codes(to.size()));
    QsgdLoops<T>::kExpand(grid_, magnitude_, from, add, to);
    return {};
  }
  Status finish() const {
    if (codes_.rest_is_zero()) return {};
    return {Code::kCorruptPayload, "qsgd: bits behind the last code are set (expected 0)"};
  }

 private:
  const QsgdGrid& grid_;
  ConstByteSpan wire_;
  CodeReader codes_;
  bool every_code_is_legal_;
  std::size_t bucket_ = 0;
  QsgdMagnitude<T> magnitude_;
};

}  // namespace gradwire::cpu
