// fp32 to 16 bits and back for a run of elements, by the best instruction set of the machine: the
// bits that base/small_floats.h gives.
#pragma once

#include <cstddef>

#include "compress/cast/cast_kernels.h"

namespace gradwire::cpu {

// wire[i] = half(from[i] * factor)
void half_run(HalfType type, const float* from, std::size_t count, float factor, std::byte* wire);
// to[i] = wire[i] * factor, or += where `add`
void float_run(HalfType type, const std::byte* wire, std::size_t count, float factor, bool add,
               float* to);

}  // namespace gradwire::cpu
