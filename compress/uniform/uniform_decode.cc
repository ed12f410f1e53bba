#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "base/text.h"
#include "compress/code_groups.h"
#include "compress/hadamard.h"
#include "compress/little_endian.h"
#include "compress/simd/line_writer.h"
#include "compress/uniform/uniform_decode.h"
#include "compress/uniform/uniform_loops.h"

namespace gradwire {
namespace {

Status check_head(const UniformGrid& grid, const UniformHead<double>& head, std::size_t count) {
  const auto scale = std::bit_cast<std::uint32_t>(head.scale);
  const auto base = std::bit_cast<std::uint32_t>(head.base);
  if (scale == kNaNScaleBits) {
    if (grid.symmetric || base == kNaNScaleBits) return {};
  } else if (scale < 0x7f800000u && std::isfinite(head.base)) {
    const bool apart = !grid.spikes || (head.low_at == head.high_at) == (count == 1);
    if (apart && head.low_at < count && head.high_at < count && std::isfinite(head.low) &&
        std::isfinite(head.high)) {
      return {};
    }
  }
  return {Code::kCorruptPayload,
          format("a bucket of %zu elements has base %08x, scale %08x (finite and >= 0, or both "
                 "7fc00000) and spikes %g at %zu and %g at %zu (finite, at two places inside)",
                 count, base, scale, head.low, head.low_at, head.high, head.high_at)};
}

template <typename T>
Result<UniformHead<T>> read_head(const UniformGrid& grid, const std::byte*& from,
                                 std::size_t count) {
  UniformHead<T> head;
  if (!grid.symmetric) {
    head.base = load_le<float>(from);
    from += 4;
  }
  head.scale = load_le<float>(from);
  from += 4;
  if (grid.spikes) {
    head.low_at = load_le<std::uint16_t>(from, 0);
    head.high_at = load_le<std::uint16_t>(from, 1);
    from += 4;
    head.low = load_le<T>(from, 0);
    head.high = load_le<T>(from, 1);
    from += 2 * sizeof(T);
  }
  GW_TRY(check_head(grid,
                    {head.base, head.scale, head.low_at, head.high_at,
                     static_cast<double>(head.low), static_cast<double>(head.high)},
                    count));
  return head;
}

template <typename T>
Result<UniformMeaning<T>> checked_meaning(const UniformGrid& grid, const UniformHead<T>& head) {
  const UniformMeaning<T> meaning = meaning_of<T>(grid, head.base, head.scale);
  if (head.is_nan() || std::isfinite(meaning.value(grid.levels()))) return meaning;
  return Status(Code::kCorruptPayload, "a bucket's largest code stands for no finite number");
}

// dst = codes, or dst += codes.
template <typename T>
Status expand_all(const UniformGrid& grid, const UniformHead<T>& head, const std::byte* wire,
                  bool add, std::span<T> dst) {
  GW_ASSIGN(const UniformMeaning<T> meaning, checked_meaning(grid, head));
  UniformCodes aside;
  int largest = 0;
  for (std::size_t at = 0; at < dst.size(); at += kUniformChunk) {
    const auto chunk = dst.subspan(at, std::min(kUniformChunk, dst.size() - at));
    const std::byte* const from = wire + code_bytes(at, grid.bits);
    const auto* codes = reinterpret_cast<const std::uint8_t*>(from);
    if (grid.bits != 8) {
      if (!read_codes(grid.bits, from, chunk.size(), aside.data())) {
        return {Code::kCorruptPayload, "bits behind a bucket's last code are set (expected 0)"};
      }
      codes = aside.data();
    }
    largest = std::max<int>(largest, cpu::UniformLoops<T>::kExpand(
                                         meaning, codes, add ? chunk.data() : nullptr, chunk));
  }
  return check_uniform_code(grid, largest);
}

// A bucket with spikes or a transform: made aside, then put.
template <typename T>
Status decode_aside(const UniformGrid& grid, const HadamardSigns* signs, std::size_t begin,
                    const UniformHead<T>& head, const std::byte* wire, bool add, std::span<T> dst,
                    std::span<T> aside) {
  GW_TRY(expand_all(grid, head, wire, false, aside));
  if (grid.spikes && !head.is_nan()) {
    aside[head.low_at] = head.low;
    aside[head.high_at] = head.high;
  }
  if (signs != nullptr) signs->inverse(begin, aside);
  for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = add ? dst[i] + aside[i] : aside[i];
  return {};
}

}  // namespace

template <typename T>
Result<UniformMeaning<T>> read_uniform_meaning(const UniformGrid& grid, const std::byte* wire,
                                               std::size_t count) {
  GW_ASSIGN(const UniformHead<T> head, read_head<T>(grid, wire, count));
  return checked_meaning(grid, head);
}

Status check_uniform_code(const UniformGrid& grid, int largest) {
  if (largest <= grid.levels()) return {};
  return {Code::kCorruptPayload,
          format("a code of %d (expected at most %d)", largest, grid.levels())};
}

template <typename T>
Status decode_uniform_bucket(const UniformGrid& grid, const HadamardSigns* signs, std::size_t begin,
                             const std::byte* wire, bool add, std::span<T> dst,
                             std::span<T> aside) {
  const std::byte* from = wire;
  const auto head = read_head<T>(grid, from, dst.size());
  if (!head.has_value()) return head.error();
  if (!grid.spikes && signs == nullptr) return expand_all(grid, head.value(), from, add, dst);
  return decode_aside(grid, signs, begin, head.value(), from, add, dst, aside.first(dst.size()));
}

template <typename T>
Status UniformKernel::decode(const SliceKey& key, ConstByteSpan wire, bool add,
                             std::span<T> dst) const {
  constexpr std::size_t kAhead = 4096;  // bytes: beyond the page where prefetchers stop
  std::optional<HadamardSigns> signs;
  if (grid.hadamard) signs.emplace(key);
  std::vector<T> aside(grid.hadamard || grid.spikes ? std::min(grid.bucket, dst.size()) : 0);
  const bool streams = !add && grid.bucket * sizeof(T) <= cpu::LineWriter::kRoom;
  cpu::LineWriter to(reinterpret_cast<std::byte*>(dst.data()), streams ? dst.size_bytes() : 0);
  const std::byte* from = wire.data();
  for (std::size_t begin = 0, b = 0; begin < dst.size(); begin += grid.bucket, ++b) {
    std::span<T> bucket = dst.subspan(begin, std::min(grid.bucket, dst.size() - begin));
    if (streams) bucket = {reinterpret_cast<T*>(to.room()), bucket.size()};
    const std::size_t length = bytes(bucket.size(), sizeof(T));
    for (std::size_t i = 0; i < length; i += 64) __builtin_prefetch(from + i + kAhead);
    const Status status =
        decode_uniform_bucket<T>(grid, signs ? &*signs : nullptr, begin, from, add, bucket, aside);
    if (!status.ok()) return status.with_context(format("bucket %zu", b));
    if (streams) to.commit(bucket.size_bytes());
    from += length;
  }
  if (streams) to.finish();
  return {};
}

#define GW_UNIFORM_DECODE(T)                                                                      \
  template Status decode_uniform_bucket<T>(const UniformGrid&, const HadamardSigns*, std::size_t, \
                                           const std::byte*, bool, std::span<T>, std::span<T>);   \
  template Status UniformKernel::decode<T>(const SliceKey&, ConstByteSpan, bool, std::span<T>) const
template Result<UniformMeaning<float>> read_uniform_meaning(const UniformGrid&, const std::byte*,
                                                            std::size_t);
GW_UNIFORM_DECODE(float);
GW_UNIFORM_DECODE(double);
#undef GW_UNIFORM_DECODE

}  // namespace gradwire
