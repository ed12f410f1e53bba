#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/text.h"
#include "compress/mx/mx_kernels.h"
#include "compress/mx/mx_loops.h"
#include "compress/simd/line_writer.h"

namespace gradwire {
namespace {

using Codes = std::array<std::uint8_t, kMxBlock + 8>;

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

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

template <typename Float, typename T>
std::byte* encode_block(std::span<const T> x, std::byte* wire) {
  const int field = exponent_field(x);
  const std::size_t length = code_bytes(x.size(), Float::kBits);
  if (field >= 255) {
    *wire = std::byte{kMxNaN};
    std::fill_n(wire + 1, length, std::byte{0});
    return wire + 1 + length;
  }
  const int scale = std::max(field - cpu::exponent_of_largest<Float>(), 0);
  *wire = static_cast<std::byte>(scale);
  const T factor = cpu::power_of_two<T>(127 - scale);
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
                                   : cpu::power_of_two<T>(static_cast<int>(scale) - 127);
  Codes codes;
  if (!read_codes(Float::kBits, wire + 1, dst.size(), codes.data())) {
    return {Code::kCorruptPayload, "bits behind the last code are set (expected 0)"};
  }
  unsigned largest = 0;
  T* to = dst.data();
  for (std::size_t i = 0; i < dst.size(); ++i) {
    largest = std::max(largest, codes[i] & Float::kMagnitudeMask);
    const T value = static_cast<T>(Float::to_float(codes[i])) * factor;
    to[i] = add ? to[i] + value : value;
  }
  if (largest > Float::kLargestCode) {
    return {Code::kCorruptPayload, format("a code of magnitude 0x%02x (expected at most 0x%02x)",
                                          largest, Float::kLargestCode)};
  }
  // e5m2 under the largest scales reaches beyond fp32.
  const T most = static_cast<T>(Float::to_float(largest)) * factor;
  if (scale == kMxNaN || std::isfinite(most)) return {};
  return {Code::kCorruptPayload, format("scale %u takes codes beyond what elements hold", scale)};
}

constexpr std::size_t kBlocks = 32;  // handled at a time
constexpr std::size_t kChunk = kBlocks * kMxBlock;

// Whole blocks of fp32, at most kBlocks, by vectors; 0 bytes where there are none.
std::size_t encode_blocks(const MxKernel& kernel, std::span<const float> x, std::byte* wire) {
  std::array<std::uint8_t, kBlocks> scales;
  std::array<std::uint8_t, kChunk + 8> codes;
  if (!cpu::mx_codes(kernel.type, x, scales.data(), codes.data())) return 0;
  const std::size_t length = code_bytes(kMxBlock, kernel.bits);
  std::byte* to = wire;
  for (std::size_t b = 0; b < x.size() / kMxBlock; ++b) {
    *to = static_cast<std::byte>(scales[b]);
    std::uint8_t* const from = codes.data() + b * kMxBlock;
    if (kernel.bits == 8) {
      std::copy_n(reinterpret_cast<const std::byte*>(from), kMxBlock, to + 1);
    } else {
      write_codes(kernel.bits, from, kMxBlock, to + 1);
    }
    to += 1 + length;
  }
  return static_cast<std::size_t>(to - wire);
}

// The reverse. False where it was not done: for want of vectors, or of a sound payload.
template <typename Float>
bool decode_blocks(const MxKernel& kernel, const std::byte* wire, bool add, std::span<float> dst) {
  constexpr int kLargestSafe = 254 - cpu::exponent_of_largest<Float>();
  std::array<std::uint8_t, kBlocks> scales;
  std::array<std::uint8_t, kChunk + 8> codes;
  const std::size_t length = code_bytes(kMxBlock, kernel.bits);
  for (std::size_t b = 0; b < dst.size() / kMxBlock; ++b) {
    const std::byte* const from = wire + b * (1 + length);
    scales[b] = std::to_integer<std::uint8_t>(*from);
    if (scales[b] > kLargestSafe) return false;  // NaN, or perhaps beyond fp32
    std::uint8_t* const to = codes.data() + b * kMxBlock;
    if (kernel.bits == 8) {
      std::memcpy(to, from + 1, kMxBlock);
    } else if (!read_codes(kernel.bits, from + 1, kMxBlock, to)) {
      return false;
    }
  }
  std::uint8_t most = 0;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    most = std::max(most, static_cast<std::uint8_t>(codes[i] & Float::kMagnitudeMask));
  }
  return most <= Float::kLargestCode &&
         cpu::mx_values(kernel.type, scales.data(), codes.data(), add, dst);
}

}  // namespace

template <typename T>
Status MxKernel::encode(const SliceKey&, std::span<const T> x, ByteSpan wire) const {
  cpu::LineWriter to(wire.data(), wire.size());
  for (std::size_t begin = 0; begin < x.size(); begin += kChunk) {
    const auto chunk = x.subspan(begin, std::min(kChunk, x.size() - begin));
    std::size_t done = 0;
    if constexpr (std::is_same_v<T, float>) {
      done = encode_blocks(*this, chunk.first(chunk.size() / kMxBlock * kMxBlock), to.room());
      if (done > 0) to.commit(done);
    }
    const std::size_t first = done > 0 ? chunk.size() / kMxBlock * kMxBlock : 0;
    cpu::with_mx_float(type, [&]<typename Float>() {
      for (std::size_t at = first; at < chunk.size(); at += kMxBlock) {
        const auto block = chunk.subspan(at, std::min(kMxBlock, chunk.size() - at));
        std::byte* const room = to.room();
        to.commit(static_cast<std::size_t>(encode_block<Float>(block, room) - room));
      }
    });
  }
  to.finish();
  return {};
}

template <typename T>
Status MxKernel::decode(const SliceKey&, ConstByteSpan wire, bool add, std::span<T> dst) const {
  constexpr std::size_t kAhead = 4096;  // bytes: beyond the page where prefetchers stop
  constexpr std::size_t kRun = std::min(kChunk, cpu::LineWriter::kRoom / sizeof(T));
  cpu::LineWriter to(reinterpret_cast<std::byte*>(dst.data()), add ? 0 : dst.size_bytes());
  const std::byte* from = wire.data();
  return cpu::with_mx_float(type, [&]<typename Float>() -> Status {
    for (std::size_t begin = 0; begin < dst.size(); begin += kRun) {
      std::span<T> run = dst.subspan(begin, std::min(kRun, dst.size() - begin));
      if (!add) run = {reinterpret_cast<T*>(to.room()), run.size()};
      const std::size_t length = bytes(run.size(), sizeof(T));
      for (std::size_t i = 0; i < length; i += 64) __builtin_prefetch(from + i + kAhead);
      bool done = false;
      if constexpr (std::is_same_v<T, float>) {
        done = run.size() % kMxBlock == 0 && decode_blocks<Float>(*this, from, add, run);
      }
      for (std::size_t at = 0; at < run.size() && !done; at += kMxBlock) {
        const auto block = run.subspan(at, std::min(kMxBlock, run.size() - at));
        const Status status = decode_block<Float>(from + bytes(at, sizeof(T)), add, block);
        if (!status.ok())
          return status.with_context(format("mx: block %zu", (begin + at) / kMxBlock));
      }
      if (!add) to.commit(run.size_bytes());
      from += length;
    }
    to.finish();
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
