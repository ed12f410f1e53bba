#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/text.h"
#include "base/tiny_floats.h"
#include "compress/mx/mx_kernels.h"

namespace gradwire {
namespace {

using Codes = std::array<std::uint8_t, kMxBlock + 8>;

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// Calls call.operator()<Float>() with the type's TinyFloat.
template <typename Call>
auto with_float(MxType type, const Call& call) {
  switch (type) {
    case MxType::kE4M3: return call.template operator()<Float8E4M3>();
    case MxType::kE5M2: return call.template operator()<Float8E5M2>();
    case MxType::kE3M2: return call.template operator()<Float6E3M2>();
    case MxType::kE2M3: return call.template operator()<Float6E2M3>();
    default: return call.template operator()<Float4E2M1>();
  }
}

template <typename Float>
constexpr int exponent_of_largest() {
  return static_cast<int>(std::bit_cast<std::uint32_t>(Float::kLargest) >> 23) - 127;
}

// floor(log2 |x|) + 127 of the largest magnitude; below the least normal number it counts as that
// of the next lower binade; 255 and more: not finite or too large.
template <typename T>
int exponent_field(std::span<const T> x) {
  Bits<T> largest = 0;
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::bit_cast<Bits<T>>(from[i]) & (~Bits<T>{0} >> 1));
  }
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  constexpr int kBias = std::numeric_limits<T>::max_exponent - 1;
  return static_cast<int>(largest >> kMantissa) - kBias + 127;
}

// 2^exponent for |exponent| <= 127.
template <typename T>
T power_of_two(int exponent) {
  return static_cast<T>(std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52));
}

template <typename Float, typename T>
std::byte* encode_block(std::span<const T> x, std::byte* wire) {
  const int field = exponent_field(x);
  const std::size_t length = code_bytes(x.size(), Float::kBits);
  if (field >= 255) {
    *wire = std::byte{kMxNaN};
    std::fill_n(wire + 1, length, std::byte{0});
    return wire + 1 + length;
  }
  const int scale = std::max(field - exponent_of_largest<Float>(), 0);
  *wire = static_cast<std::byte>(scale);
  const T factor = power_of_two<T>(127 - scale);
  Codes codes;
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    codes[i] = Float::from_float(static_cast<float>(from[i] * factor));
  }
  if constexpr (Float::kBits == 8) {
    std::copy_n(reinterpret_cast<const std::byte*>(codes.data()), x.size(), wire + 1);
  } else {
    write_codes(Float::kBits, codes.data(), x.size(), wire + 1);
  }
  return wire + 1 + length;
}

template <typename Float, typename T>
Status decode_block(const std::byte* wire, bool add, std::span<T> dst) {
  const auto scale = std::to_integer<unsigned>(*wire);
  const T factor = scale == kMxNaN ? std::numeric_limits<T>::quiet_NaN()
                                   : power_of_two<T>(static_cast<int>(scale) - 127);
  Codes codes;
  if (!read_codes(Float::kBits, wire + 1, dst.size(), codes.data())) {
    return {Code::kCorruptPayload, "bits behind the last code are set (0 wanted)"};
  }
  unsigned largest = 0;
  T* to = dst.data();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    largest = std::max(largest, codes[i] & Float::kMagnitudeMask);
    const T value = static_cast<T>(Float::to_float(codes[i])) * factor;
    to[i] = add ? to[i] + value : value;
  }
  if (largest > Float::kLargestCode) {
    return {Code::kCorruptPayload, format("a code of magnitude 0x%02x (at most 0x%02x wanted)",
                                          largest, Float::kLargestCode)};
  }
  // e5m2 under the largest scales reaches beyond fp32.
  const T most = static_cast<T>(Float::to_float(largest)) * factor;
  if (scale == kMxNaN || std::isfinite(most)) return {};
  return {Code::kCorruptPayload, format("scale %u takes codes beyond what elements hold", scale)};
}

}  // namespace

template <typename T>
Status MxKernel::encode(const SliceKey&, std::span<const T> x, ByteSpan wire) const {
  with_float(type, [&]<typename Float>() {
    std::byte* to = wire.data();
    std::size_t begin = 0;
    for (; begin + kMxBlock <= x.size(); begin += kMxBlock) {
      to = encode_block<Float>(x.subspan(begin, kMxBlock), to);
    }
    if (begin < x.size()) encode_block<Float>(x.subspan(begin), to);
  });
  return {};
}

template <typename T>
Status MxKernel::decode(const SliceKey&, ConstByteSpan wire, bool add, std::span<T> dst) const {
  return with_float(type, [&]<typename Float>() -> Status {
    const std::byte* from = wire.data();
    for (std::size_t begin = 0; begin < dst.size(); begin += kMxBlock) {
      const auto block = dst.subspan(begin, std::min(kMxBlock, dst.size() - begin));
      const Status status = decode_block<Float>(from, add, block);
      if (!status.ok()) return status.with_context(format("mx: block %zu", begin / kMxBlock));
      from += 1 + code_bytes(block.size(), Float::kBits);
    }
    return {};
  });
}

template Status MxKernel::encode<float>(const SliceKey&, std::span<const float>, ByteSpan) const;
template Status MxKernel::encode<double>(const SliceKey&, std::span<const double>, ByteSpan) const;
template Status MxKernel::decode<float>(const SliceKey&, ConstByteSpan, bool,
                                        std::span<float>) const;
template Status MxKernel::decode<double>(const SliceKey&, ConstByteSpan, bool,
                                         std::span<double>) const;

}  // namespace gradwire
