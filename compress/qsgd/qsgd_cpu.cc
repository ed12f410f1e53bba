// One pass over memory: a bucket's norm, its draws and its codes are computed while it lies in the
// nearest cache; codes are packed eight at a time.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/text.h"
#include "compress/little_endian.h"
#include "compress/qsgd/code_packing.h"
#include "compress/qsgd/qsgd_kernels.h"

namespace gradwire::cpu {
namespace {

constexpr std::size_t kChunk = 512;  // elements whose draws and codes are made at a time
constexpr std::uint32_t kNaNBits = 0x7fc00000u;
constexpr std::size_t kLanes = 16;  // partial sums of the L2 norm; part of the format's definition

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

template <typename T>
T largest_magnitude(std::span<const T> x) {  // NaN if there is one: its bits are largest
  Bits<T> largest = 0;
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::bit_cast<Bits<T>>(from[i]) & (~Bits<T>{0} >> 1));
  }
  return std::bit_cast<T>(largest);
}

// Squares summed in double: element i into lane i % kLanes, lanes then halved upon each other.
template <typename T>
double l2_norm(std::span<const T> x) {
  std::array<double, kLanes> lane{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      lane[j] += value * value;
    }
  }
  for (std::size_t j = 0; i + j < x.size(); ++j) {
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
float norm_of(const QsgdGrid& grid, std::span<const T> bucket) {
  auto norm = static_cast<double>(largest_magnitude(bucket));
  if (grid.l2 && std::isfinite(norm)) norm = std::max(norm, l2_norm(bucket));
  if (!(norm <= static_cast<double>(std::numeric_limits<float>::max()))) {
    return std::bit_cast<float>(kNaNBits);
  }
  const auto rounded = static_cast<float>(norm);
  return static_cast<double>(rounded) < norm
             ? std::nextafterf(rounded, std::numeric_limits<float>::infinity())
             : rounded;
}

// What turns |x| into a level: (|x| * before) * by. `before` is a power of two that keeps `by` a
// normal number for the smallest and largest norms.
template <typename T>
struct Scaling {
  T before;
  T by;
};
template <typename T>
Scaling<T> scaling_of(float norm, int levels) {
  T before = 1;
  if constexpr (sizeof(T) == 4) {
    if (norm < 0x1p-90f) before = 0x1p64f;
    if (norm > 0x1p90f) before = 0x1p-64f;
  }
  return {before, static_cast<T>(levels) / (static_cast<T>(norm) * before)};
}

// codes[i] of x[i], rounded up where (draw i + 1/2) / 2^16 is below the fraction: never for
// values on the grid. Finite elements and a norm > 0.
template <typename T>
void round_stochastically(const QsgdGrid& grid, float norm, std::span<const T> x,
                          const std::byte* draws, std::uint8_t* codes) {
  const Scaling<T> scaling = scaling_of<T>(norm, grid.levels);
  const int sign_shift = grid.bits - 1;
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const T a = (std::abs(from[i]) * scaling.before) * scaling.by;
    const auto whole = static_cast<std::int32_t>(a);
    const std::int32_t half = load_le<std::uint16_t>(draws, i);
    const T draw = (static_cast<T>(half) + T{0.5}) * T{0x1p-16};
    const std::int32_t up = draw < a - static_cast<T>(whole) ? 1 : 0;
    const std::int32_t level = std::min(whole + up, grid.levels);
    const auto sign =
        static_cast<std::int32_t>(std::bit_cast<Bits<T>>(from[i]) >> (8 * sizeof(T) - 1));
    codes[i] = static_cast<std::uint8_t>(level | sign << sign_shift);
  }
}

// Two elements share a word: element e has half e % 2 of word e / 2, the low one first.
class Draws {
 public:
  explicit Draws(const RandomStream& stream) : stream_(stream) {}

  // The draws of elements first, first + 1, ..., two bytes each; `count` <= kChunk. Valid until the
  // next call.
  const std::byte* of(std::uint64_t first, std::size_t count) {
    const std::size_t skip = first % 2;
    stream_.words(first / 2, std::span(words_).first((skip + count + 1) / 2));
    return reinterpret_cast<const std::byte*>(words_.data()) + 2 * skip;
  }

 private:
  const RandomStream& stream_;
  std::array<std::uint32_t, kChunk / 2 + 1> words_;
};

// Collects codes and lets whole groups of eight out as bytes.
class CodeWriter {
 public:
  CodeWriter(int bits, std::byte* bytes) : bits_(bits), bytes_(bytes) {}

  // Room for up to kChunk codes; then commit() what was written.
  std::uint8_t* room() { return codes_.data() + held_; }
  void commit(std::size_t count) {
    held_ += count;
    const std::size_t groups = held_ / 8;
    pack_codes(bits_, codes_.data(), groups, bytes_);
    bytes_ += groups * static_cast<std::size_t>(bits_);
    std::copy_n(codes_.begin() + static_cast<std::ptrdiff_t>(8 * groups), held_ % 8,
                codes_.begin());
    held_ %= 8;
  }
  void finish() {
    if (held_ == 0) return;
    std::fill(codes_.begin() + static_cast<std::ptrdiff_t>(held_), codes_.begin() + 8,
              std::uint8_t{0});
    std::array<std::byte, 8> last{};
    pack_codes(bits_, codes_.data(), 1, last.data());
    std::copy_n(last.begin(), (held_ * static_cast<std::size_t>(bits_) + 7) / 8, bytes_);
  }

 private:
  int bits_;
  std::byte* bytes_;
  std::size_t held_ = 0;  // fewer than 8 between commits
  std::array<std::uint8_t, kChunk + 8> codes_;
};

// Hands codes out, reading bytes by groups of eight codes.
class CodeReader {
 public:
  CodeReader(int bits, ConstByteSpan bytes)
      : bits_(static_cast<std::size_t>(bits)), bytes_(bytes) {}

  // The next `count` <= kChunk codes.
  const std::uint8_t* next(std::size_t count) {
    if (held_ - taken_ < count) refill();
    taken_ += count;
    return codes_.data() + taken_ - count;
  }
  // After the last code: whether bits behind it are set.
  bool rest_is_zero() const {
    return std::all_of(codes_.begin() + static_cast<std::ptrdiff_t>(taken_),
                       codes_.begin() + static_cast<std::ptrdiff_t>(held_),
                       [](std::uint8_t code) { return code == 0; });
  }

 private:
  void refill() {
    std::copy(codes_.begin() + static_cast<std::ptrdiff_t>(taken_),
              codes_.begin() + static_cast<std::ptrdiff_t>(held_), codes_.begin());
    held_ -= taken_;
    taken_ = 0;
    const std::size_t groups = std::min((codes_.size() - held_) / 8, bytes_.size() / bits_);
    unpack_codes(static_cast<int>(bits_), bytes_.data(), groups, codes_.data() + held_);
    held_ += 8 * groups;
    bytes_ = bytes_.subspan(groups * bits_);
    if (bytes_.empty() || bytes_.size() >= bits_ || codes_.size() - held_ < 8) return;
    std::array<std::byte, 8> last{};
    std::copy(bytes_.begin(), bytes_.end(), last.begin());
    unpack_codes(static_cast<int>(bits_), last.data(), 1, codes_.data() + held_);
    held_ += 8;
    bytes_ = {};
  }

  std::size_t bits_;
  ConstByteSpan bytes_;
  std::size_t held_ = 0;
  std::size_t taken_ = 0;
  std::array<std::uint8_t, 2 * kChunk + 16> codes_;
};

template <bool Add, typename T>
void expand(const QsgdGrid& grid, float norm, const std::uint8_t* codes, std::span<T> dst) {
  const T scale = static_cast<T>(norm);
  const T step = T{1} / static_cast<T>(grid.levels);
  const int level_mask = (1 << (grid.bits - 1)) - 1;
  const int sign_shift = grid.bits - 1;
  T* to = dst.data();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::int32_t code = codes[i];
    const T magnitude = scale * (static_cast<T>(code & level_mask) * step);
    const auto sign = static_cast<Bits<T>>(code >> sign_shift) << (8 * sizeof(T) - 1);
    const T value = std::bit_cast<T>(std::bit_cast<Bits<T>>(magnitude) ^ sign);
    to[i] = Add ? to[i] + value : value;
  }
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

}  // namespace

template <typename T>
void qsgd_encode(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                 std::span<const T> x, ByteSpan wire) {
  CodeWriter writer(grid.bits, wire.data() + qsgd_norm_bytes(grid, x.size()));
  Draws dither(draws);
  for (std::size_t begin = 0, b = 0; begin < x.size(); begin += grid.bucket, ++b) {
    const std::span<const T> bucket = x.subspan(begin, std::min(grid.bucket, x.size() - begin));
    const float norm = norm_of(grid, bucket);
    store_le(wire.data(), norm, b);
    for (std::size_t at = 0; at < bucket.size(); at += kChunk) {
      const std::span<const T> chunk = bucket.subspan(at, std::min(kChunk, bucket.size() - at));
      if (norm > 0) {
        round_stochastically(grid, norm, chunk, dither.of(first + begin + at, chunk.size()),
                             writer.room());
      } else {  // zeros, or NaN
        std::fill_n(writer.room(), chunk.size(), std::uint8_t{0});
      }
      writer.commit(chunk.size());
    }
  }
  writer.finish();
}

template <typename T>
Status qsgd_decode(const QsgdGrid& grid, ConstByteSpan wire, bool add, std::span<T> dst) {
  const bool every_code_is_legal = grid.levels == (1 << (grid.bits - 1)) - 1;
  CodeReader reader(grid.bits, wire.subspan(qsgd_norm_bytes(grid, dst.size())));
  for (std::size_t begin = 0, b = 0; begin < dst.size(); begin += grid.bucket, ++b) {
    const std::span<T> bucket = dst.subspan(begin, std::min(grid.bucket, dst.size() - begin));
    const float norm = load_le<float>(wire.data(), b);
    GW_TRY(check_norm(norm, b));
    for (std::size_t at = 0; at < bucket.size(); at += kChunk) {
      const std::span<T> chunk = bucket.subspan(at, std::min(kChunk, bucket.size() - at));
      const std::uint8_t* codes = reader.next(chunk.size());
      if (!every_code_is_legal) GW_TRY(check_levels(grid, codes, chunk.size()));
      if (add) {
        expand<true>(grid, norm, codes, chunk);
      } else {
        expand<false>(grid, norm, codes, chunk);
      }
    }
  }
  if (reader.rest_is_zero()) return {};
  return {Code::kCorruptPayload, "qsgd: bits behind the last code are set (0 wanted)"};
}

template void qsgd_encode<float>(const QsgdGrid&, const RandomStream&, std::uint64_t,
                                 std::span<const float>, ByteSpan);
template void qsgd_encode<double>(const QsgdGrid&, const RandomStream&, std::uint64_t,
                                  std::span<const double>, ByteSpan);
template Status qsgd_decode<float>(const QsgdGrid&, ConstByteSpan, bool, std::span<float>);
template Status qsgd_decode<double>(const QsgdGrid&, ConstByteSpan, bool, std::span<double>);

}  // namespace gradwire::cpu
