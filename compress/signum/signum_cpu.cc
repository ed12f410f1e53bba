#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "compress/signsgd/signsgd_kernels.h"
#include "compress/signum/signum_kernels.h"

namespace gradwire::cpu {
namespace {

bool bit_of(const std::byte* bits, std::size_t i) {
  return (std::to_integer<unsigned>(bits[i / 8]) >> (i % 8) & 1u) != 0;
}

constexpr std::size_t kWord = 64;

// Bits i, i + 1, ... as a word; zeros where `count` ends.
std::uint64_t signs_at(const std::byte* signs, std::size_t i, std::size_t count) {
  std::uint64_t word = 0;
  std::memcpy(&word, signs + i / 8, (std::min(kWord, count - i) + 7) / 8);
  return word;
}

// dst = the sign of the sum of the voters' signs; `count` <= kSignumBlock elements.
template <typename T>
void vote_on_block(std::span<const std::byte* const> voters, std::size_t count, T* dst) {
  const int all = static_cast<int>(voters.size());
  for (std::size_t i = 0; i < count; i += kWord) {
    std::array<std::uint16_t, kWord> minus{};
    for (const std::byte* signs : voters) {
      const std::uint64_t word = signs_at(signs, i, count);
      for (std::size_t j = 0; j < kWord; ++j) {
        minus[j] = static_cast<std::uint16_t>(minus[j] + (word >> j & 1u));
      }
    }
    std::array<T, kWord> votes;
    for (std::size_t j = 0; j < kWord; ++j) {
      const int sum = all - 2 * minus[j];
      votes[j] = static_cast<T>((sum > 0 ? 1 : 0) - (sum < 0 ? 1 : 0));
    }
    std::copy_n(votes.begin(), std::min(kWord, count - i), dst + i);
  }
}

// As wide as the element, so that the loop stays in its vector lanes.
template <typename T>
bool all_zero(std::span<const T> x) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  Bits any = 0;
  for (const T value : x) any |= std::bit_cast<Bits>(value);
  return any << 1 == 0;  // -0 is zero too
}

// The block of `momentum` that starts at element `at`; bits of blocks are 0 before.
template <typename T>
void encode_block(std::span<const T> momentum, std::size_t at, ByteSpan wire) {
  const auto block = momentum.subspan(at, std::min(kSignumBlock, momentum.size() - at));
  const std::size_t b = at / kSignumBlock;
  if (all_zero(block)) wire[b / 8] |= std::byte{1} << (b % 8);
  pack_signs(block, wire.data() + signum_zero_bytes(momentum.size()) + at / 8);
}

}  // namespace

template <typename T>
void signum_encode(std::span<const T> momentum, ByteSpan wire) {
  std::fill_n(wire.begin(), signum_zero_bytes(momentum.size()), std::byte{0});
  for (std::size_t at = 0; at < momentum.size(); at += kSignumBlock) {
    encode_block(momentum, at, wire);
  }
}

template <typename T>
void signum_update(T beta, std::span<const T> grad, std::span<T> momentum, ByteSpan wire) {
  const T fresh = T{1} - beta;
  std::fill_n(wire.begin(), signum_zero_bytes(momentum.size()), std::byte{0});
  for (std::size_t at = 0; at < momentum.size(); at += kSignumBlock) {
    const std::size_t end = std::min(at + kSignumBlock, momentum.size());
    const T* const g = grad.data();
    T* const m = momentum.data();
    for (std::size_t i = at; i < end; ++i) m[i] = fresh * g[i] + beta * m[i];
    encode_block(std::span<const T>(momentum), at, wire);
  }
}

Status check_signum(ConstByteSpan wire, std::size_t elems) {
  const std::size_t zero_bytes = signum_zero_bytes(elems);
  if (unused_bits_clear(wire[zero_bytes - 1], signum_blocks(elems), 1) &&
      unused_bits_clear(wire.back(), elems, 1)) {
    return {};
  }
  return {Code::kCorruptPayload, "unused bits of a last byte are set (expected 0)"};
}

template <typename T>
void signum_decode(ConstByteSpan wire, bool add, std::span<T> dst) {
  const std::byte* signs = wire.data() + signum_zero_bytes(dst.size());
  for (std::size_t at = 0, b = 0; at < dst.size(); at += kSignumBlock, ++b) {
    const auto block = dst.subspan(at, std::min(kSignumBlock, dst.size() - at));
    if (!bit_of(wire.data(), b)) {
      unpack_signs(signs + at / 8, 0, T{1}, add, block);
    } else if (!add) {
      std::fill(block.begin(), block.end(), T{0});
    }
  }
}

template <typename T>
void signum_vote(std::span<const ConstByteSpan> payloads, std::span<T> dst) {
  const std::size_t zero_bytes = signum_zero_bytes(dst.size());
  std::vector<const std::byte*> voters;
  voters.reserve(payloads.size());
  for (std::size_t at = 0, b = 0; at < dst.size(); at += kSignumBlock, ++b) {
    voters.clear();
    for (const ConstByteSpan payload : payloads) {
      if (!bit_of(payload.data(), b)) voters.push_back(payload.data() + zero_bytes + at / 8);
    }
    vote_on_block(std::span<const std::byte* const>(voters),
                  std::min(kSignumBlock, dst.size() - at), dst.data() + at);
  }
}

#define GW_SIGNUM_KERNELS(T)                                                     \
  template void signum_update<T>(T, std::span<const T>, std::span<T>, ByteSpan); \
  template void signum_encode<T>(std::span<const T>, ByteSpan);                  \
  template void signum_decode<T>(ConstByteSpan, bool, std::span<T>);             \
  template void signum_vote<T>(std::span<const ConstByteSpan>, std::span<T>)
GW_SIGNUM_KERNELS(float);
GW_SIGNUM_KERNELS(double);
#undef GW_SIGNUM_KERNELS

}  // namespace gradwire::cpu
