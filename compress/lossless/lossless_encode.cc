#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "compress/code_groups.h"
#include "compress/little_endian.h"
#include "compress/lossless/lossless_layout.h"
#include "compress/lossless/lossless_loops.h"
#include "compress/lossless/lossless_plan.h"

namespace gradwire::cpu {
namespace {

// The block as it is, if that is shorter than planned.
template <typename T>
std::byte* write_raw(std::span<const T> x, std::byte* to) {
  *to = std::byte{kLosslessRaw};
  std::memcpy(to + 1, x.data(), x.size_bytes());
  return to + 1 + x.size_bytes();
}
template <typename T>
std::byte* write_head(const LosslessPlan& plan, typename LosslessLayout<T>::Exponent base,
                      std::byte* to) {
  *to = static_cast<std::byte>(plan.width + 16 * plan.omitted);
  store_le(to + 1, base);
  store_le(to + 1 + sizeof base, static_cast<std::uint16_t>(plan.escapes));
  return to + kLosslessHead<T>;
}

template <typename T>
std::byte* write_codes_and_exceptions(LosslessParts<T>& parts, const LosslessPlan& plan,
                                      std::size_t count, std::byte* to) {
  using Exponent = typename LosslessLayout<T>::Exponent;
  if (plan.width == 0) return to;
  const auto escape = static_cast<Exponent>((1u << plan.width) - 1);
  for (std::size_t i = 0; i < count; ++i) {
    parts.codes[i] = static_cast<std::uint8_t>(std::min(parts.distances[i], escape));
  }
  const int width = static_cast<int>(plan.width);
  write_codes(width, parts.codes.data(), count, to);
  to += code_bytes(count, width);
  if (plan.escapes == 0) return to;
  for_each_escape(parts.codes.data(), count, escape, [&](std::size_t i) {
    store_le(to, static_cast<Exponent>(parts.exponents[i]));
    to += sizeof(Exponent);
  });
  return to;
}

template <typename T>
std::byte* write_tail(LosslessParts<T>& parts, unsigned omitted, std::size_t count, std::byte* to) {
  using Layout = LosslessLayout<T>;
  constexpr int kTopMantissa = Layout::kTopBits - 1;
  constexpr int kBelow = Layout::kMantissa - kTopMantissa;
  if (omitted > Layout::kPlanes) return to;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = parts.bits[i];
    const auto sign = bits >> (8 * sizeof(T) - 1) << kTopMantissa;
    const auto mantissa = bits >> kBelow & ((1u << kTopMantissa) - 1);
    parts.tops[i] = static_cast<std::uint8_t>(sign | mantissa);
  }
  write_codes(Layout::kTopBits, parts.tops.data(), count, to);
  to += code_bytes(count, Layout::kTopBits);
  for (unsigned plane = Layout::kPlanes; plane-- > omitted;) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(to);
    for (std::size_t i = 0; i < count; ++i) {
      bytes[i] = static_cast<std::uint8_t>(parts.bits[i] >> (8 * plane));
    }
    to += count;
  }
  return to;
}

template <typename T>
std::byte* encode_block(std::span<const T> x, std::byte* to) {
  using Layout = LosslessLayout<T>;
  LosslessParts<T> parts;
  typename Layout::Bits any = 0;
  typename Layout::Exponent base = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto bits = std::bit_cast<typename Layout::Bits>(x[i]);
    const auto exponent = static_cast<typename Layout::Exponent>(bits >> Layout::kMantissa &
                                                                 (Layout::kExponents - 1));
    parts.bits[i] = bits;
    parts.exponents[i] = exponent;
    any |= bits;
    base = std::max(base, exponent);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    parts.distances[i] = static_cast<typename Layout::Exponent>(base - parts.exponents[i]);
  }
  std::fill(parts.distances.begin() + static_cast<std::ptrdiff_t>(x.size()), parts.distances.end(),
            typename Layout::Exponent{0});
  const LosslessPlan plan =
      cheapest_plan<T>(x.size(), lossless_omitted<T>(any), [&parts](unsigned width) {
        return count_at_least(parts.distances.data(), (1u << width) - 1);
      });
  if (plan.bytes >= 1 + x.size_bytes()) return write_raw(x, to);
  to = write_head<T>(plan, base, to);
  to = write_codes_and_exceptions(parts, plan, x.size(), to);
  return write_tail(parts, plan.omitted, x.size(), to);
}

// encode_block() of kLosslessBlock elements, by vectors.
std::byte* encode_whole_block(std::span<const float> x, std::byte* to) {
  LosslessBytes bytes;
  lossless_split(x.data(), bytes);
  const LosslessPlan plan =
      cheapest_plan<float>(kLosslessBlock, lossless_omitted<float>(bytes.any),
                           [&bytes](unsigned width) { return bytes.escapes[width - 1]; });
  if (plan.bytes >= 1 + x.size_bytes()) return write_raw(x, to);
  to = write_head<float>(plan, bytes.base, to);
  if (plan.width > 0) {
    std::array<std::uint8_t, kLosslessBlock> codes;
    std::array<std::uint8_t, kLosslessBlock> exceptions;
    const auto escape = static_cast<std::uint8_t>((1u << plan.width) - 1);
    const std::size_t escapes = lossless_codes(bytes, escape, codes.data(), exceptions.data());
    const int width = static_cast<int>(plan.width);
    write_codes(width, codes.data(), kLosslessBlock, to);
    to += code_bytes(kLosslessBlock, width);
    std::memcpy(to, exceptions.data(), escapes);
    to += escapes;
  }
  for (const auto& [row, most_omitted] :
       {std::pair(&bytes.tops, 2u), std::pair(&bytes.high, 1u), std::pair(&bytes.low, 0u)}) {
    if (plan.omitted > most_omitted) continue;
    std::memcpy(to, row->data(), kLosslessBlock);
    to += kLosslessBlock;
  }
  return to;
}

}  // namespace

template <typename T>
std::size_t lossless_encode(std::span<const T> x, ByteSpan wire) {
  std::byte* to = wire.data();
  for (std::size_t begin = 0; begin < x.size(); begin += kLosslessBlock) {
    fetch_ahead(x.data() + begin, kLosslessBlock * sizeof(T));
    const auto block = x.subspan(begin, std::min(kLosslessBlock, x.size() - begin));
    if constexpr (std::is_same_v<T, float>) {
      if (block.size() == kLosslessBlock) {
        to = encode_whole_block(block, to);
        continue;
      }
    }
    to = encode_block(block, to);
  }
  return static_cast<std::size_t>(to - wire.data());
}

template std::size_t lossless_encode<float>(std::span<const float>, ByteSpan);
template std::size_t lossless_encode<double>(std::span<const double>, ByteSpan);

}  // namespace gradwire::cpu
