#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/philox.h"
#include "compress/corrected.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct QsgdGrid {
  int levels = 127;          // s, 1 ... 127
  int bits = 8;              // b, 2 ... 8: the narrowest that hold sign and s
  std::size_t bucket = 512;  // elements that share a norm
  bool l2 = false;           // the norm: L2, else L-infinity
};

// Bytes for `elems` elements: ceil(elems * bits / 8) + 4 ceil(elems / bucket).
constexpr std::size_t qsgd_norm_bytes(const QsgdGrid& grid, std::size_t elems) {
  return 4 * ((elems + grid.bucket - 1) / grid.bucket);
}
constexpr std::size_t qsgd_bytes(const QsgdGrid& grid, std::size_t elems) {
  return qsgd_norm_bytes(grid, elems) + (elems * static_cast<std::size_t>(grid.bits) + 7) / 8;
}

// One of several slices that are added up.
template <typename T>
struct QsgdAddend {
  const T* values = nullptr;  // or, if null,
  ConstByteSpan wire;         // qsgd_bytes() of codes
};

}  // namespace gradwire

// T is float or double. `wire` has qsgd_bytes() bytes and may start at any byte.
namespace gradwire::cpu {

// Element i is rounded with draw first + i of the format (qsgd.h). With `next`, which is of p's
// size: next = p - own_scale * what the payload decodes to, and a bucket whose norm is NaN is
// kInvalidArgument.
template <typename T>
Status qsgd_encode(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                   const Corrected<T>& p, T* next, T own_scale, ByteSpan wire);

// dst = wire, or dst += wire. kCorruptPayload on an impossible norm, a level above `levels` or a
// used padding bit; dst is then partly written.
template <typename T>
Status qsgd_decode(const QsgdGrid& grid, ConstByteSpan wire, bool add, std::span<T> dst);

// The bytes that decoding and adding up the addends, from left to right, and then encoding the sum
// give; sums live in the nearest cache. Errors as of qsgd_decode(). Not empty: addends, elems.
template <typename T>
Status qsgd_fold(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                 std::span<const QsgdAddend<T>> addends, std::size_t elems, ByteSpan wire);

}  // namespace gradwire::cpu
