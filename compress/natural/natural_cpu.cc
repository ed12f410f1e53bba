#include <algorithm>
#include <bit>

#include "compress/dither.h"
#include "compress/little_endian.h"
#include "compress/natural/natural_kernels.h"
#include "compress/signsgd/signsgd_kernels.h"

namespace gradwire {
namespace {

constexpr std::size_t kChunk = Dither::kMost;
constexpr std::uint32_t kInfinity = 0x7f800000u;
constexpr std::uint32_t kQuietNaN = 0x7fc00000u;
constexpr std::uint32_t kNaNExponent = 255;
// The window of bits=8, as exponent fields of fp32.
constexpr std::uint32_t kLeast = 127 - 94;
constexpr std::uint32_t kNaNCode = 127;

// Bits of |x| as fp32.
template <typename T>
std::uint32_t magnitude_of(T x) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(x)) & 0x7fffffffu;
}

// What carries into the exponent of a mantissa: (h + 1/2) / 2^16 of 2^23.
inline std::uint32_t carry_of(const std::byte* draws, std::size_t i) {
  return static_cast<std::uint32_t>(load_le<std::uint16_t>(draws, i)) << 7 | 64u;
}

// Subnormal numbers round to 0 or to 2^-126 by the same addition.
template <typename T>
void encode_exponents(std::span<const T> x, const std::byte* draws, std::uint8_t* exponents) {
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t magnitude = magnitude_of(from[i]);
    const std::uint32_t rounded = std::min((magnitude + carry_of(draws, i)) >> 23, 254u);
    exponents[i] = static_cast<std::uint8_t>(magnitude >= kInfinity ? kNaNExponent : rounded);
  }
}

// Below the window, adding its least power of two makes a mantissa of x / 2^-94, which rounds to
// that power (standing for 0) or to twice it (standing for 2^-94).
template <typename T>
void encode_window(std::span<const T> x, const std::byte* draws, std::uint8_t* codes) {
  constexpr std::uint32_t kLeastBits = kLeast << 23;
  const T* from = x.data();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(from[i]));
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    const std::uint32_t low = std::min(magnitude, kLeastBits);
    const auto lifted =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(low) + std::bit_cast<float>(kLeastBits));
    const std::uint32_t carry = carry_of(draws, i);
    const std::uint32_t below = ((lifted + carry) >> 23) - kLeast;
    const std::uint32_t within = ((magnitude + carry) >> 23) - (kLeast - 1);
    std::uint32_t code = magnitude < kLeastBits ? below : std::min(within, kNaNCode - 1);
    code = magnitude >= kInfinity ? kNaNCode : code;
    codes[i] = static_cast<std::uint8_t>(code | (bits >> 31) << 7);
  }
}

// to = value, or to += value, of so many elements whose fp32 bits `bits_of` gives.
template <bool Add, typename T, typename BitsOf>
void put(std::span<T> dst, const BitsOf& bits_of) {
  T* to = dst.data();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const T value = static_cast<T>(std::bit_cast<float>(bits_of(i)));
    to[i] = Add ? to[i] + value : value;
  }
}
template <typename T, typename BitsOf>
void put(bool add, std::span<T> dst, const BitsOf& bits_of) {
  if (add) {
    put<true>(dst, bits_of);
  } else {
    put<false>(dst, bits_of);
  }
}

}  // namespace

template <typename T>
Status NaturalKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  Dither dither(key);
  auto* exponents = reinterpret_cast<std::uint8_t*>(wire.data() + (x.size() + 7) / 8);
  for (std::size_t at = 0; at < x.size(); at += kChunk) {
    const auto chunk = x.subspan(at, std::min(kChunk, x.size() - at));
    cpu::pack_signs(chunk, wire.data() + at / 8);
    encode_exponents(chunk, dither.of(at, chunk.size()), exponents + at);
  }
  return {};
}

template <typename T>
Status NaturalKernel::decode(const SliceKey&, ConstByteSpan wire, bool add,
                             std::span<T> dst) const {
  const std::size_t sign_bytes = (dst.size() + 7) / 8;
  if (!cpu::unused_bits_clear(wire[sign_bytes - 1], dst.size(), 1)) {
    return {Code::kCorruptPayload, "natural: unused bits of the last byte of signs are set"};
  }
  const auto* signs = reinterpret_cast<const std::uint8_t*>(wire.data());
  const auto* exponents = signs + sign_bytes;
  const auto bits_of = [exponents](std::size_t i) {
    const std::uint32_t exponent = exponents[i];
    return exponent == kNaNExponent ? kQuietNaN : exponent << 23;
  };
  std::size_t i = 0;
  for (; i + 8 <= dst.size(); i += 8) {
    const std::uint32_t byte = signs[i / 8];
    put(add, dst.subspan(i, 8),
        [&](std::size_t j) { return bits_of(i + j) | (byte >> j & 1u) << 31; });
  }
  put(add, dst.subspan(i), [&](std::size_t j) {
    return bits_of(i + j) | (static_cast<std::uint32_t>(signs[i / 8]) >> j & 1u) << 31;
  });
  return {};
}

template <typename T>
Status NaturalWindowKernel::encode(const SliceKey& key, std::span<const T> x, ByteSpan wire) const {
  Dither dither(key);
  auto* codes = reinterpret_cast<std::uint8_t*>(wire.data());
  for (std::size_t at = 0; at < x.size(); at += kChunk) {
    const auto chunk = x.subspan(at, std::min(kChunk, x.size() - at));
    encode_window(chunk, dither.of(at, chunk.size()), codes + at);
  }
  return {};
}

template <typename T>
Status NaturalWindowKernel::decode(const SliceKey&, ConstByteSpan wire, bool add,
                                   std::span<T> dst) const {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(wire.data());
  put(add, dst, [codes](std::size_t i) {
    const std::uint32_t code = codes[i] & 127u;
    const std::uint32_t finite = code == 0 ? 0u : (code + (kLeast - 1)) << 23;
    return (code == kNaNCode ? kQuietNaN : finite) | (codes[i] >> 7 & 1u) << 31;
  });
  return {};
}

#define GW_NATURAL_KERNELS(Kernel, T)                                                     \
  template Status Kernel::encode<T>(const SliceKey&, std::span<const T>, ByteSpan) const; \
  template Status Kernel::decode<T>(const SliceKey&, ConstByteSpan, bool, std::span<T>) const
GW_NATURAL_KERNELS(NaturalKernel, float);
GW_NATURAL_KERNELS(NaturalKernel, double);
GW_NATURAL_KERNELS(NaturalWindowKernel, float);
GW_NATURAL_KERNELS(NaturalWindowKernel, double);
#undef GW_NATURAL_KERNELS

}  // namespace gradwire
