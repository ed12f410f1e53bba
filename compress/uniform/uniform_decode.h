// One bucket of minmax or absmax.
#pragma once

#include <cstddef>
#include <span>

#include "compress/hadamard.h"
#include "compress/uniform/uniform_grid.h"
#include "compress/uniform/uniform_meaning.h"
#include "gradwire/status.h"

namespace gradwire {

// dst = or += the bucket that starts at `wire` and at element `begin` of the slice. `aside` has
// dst.size() elements or more and is overwritten; `signs` is null unless grid.hadamard.
// kCorruptPayload: dst is then partly written. T is float or double.
template <typename T>
Status decode_uniform_bucket(const UniformGrid& grid, const HadamardSigns* signs, std::size_t begin,
                             const std::byte* wire, bool add, std::span<T> dst, std::span<T> aside);

// What the codes behind the head of the bucket of `count` elements at `wire` mean, on a grid
// without spikes. kCorruptPayload on an impossible head.
template <typename T>
Result<UniformMeaning<T>> read_uniform_meaning(const UniformGrid& grid, const std::byte* wire,
                                               std::size_t count);
// kCorruptPayload if a code is larger than the grid's levels.
Status check_uniform_code(const UniformGrid& grid, int largest);

}  // namespace gradwire
