// How long gradients are, and shorter ones in their place.
#pragma once

#include <span>

namespace gradwire {

// The sum of squares in double, in an order that no vector width changes; its root.
double sum_of_squares(std::span<const float> values);
double norm(std::span<const float> values);

// Where `length`, the values' norm, is above `most`: values *= most / length (computed in double,
// rounded to float once). A length that is not finite changes nothing.
void clip_to(std::span<float> values, double length, double most);

// No infinity and no NaN among them.
bool all_finite(std::span<const float> values);

}  // namespace gradwire
