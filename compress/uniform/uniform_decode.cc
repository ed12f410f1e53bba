#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "base/text.h"
#include "compress/code_groups.h"
#include "compress/hadamard.h"
#include "compress/little_endian.h"
#include "compress/uniform/uniform_meaning.h"

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

template <bool Add, typename T>
void expand(const UniformMeaning<T>& meaning, const std::uint8_t* codes, std::span<T> dst) {
  const UniformMeaning<T> by = meaning;
  T* to = dst.data();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = by.value(codes[i]);
    to[i] = Add ? to[i] + value : value;
  }
}

// dst = codes, or dst += codes.
template <typename T>
Status expand_all(const UniformGrid& grid, const UniformHead<T>& head, const std::byte* wire,
                  bool add, std::span<T> dst) {
  const UniformMeaning<T> meaning = meaning_of<T>(grid, head.base, head.scale);
  if (!head.is_nan() && !std::isfinite(meaning.value(grid.levels()))) {
    return {Code::kCorruptPayload, "a bucket's largest code stands for no finite number"};
  }
  UniformCodes codes;
  int largest = 0;
  for (std::size_t at = 0; at < dst.size(); at += kUniformChunk) {
    const auto chunk = dst.subspan(at, std::min(kUniformChunk, dst.size() - at));
    if (!read_codes(grid.bits, wire + code_bytes(at, grid.bits), chunk.size(), codes.data())) {
      return {Code::kCorruptPayload, "bits behind a bucket's last code are set (0 wanted)"};
    }
    if (grid.symmetric && grid.bits > 1) {  // one code more than there are levels
      for (std::size_t i = 0; i < chunk.size(); ++i) largest = std::max<int>(largest, codes[i]);
    }
    if (add) {
      expand<true>(meaning, codes.data(), chunk);
    } else {
      expand<false>(meaning, codes.data(), chunk);
    }
  }
  if (largest <= grid.levels()) return {};
  return {Code::kCorruptPayload,
          format("a code of %d (at most %d wanted)", largest, grid.levels())};
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
Status UniformKernel::decode(const SliceKey& key, ConstByteSpan wire, bool add,
                             std::span<T> dst) const {
  std::optional<HadamardSigns> signs;
  if (grid.hadamard) signs.emplace(key);
  std::vector<T> scratch(grid.hadamard || grid.spikes ? std::min(grid.bucket, dst.size()) : 0);
  const std::byte* from = wire.data();
  for (std::size_t begin = 0, b = 0; begin < dst.size(); begin += grid.bucket, ++b) {
    const std::span<T> bucket = dst.subspan(begin, std::min(grid.bucket, dst.size() - begin));
    const auto head = read_head<T>(grid, from, bucket.size());
    if (!head.has_value()) return head.error().with_context(format("bucket %zu", b));
    const Status status =
        scratch.empty() ? expand_all(grid, head.value(), from, add, bucket)
                        : decode_aside(grid, signs ? &*signs : nullptr, begin, head.value(), from,
                                       add, bucket, std::span(scratch).first(bucket.size()));
    if (!status.ok()) return status.with_context(format("bucket %zu", b));
    from += code_bytes(bucket.size(), grid.bits);
  }
  return {};
}

template Status UniformKernel::decode<float>(const SliceKey&, ConstByteSpan, bool,
                                             std::span<float>) const;
template Status UniformKernel::decode<double>(const SliceKey&, ConstByteSpan, bool,
                                              std::span<double>) const;

}  // namespace gradwire
