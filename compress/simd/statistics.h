// What encoders ask of a bucket before they code it, read once. The same bits on any instruction
// set.
#pragma once

#include <cstddef>
#include <span>

#include "compress/corrected.h"

namespace gradwire::cpu {

// The largest |p|; NaN if there is one: its bits are largest. 0 of nothing.
float largest_magnitude(const Corrected<float>& p);

// Squares in double, element i added to partial sum i % 16; the sixteen are folded in halves.
double sum_of_squares(std::span<const float> x);

}  // namespace gradwire::cpu
