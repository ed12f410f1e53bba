// Host kernels of signum. T is float or double; payloads as in signum.h.
#pragma once

#include <cstddef>
#include <span>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

inline constexpr std::size_t kSignumBlock = 256;
constexpr std::size_t signum_blocks(std::size_t elems) {
  return (elems + kSignumBlock - 1) / kSignumBlock;
}
constexpr std::size_t signum_zero_bytes(std::size_t elems) {
  return (signum_blocks(elems) + 7) / 8;
}
constexpr std::size_t signum_bytes(std::size_t elems) {
  return signum_zero_bytes(elems) + (elems + 7) / 8;
}

namespace cpu {

template <typename T>
void signum_encode(std::span<const T> momentum, ByteSpan wire);

// The same of momentum = (1 - beta) grad + beta momentum, which is kept: one pass over memory.
template <typename T>
void signum_update(T beta, std::span<const T> grad, std::span<T> momentum, ByteSpan wire);

// kCorruptPayload where unused bits are set. elems > 0, wire has its length.
Status check_signum(ConstByteSpan wire, std::size_t elems);

// dst = (add: +=) -1, 0 or +1 as the payload says.
template <typename T>
void signum_decode(ConstByteSpan wire, bool add, std::span<T> dst);

// dst = the sign of the sum over payloads; fewer than 2^15 of them.
template <typename T>
void signum_vote(std::span<const ConstByteSpan> payloads, std::span<T> dst);

}  // namespace cpu
}  // namespace gradwire
