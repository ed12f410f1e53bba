// One pass over memory: a bucket's norm, its draws, its codes and what they leave for error
// feedback are computed while it lies in the nearest cache.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <hwy/cache_control.h>
#include "base/text.h"
#include "compress/little_endian.h"
#include "compress/qsgd/code_stream.h"
#include "compress/qsgd/qsgd_kernels.h"
#include "compress/qsgd/qsgd_loops.h"
#include "compress/simd/dither_bytes.h"
#include "compress/simd/line_writer.h"
#include "compress/simd/statistics.h"

namespace gradwire::cpu {
namespace {

constexpr std::size_t kChunk =
    ByteDither::kMost;                    // elements whose draws and codes are made at a time
constexpr std::size_t kFoldAhead = 8192;  // bytes
constexpr std::uint32_t kNaNBits = 0x7fc00000u;
constexpr std::size_t kLanes = 16;  // partial sums of the L2 norm; part of the format's definition

// The loops for an element type.
template <typename T>
struct Loops {
  static constexpr auto kLargestMagnitude = plain::largest_magnitude<T>;
  static constexpr auto kRoundToCodes = plain::round_to_codes<T>;
  static constexpr auto kExpand = plain::expand<T>;
  static constexpr auto kTakeAway = plain::take_away<T>;
};
template <>
struct Loops<float> {
  static constexpr auto kLargestMagnitude = largest_magnitude;
  static constexpr auto kRoundToCodes = simd::round_to_codes;
  static constexpr auto kExpand = simd::expand;
  static constexpr auto kTakeAway = simd::take_away;
};

// Squares summed in double: element i into lane i % kLanes, lanes then halved upon each other.
template <typename T>
double l2_norm(const Corrected<T>& x) {
  std::array<double, kLanes> lane{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      lane[j] += value * value;
    }
  }
  for (std::size_t j = 0; i + j < x.size; ++j) {
    const auto value = static_cast<double>(x[i + j]);
    lane[j] += value * value;
  }
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return std::sqrt(lane[0]);
}

// The bucket's norm as it travels: fp32 and at least every magnitude, or NaN.
template <typename T>
float norm_of(const QsgdGrid& grid, const Corrected<T>& bucket) {
  auto norm = static_cast<double>(Loops<T>::kLargestMagnitude(bucket));
  if (grid.l2 && std::isfinite(norm)) norm = std::max(norm, l2_norm(bucket));
  if (!(norm <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return std::bit_cast<float>(kNaNBits);
  }
  const auto rounded = static_cast<float>(norm);
  return static_cast<double>(rounded) < norm
             ? std::nextafterf(rounded, std::numeric_limits<float>::infinity())
             : rounded;
}

template <typename T>
QsgdScaling<T> scaling_of(float norm, int levels) {
  T before = 1;
  if constexpr (sizeof(T) == 4) {
    if (norm < 0x1p-90f) before = 0x1p64f;
    if (norm > 0x1p90f) before = 0x1p-64f;
  }
  return {before, static_cast<T>(256 * levels) / (static_cast<T>(norm) * before)};
}
template <typename T>
QsgdMagnitude<T> magnitude_of(float norm, int levels) {
  return {static_cast<T>(norm), T{1} / static_cast<T>(levels)};
}

Status check_norm(float norm, std::size_t bucket) {
  const auto bits = std::bit_cast<std::uint32_t>(norm);
  if (bits < 0x7f800000u || bits == kNaNBits) return {};
  return {Code::kCorruptPayload,
          format("qsgd: norm of bucket %zu has bits 0x%08x (a finite norm >= 0, or 0x7fc00000)",
                 bucket, bits)};
}

// Only needed when b - 1 bits can hold more than s.
Status check_levels(const QsgdGrid& grid, const std::uint8_t* codes, std::size_t count) {
  const int mask = (1 << (grid.bits - 1)) - 1;
  int largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, codes[i] & mask);
  if (largest <= grid.levels) return {};
  return {Code::kCorruptPayload,
          format("qsgd: level %d (at most %d wanted)", largest, grid.levels)};
}

// A bucket's codes, and with `next` what error feedback keeps of it.
template <typename T>
void encode_bucket(const QsgdGrid& grid, float norm, const Corrected<T>& bucket,
                   std::uint64_t first, ByteDither& dither, CodeWriter& writer, LineWriter* next,
                   T own_scale) {
  const bool codes_are_zero = !(norm > 0);
  const QsgdScaling<T> scaling =
      codes_are_zero ? QsgdScaling<T>{} : scaling_of<T>(norm, grid.levels);
  for (std::size_t at = 0; at < bucket.size; at += kChunk) {
    const Corrected<T> chunk = bucket.part(at, std::min(kChunk, bucket.size - at));
    std::uint8_t* codes = writer.room();
    if (codes_are_zero) {
      std::fill_n(codes, chunk.size, std::uint8_t{0});
    } else {
      Loops<T>::kRoundToCodes(grid, scaling, chunk, dither.of(first + at, chunk.size), codes);
    }
    if (next != nullptr) {
      Loops<T>::kTakeAway(grid, magnitude_of<T>(norm, grid.levels), codes, own_scale, chunk,
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
  // The bucket's next elements, at most kChunk.
  Status expand(bool add, std::span<T> to) {
    const std::uint8_t* codes = codes_.next(to.size());
    if (!every_code_is_legal_) GW_TRY(check_levels(grid_, codes, to.size()));
    Loops<T>::kExpand(grid_, magnitude_, codes, add, to);
    return {};
  }
  Status finish() const {
    if (codes_.rest_is_zero()) return {};
    return {Code::kCorruptPayload, "qsgd: bits behind the last code are set (0 wanted)"};
  }

 private:
  const QsgdGrid& grid_;
  ConstByteSpan wire_;
  CodeReader codes_;
  bool every_code_is_legal_;
  std::size_t bucket_ = 0;
  QsgdMagnitude<T> magnitude_;
};

// sum = or += an addend's next bucket, which stands at `begin`.
template <typename T>
Status add_bucket(const QsgdAddend<T>& addend, BucketReader<T>& reader, std::size_t begin, bool add,
                  std::span<T> sum) {
  if (addend.values != nullptr) {
    const T* from = addend.values + begin;
    for (std::size_t i = 0; i < sum.size_bytes(); i += 64) {
      hwy::Prefetch(reinterpret_cast<const std::byte*>(from) + i + kFoldAhead);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = add ? sum[i] + from[i] : from[i];
    return {};
  }
  GW_TRY(reader.next_bucket());
  for (std::size_t at = 0; at < sum.size(); at += kChunk) {
    GW_TRY(reader.expand(add, sum.subspan(at, std::min(kChunk, sum.size() - at))));
  }
  return {};
}

}  // namespace

template <typename T>
Status qsgd_encode(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                   const Corrected<T>& p, T* next, T own_scale, ByteSpan wire) {
  static_assert(kChunk * sizeof(T) <= LineWriter::kRoom);
  const std::size_t norms = qsgd_norm_bytes(grid, p.size);
  CodeWriter writer(grid.bits, wire.subspan(norms));
  LineWriter rest(reinterpret_cast<std::byte*>(next), next == nullptr ? 0 : p.size * sizeof(T));
  ByteDither dither(draws);
  for (std::size_t begin = 0, b = 0; begin < p.size; begin += grid.bucket, ++b) {
    const Corrected<T> bucket = p.part(begin, std::min(grid.bucket, p.size - begin));
    const float norm = norm_of<T>(grid, bucket);
    if (next != nullptr && std::isnan(norm)) {
      return {
          Code::kInvalidArgument,
          format("qsgd: the norm of bucket %zu, from element %zu of the slice on, is not finite "
                 "or no fp32 (error feedback wants it to be)",
                 b, begin)};
    }
    store_le<float>(wire.data(), norm, b);
    encode_bucket<T>(grid, norm, bucket, first + begin, dither, writer,
                     next == nullptr ? nullptr : &rest, own_scale);
  }
  writer.finish();
  rest.finish();
  return {};
}

template <typename T>
Status qsgd_decode(const QsgdGrid& grid, ConstByteSpan wire, bool add, std::span<T> dst) {
  BucketReader<T> reader(grid, wire, dst.size());
  LineWriter to(reinterpret_cast<std::byte*>(dst.data()), add ? 0 : dst.size_bytes());
  for (std::size_t begin = 0; begin < dst.size(); begin += grid.bucket) {
    const std::span<T> bucket = dst.subspan(begin, std::min(grid.bucket, dst.size() - begin));
    GW_TRY(reader.next_bucket());
    for (std::size_t at = 0; at < bucket.size(); at += kChunk) {
      const std::span<T> chunk = bucket.subspan(at, std::min(kChunk, bucket.size() - at));
      if (add) {
        GW_TRY(reader.expand(true, chunk));
      } else {
        GW_TRY(reader.expand(false, {reinterpret_cast<T*>(to.room()), chunk.size()}));
        to.commit(chunk.size_bytes());
      }
    }
  }
  to.finish();
  return reader.finish();
}

template <typename T>
Status qsgd_fold(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                 std::span<const QsgdAddend<T>> addends, std::size_t elems, ByteSpan wire) {
  std::vector<BucketReader<T>> readers;
  readers.reserve(addends.size());
  const std::size_t norms = qsgd_norm_bytes(grid, elems);
  std::vector<std::byte> none(norms);
  for (const QsgdAddend<T>& addend : addends) {
    readers.emplace_back(grid, addend.values != nullptr ? ConstByteSpan(none) : addend.wire, elems);
  }
  CodeWriter writer(grid.bits, wire.subspan(norms));
  ByteDither dither(draws);
  std::vector<T> sum(std::min(grid.bucket, elems));
  const auto named = [](const Status& status, std::size_t a) {
    return status.ok() ? status : status.with_context(format("addend %zu", a));
  };
  for (std::size_t begin = 0, b = 0; begin < elems; begin += grid.bucket, ++b) {
    const std::span<T> bucket = std::span(sum).first(std::min(grid.bucket, elems - begin));
    for (std::size_t a = 0; a < addends.size(); ++a) {
      GW_TRY(named(add_bucket(addends[a], readers[a], begin, a > 0, bucket), a));
    }
    const Corrected<T> p{std::span<const T>(bucket)};
    const float norm = norm_of<T>(grid, p);
    store_le<float>(wire.data(), norm, b);
    encode_bucket<T>(grid, norm, p, first + begin, dither, writer, nullptr, T{1});
  }
  writer.finish();
  for (std::size_t a = 0; a < addends.size(); ++a) {
    if (addends[a].values == nullptr) GW_TRY(named(readers[a].finish(), a));
  }
  return {};
}

#define GW_QSGD_KERNELS(T)                                                          \
  template Status qsgd_encode(const QsgdGrid&, const RandomStream&, std::uint64_t,  \
                              const Corrected<T>&, T*, T, ByteSpan);                \
  template Status qsgd_fold(const QsgdGrid&, const RandomStream&, std::uint64_t,    \
                            std::span<const QsgdAddend<T>>, std::size_t, ByteSpan); \
  template Status qsgd_decode(const QsgdGrid&, ConstByteSpan, bool, std::span<T>)
GW_QSGD_KERNELS(float);
GW_QSGD_KERNELS(double);
#undef GW_QSGD_KERNELS

}  // namespace gradwire::cpu
