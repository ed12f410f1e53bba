#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/text.h"
#include "compress/dither.h"
#include "compress/little_endian.h"
#include "compress/shared_scale/magnitudes.h"
#include "compress/shared_scale/uniform_levels.h"
#include "compress/terngrad/trit_kernel.h"

namespace gradwire {
namespace {

constexpr unsigned kCodes = 243;     // 3^5
constexpr std::size_t kBlock = 500;  // elements coded at a time: whole bytes

// By byte: what its five digits stand for.
constexpr std::array<std::array<std::int8_t, kTritsPerByte>, kCodes> make_table() {
  std::array<std::array<std::int8_t, kTritsPerByte>, kCodes> table{};
  for (unsigned code = 0; code < kCodes; ++code) {
    unsigned rest = code;
    for (std::size_t j = 0; j < kTritsPerByte; ++j, rest /= 3) {
      const unsigned digit = rest % 3;
      table[code][j] = static_cast<std::int8_t>(digit == 2 ? -1 : static_cast<int>(digit));
    }
  }
  return table;
}
constexpr auto kTable = make_table();

std::byte byte_of(const std::uint8_t* codes, std::size_t count) {
  unsigned value = 0;
  constexpr std::array<std::uint8_t, 3> kDigits{2, 0, 1};  // of 1 + t
  for (std::size_t j = count; j > 0; --j) value = 3 * value + kDigits[codes[j - 1]];
  return static_cast<std::byte>(value);
}

}  // namespace

template <typename T>
Status TritKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  BucketMagnitudes magnitudes(clip != 0);
  magnitudes.add(x);
  const float scale = scale_above(magnitudes.clipped(clip));
  store_le(wire.data(), scale);
  std::byte* trits = wire.data() + sizeof(float);
  if (!(scale > 0)) {
    std::fill(trits, wire.data() + wire.size(), std::byte{0});
    return {};
  }
  Dither dither(key);
  std::array<std::uint8_t, kBlock> codes;
  for (std::size_t begin = 0; begin < x.size(); begin += kBlock) {
    const auto part = x.subspan(begin, std::min(kBlock, x.size() - begin));
    code_levels<T>(part, std::numeric_limits<T>::infinity(), scale, 1, begin, dither, codes.data());
    for (std::size_t i = 0; i < part.size(); i += kTritsPerByte) {
      *trits++ = byte_of(codes.data() + i, std::min(kTritsPerByte, part.size() - i));
    }
  }
  return {};
}

template <typename T>
Status TritKernel::decode(const SliceKey&, ConstByteSpan wire, bool add, std::span<T> out) const {
  const auto scale = load_le<float>(wire.data());
  const bool nothing = std::isnan(scale);
  if (!nothing && !(scale >= 0 && scale <= std::numeric_limits<float>::max())) {
    return {Code::kCorruptPayload,
            format("terngrad: scale %g (expected 0 or a positive finite number)",
                   static_cast<double>(scale))};
  }
  const std::byte* trits = wire.data() + sizeof(float);
  const auto s = static_cast<T>(scale);
  for (std::size_t begin = 0; begin < out.size(); begin += kTritsPerByte) {
    const auto code = std::to_integer<unsigned>(*trits++);
    const std::size_t count = std::min(kTritsPerByte, out.size() - begin);
    bool sound = code < kCodes;
    for (std::size_t j = count; sound && j < kTritsPerByte; ++j) sound = kTable[code][j] == 0;
    if (!sound) {
      return {Code::kCorruptPayload,
              format("terngrad: byte %u of elements %zu and on is no code of %zu trits", code,
                     begin, count)};
    }
    for (std::size_t j = 0; j < count; ++j) {
      const T value = nothing ? s : static_cast<T>(kTable[code][j]) * s;
      out[begin + j] = add ? out[begin + j] + value : value;
    }
  }
  return {};
}

template Status TritKernel::encode<float>(const SliceKey&, std::span<const float>, ByteSpan) const;
template Status TritKernel::encode<double>(const SliceKey&, std::span<const double>,
                                           ByteSpan) const;
template Status TritKernel::decode<float>(const SliceKey&, ConstByteSpan, bool,
                                          std::span<float>) const;
template Status TritKernel::decode<double>(const SliceKey&, ConstByteSpan, bool,
                                           std::span<double>) const;

}  // namespace gradwire
