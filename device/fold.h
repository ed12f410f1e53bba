// Many sources into many targets in one pass: what ranks that read each other's memory need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "gradwire/tensor.h"

namespace gradwire {

// How many bytes a pass writes from which on it should leave the caches alone.
enum class Stores : std::uint8_t {
  kCached,
  kStreaming,  // past the caches: for what is larger than they are and not read again soon
};

// target_k[i] = source_0[i] op source_1[i] op ..., a left fold in the order of the sources, for
// every target, as ReduceOp says. f16 and bf16 are combined in f32 and rounded once, at the end;
// kMean multiplies the sum by 1 / sources before that. A source may be a target (the same bytes),
// else nothing overlaps. Lines of such a source are fetched to be written. Host memory, any
// alignment; at least one source. Nothing is checked; kPreMulSum is a sum.
void fold(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
          std::span<std::byte* const> targets, std::int64_t elems, Stores stores);

// to = from. The ranges do not overlap.
void copy_with(Stores stores, std::byte* to, const std::byte* from, std::size_t bytes);
// to = from, where another core has written `from` and this one writes there next: its lines come
// to this core for good, instead of once to be read and once more to be written.
void copy_and_own(std::byte* to, const std::byte* from, std::size_t bytes);

// Streamed bytes are visible to other threads in the usual order only after this.
void finish_stores();

}  // namespace gradwire
