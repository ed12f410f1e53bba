// State of an optimizer: one float per element and kind, in memory that lies as the parameters do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire {

class FlatState {
 public:
  // One zeroed span per kind ("momentum"), of slice_elems(slices) elements.
  static Result<FlatState> allocate(const SliceTable& slices, std::vector<std::string> kinds,
                                    const MemoryArena& arena = {});
  FlatState() = default;

  std::span<float> operator[](std::size_t kind);
  // "<tensor>.<kind>" for every kind and slice.
  std::vector<NamedTensor> named(const SliceTable& slices);

 private:
  std::vector<std::string> kinds_;
  std::vector<Buffer> memory_;
};

// Calls visit(slice, from, count) for what each slice has of elements [first, end) of the spans,
// where it has any.
template <typename Visit>
Status visit_slices(const SliceTable& slices, std::int64_t first, std::int64_t end, Visit visit) {
  for (const TensorSlice& slice : slices) {
    const std::int64_t from = std::max(first, slice.offset);
    const std::int64_t to = std::min(end, slice.offset + slice.elems);
    if (from < to) {
      GW_TRY(visit(slice, static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    }
  }
  return {};
}

}  // namespace gradwire
