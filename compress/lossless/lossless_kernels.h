// Blocks of lossless.h to and from bytes. T is float or double.
#pragma once

#include <cstddef>
#include <span>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

inline constexpr std::size_t kLosslessBlock = 512;

constexpr std::size_t lossless_most_bytes(std::size_t elems, std::size_t element_bytes) {
  return (elems + kLosslessBlock - 1) / kLosslessBlock + elems * element_bytes;
}

namespace cpu {

// Returns the bytes written, at most lossless_most_bytes(); wire has room for them.
template <typename T>
std::size_t lossless_encode(std::span<const T> x, ByteSpan wire);

// x = the payload, or x += the payload. kCorruptPayload unless it is exactly one of x.size()
// elements; x is then partly written.
template <typename T>
Status lossless_decode(ConstByteSpan wire, bool add, std::span<T> x);

}  // namespace cpu
}  // namespace gradwire
