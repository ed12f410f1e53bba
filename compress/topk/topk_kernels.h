#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/corrected.h"
#include "compress/topk/topk_arithmetic.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

inline constexpr std::size_t kTopkIndexBytes = 4;

// Elements that may be among the k largest, in order of index; kept between calls for its memory.
template <typename T>
struct TopkScratch {
  std::vector<std::uint32_t> index;
  std::vector<T> value;
  std::vector<TopkKey<T>> keys;
};

}  // namespace gradwire

// T is float or double. A payload of k pairs has k * (kTopkIndexBytes + sizeof(T)) bytes and may
// start at any byte.
namespace gradwire::cpu {

// Writes the payload of x's k largest. 1 <= k <= x.size <= 2^32. Reads x once, plus a sample, and
// holds about 1.3 k candidates (all non-zero elements in the worst case). With `next`, of x's size:
// next = x - own_scale * what the payload decodes to. False when an element that is NaN or infinite
// was chosen, which it is if there is one: with `next`, payload and next are then unspecified.
template <typename T>
bool topk_encode(const Corrected<T>& x, T* next, T own_scale, std::size_t k,
                 TopkScratch<T>& scratch, ByteSpan payload);

// The elements whose keys (topk_loops.h) are at least `low` >= 1, in order of index, at the front
// of scratch.index and scratch.value; returns how many. One pass over x. With `next`, of x's size:
// next = x, less own_scale times what these elements decode to.
template <typename T>
std::size_t topk_collect(const Corrected<T>& x, TopkKey<T> low, TopkScratch<T>& scratch, T* next,
                         T own_scale);

// kCorruptPayload unless the k indices ascend strictly and stay below `elems`.
Status topk_check_indices(ConstByteSpan payload, std::size_t k, std::size_t elems);

// dst = factor * (the sum of the checked payloads, in their order), which may differ in their
// numbers of pairs. One pass over dst.
template <typename T>
void topk_decode(std::span<const ConstByteSpan> payloads, T factor, std::span<T> dst);

}  // namespace gradwire::cpu
