#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signum/signum_kernels.h"

namespace gradwire::cpu {
namespace {

bool bit_of(const std::byte* bits, std::size_t i) {
  return (std::to_integer<unsigned>(bits[i / 8]) >> (i % 8) & 1u) != 0;
}

// Adds +1 or -1 to each count; count <= kSignumBlock, signs start at a byte.
void add_signs(const std::byte* signs, std::size_t count, std::int16_t* counts) {
  for (std::size_t i = 0; i < count; i += 64) {
    const std::size_t some = std::min<std::size_t>(64, count - i);
    std::uint64_t word = 0;
    std::memcpy(&word, signs + i / 8, (some + 7) / 8);
    for (std::size_t j = 0; j < some; ++j) {
      counts[i + j] =
          static_cast<std::int16_t>(counts[i + j] + 1 - 2 * static_cast<int>(word >> j & 1u));
    }
  }
}

}  // namespace

template <typename T>
void update_momentum(T beta, std::span<const T> grad, std::span<T> momentum) {
  const T fresh = T{1} - beta;
  for (std::size_t i = 0; i < grad.size(); ++i) {
    momentum[i] = fresh * grad[i] + beta * momentum[i];
  }
}

template <typename T>
void signum_encode(std::span<const T> momentum, ByteSpan wire) {
  const std::size_t zero_bytes = signum_zero_bytes(momentum.size());
  std::fill_n(wire.begin(), zero_bytes, std::byte{0});
  for (std::size_t at = 0, b = 0; at < momentum.size(); at += kSignumBlock, ++b) {
    const auto block = momentum.subspan(at, std::min(kSignumBlock, momentum.size() - at));
    bool nonzero = false;
    for (const T value : block) nonzero |= value != T{0};
    if (!nonzero) wire[b / 8] |= std::byte{1} << (b % 8);
    pack_signs(block, wire.data() + zero_bytes + at / 8);
  }
}

Status check_signum(ConstByteSpan wire, std::size_t elems) {
  const std::size_t zero_bytes = signum_zero_bytes(elems);
  if (unused_bits_clear(wire[zero_bytes - 1], signum_blocks(elems), 1) &&
      unused_bits_clear(wire.back(), elems, 1)) {
    return {};
  }
  return {Code::kCorruptPayload, "unused bits of a last byte are set (0 wanted)"};
}

template <typename T>
void signum_decode(ConstByteSpan wire, std::span<T> dst) {
  const std::byte* signs = wire.data() + signum_zero_bytes(dst.size());
  unpack_signs(signs, 0, T{1}, false, dst);
  for (std::size_t at = 0, b = 0; at < dst.size(); at += kSignumBlock, ++b) {
    if (!bit_of(wire.data(), b)) continue;
    const auto block = dst.subspan(at, std::min(kSignumBlock, dst.size() - at));
    std::fill(block.begin(), block.end(), T{0});
  }
}

template <typename T>
void signum_vote(std::span<const ConstByteSpan> payloads, std::span<T> dst) {
  const std::size_t zero_bytes = signum_zero_bytes(dst.size());
  for (std::size_t at = 0, b = 0; at < dst.size(); at += kSignumBlock, ++b) {
    const std::size_t count = std::min(kSignumBlock, dst.size() - at);
    std::array<std::int16_t, kSignumBlock> sums{};
    for (const ConstByteSpan payload : payloads) {
      if (bit_of(payload.data(), b)) continue;
      add_signs(payload.data() + zero_bytes + at / 8, count, sums.data());
    }
    for (std::size_t i = 0; i < count; ++i) {
      dst[at + i] = static_cast<T>((sums[i] > 0 ? 1 : 0) - (sums[i] < 0 ? 1 : 0));
    }
  }
}

#define GW_SIGNUM_KERNELS(T)                                             \
  template void update_momentum<T>(T, std::span<const T>, std::span<T>); \
  template void signum_encode<T>(std::span<const T>, ByteSpan);          \
  template void signum_decode<T>(ConstByteSpan, std::span<T>);           \
  template void signum_vote<T>(std::span<const ConstByteSpan>, std::span<T>)
GW_SIGNUM_KERNELS(float);
GW_SIGNUM_KERNELS(double);
#undef GW_SIGNUM_KERNELS

}  // namespace gradwire::cpu
