#include <algorithm>
#include <bit>

#include "base/text.h"
#include "base/tiny_floats.h"
#include "compress/fp8/fp8_kernels.h"
#include "compress/little_endian.h"
#include "compress/value_range.h"

namespace gradwire {
namespace {

// Long rows are read twice: once for the scale, once for the codes.
template <typename Float, typename T>
void encode_group(std::span<const T> x, std::byte* wire) {
  const ValueRange<T> range = range_of(x);
  const float scale = range.finite ? rounded_up(std::max(std::abs(static_cast<double>(range.low)),
                                                         std::abs(static_cast<double>(range.high))))
                                   : std::numeric_limits<float>::infinity();
  store_le(wire, std::isfinite(scale) ? scale : std::bit_cast<float>(kNaNScaleBits));
  auto* codes = reinterpret_cast<std::uint8_t*>(wire + 4);
  if (!std::isfinite(scale) || scale == 0) {
    std::fill_n(codes, x.size(), std::uint8_t{0});
    return;
  }
  const auto factors = level_factors<T>(scale, static_cast<T>(Float::kLargest));
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = Float::from_float(static_cast<float>((from[i] * factors.before) * factors.by));
  }
}

template <typename Float, bool Add, typename T>
Status decode_group(const std::byte* wire, std::span<T> dst) {
  const auto scale = load_le<float>(wire);
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  if (bits >= 0x7f800000u && bits != kNaNScaleBits) {
    return {Code::kCorruptPayload,
            format("its scale has bits 0x%08x (a finite number >= 0, or 0x7fc00000)", bits)};
  }
  const auto* codes = reinterpret_cast<const std::uint8_t*>(wire + 4);
  const T wide = static_cast<T>(scale);
  const T inverse = T{1} / static_cast<T>(Float::kLargest);
  T* to = dst.data();
  unsigned largest = 0;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    largest = std::max(largest, codes[i] & Float::kMagnitudeMask);
    const T value = wide * (static_cast<T>(Float::to_float(codes[i])) * inverse);
    to[i] = Add ? to[i] + value : value;
  }
  if (largest <= Float::kLargestCode) return {};
  return {Code::kCorruptPayload, format("a code of magnitude 0x%02x (at most 0x%02x wanted)",
                                        largest, Float::kLargestCode)};
}

}  // namespace

template <typename T>
Status Fp8Kernel::encode(const SliceKey&, std::span<const T> x, ByteSpan wire) const {
  std::byte* to = wire.data();
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    const auto part = x.subspan(begin, std::min(group, x.size() - begin));
    if (type == Fp8Type::kE4M3) {
      encode_group<Float8E4M3>(part, to);
    } else {
      encode_group<Float8E5M2>(part, to);
    }
    to += 4 + part.size();
  }
  return {};
}

template <typename T>
Status Fp8Kernel::decode(const SliceKey&, ConstByteSpan wire, bool add, std::span<T> dst) const {
  const std::byte* from = wire.data();
  for (std::size_t begin = 0, g = 0; begin < dst.size(); begin += group, ++g) {
    const auto part = dst.subspan(begin, std::min(group, dst.size() - begin));
    const bool e4m3 = type == Fp8Type::kE4M3;
    const Status status = e4m3 && add ? decode_group<Float8E4M3, true>(from, part)
                          : e4m3      ? decode_group<Float8E4M3, false>(from, part)
                          : add       ? decode_group<Float8E5M2, true>(from, part)
                                      : decode_group<Float8E5M2, false>(from, part);
    if (!status.ok()) return status.with_context(format("fp8: group %zu", g));
    from += 4 + part.size();
  }
  return {};
}

template Status Fp8Kernel::encode<float>(const SliceKey&, std::span<const float>, ByteSpan) const;
template Status Fp8Kernel::encode<double>(const SliceKey&, std::span<const double>, ByteSpan) const;
template Status Fp8Kernel::decode<float>(const SliceKey&, ConstByteSpan, bool,
                                         std::span<float>) const;
template Status Fp8Kernel::decode<double>(const SliceKey&, ConstByteSpan, bool,
                                          std::span<double>) const;

}  // namespace gradwire
