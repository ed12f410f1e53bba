#include <algorithm>
#include <bit>

#include "base/text.h"
#include "compress/fp8/fp8_kernels.h"
#include "compress/fp8/fp8_loops.h"
#include "compress/little_endian.h"
#include "compress/simd/line_writer.h"
#include "compress/value_range.h"

namespace gradwire {
namespace {

constexpr std::size_t kChunk = 1024;  // elements coded at a time

float largest_of(Fp8Type type) {
  return type == Fp8Type::kE4M3 ? Float8E4M3::kLargest : Float8E5M2::kLargest;
}
unsigned largest_code_of(Fp8Type type) {
  return type == Fp8Type::kE4M3 ? Float8E4M3::kLargestCode : Float8E5M2::kLargestCode;
}

// Groups longer than a cache are read twice: once for the scale, once for the codes.
template <typename T>
void encode_group(Fp8Type type, std::span<const T> x, cpu::LineWriter& to) {
  const ValueRange<T> range = range_of(x);
  const float scale = range.finite ? rounded_up(std::max(std::abs(static_cast<double>(range.low)),
                                                         std::abs(static_cast<double>(range.high))))
                                   : std::numeric_limits<float>::infinity();
  const bool finite = std::isfinite(scale);
  store_le(to.room(), finite ? scale : std::bit_cast<float>(kNaNScaleBits));
  to.commit(4);
  const bool zeros = !finite || scale == 0;
  const auto factors =
      zeros ? LevelFactors<T>{} : level_factors<T>(scale, static_cast<T>(largest_of(type)));
  for (std::size_t at = 0; at < x.size(); at += kChunk) {
    const auto chunk = x.subspan(at, std::min(kChunk, x.size() - at));
    auto* const codes = reinterpret_cast<std::uint8_t*>(to.room());
    if (zeros) {
      std::fill_n(codes, chunk.size(), std::uint8_t{0});
    } else {
      cpu::Fp8Loops<T>::kCodes(type, factors, chunk, codes);
    }
    to.commit(chunk.size());
  }
}

// dst = or += the group at `wire`; what is not added is written by `to`.
template <typename T>
Status decode_group(Fp8Type type, const std::byte* wire, bool add, std::span<T> dst,
                    cpu::LineWriter& to) {
  constexpr std::size_t kAhead = 4096;  // bytes: beyond the page where prefetchers stop
  const auto scale = load_le<float>(wire);
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  if (bits >= 0x7f800000u && bits != kNaNScaleBits) {
    return {Code::kCorruptPayload,
            format("its scale has bits 0x%08x (a finite number >= 0, or 0x7fc00000)", bits)};
  }
  const auto* codes = reinterpret_cast<const std::uint8_t*>(wire + 4);
  const cpu::Fp8Meaning<T> meaning{static_cast<T>(scale), T{1} / static_cast<T>(largest_of(type))};
  unsigned largest = 0;
  for (std::size_t at = 0; at < dst.size(); at += kChunk / 2) {
    const auto chunk = dst.subspan(at, std::min(kChunk / 2, dst.size() - at));
    for (std::size_t i = 0; i < chunk.size(); i += 64) __builtin_prefetch(codes + at + i + kAhead);
    T* const out = add ? chunk.data() : reinterpret_cast<T*>(to.room());
    const T* const onto = add ? out : nullptr;
    largest = std::max(largest, cpu::Fp8Loops<T>::kValues(type, meaning, codes + at, onto,
                                                          std::span<T>(out, chunk.size())));
    if (!add) to.commit(chunk.size_bytes());
  }
  if (largest <= largest_code_of(type)) return {};
  return {Code::kCorruptPayload, format("a code of magnitude 0x%02x (expected at most 0x%02x)",
                                        largest, largest_code_of(type))};
}

}  // namespace

template <typename T>
Status Fp8Kernel::encode(const SliceKey&, std::span<const T> x, ByteSpan wire) const {
  cpu::LineWriter to(wire.data(), wire.size());
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    encode_group(type, x.subspan(begin, std::min(group, x.size() - begin)), to);
  }
  to.finish();
  return {};
}

template <typename T>
Status Fp8Kernel::decode(const SliceKey&, ConstByteSpan wire, bool add, std::span<T> dst) const {
  cpu::LineWriter to(reinterpret_cast<std::byte*>(dst.data()), add ? 0 : dst.size_bytes());
  const std::byte* from = wire.data();
  for (std::size_t begin = 0, g = 0; begin < dst.size(); begin += group, ++g) {
    const auto part = dst.subspan(begin, std::min(group, dst.size() - begin));
    const Status status = decode_group(type, from, add, part, to);
    if (!status.ok()) return status.with_context(format("fp8: group %zu", g));
    from += 4 + part.size();
  }
  to.finish();
  return {};
}

template Status Fp8Kernel::encode<float>(const SliceKey&, std::span<const float>, ByteSpan) const;
template Status Fp8Kernel::encode<double>(const SliceKey&, std::span<const double>, ByteSpan) const;
template Status Fp8Kernel::decode<float>(const SliceKey&, ConstByteSpan, bool,
                                         std::span<float>) const;
template Status Fp8Kernel::decode<double>(const SliceKey&, ConstByteSpan, bool,
                                          std::span<double>) const;

}  // namespace gradwire
