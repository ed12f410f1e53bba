#include "trainer/step/clipping.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace gradwire {

double sum_of_squares(std::span<const float> values) {
  constexpr std::size_t kLanes = 16;
  std::array<double, kLanes> lane{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) {
      const double value = values[i + k];
      lane[k] += value * value;
    }
  }
  for (std::size_t k = 0; i + k < values.size(); ++k) {
    const double value = values[i + k];
    lane[k] += value * value;
  }
  double sum = lane[0];
  for (std::size_t k = 1; k < kLanes; ++k) sum += lane[k];
  return sum;
}

double norm(std::span<const float> values) { return std::sqrt(sum_of_squares(values)); }

void clip_to(std::span<float> values, double length, double most) {
  if (!(length > most) || !std::isfinite(length)) return;
  const auto factor = static_cast<float>(most / length);
  for (float& value : values) value *= factor;
}

bool all_finite(std::span<const float> values) {
  std::uint32_t found = 0;
  for (const float value : values) {
    constexpr std::uint32_t kExponent = 0x7f800000u;
    found |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  }
  return found == 0;
}

}  // namespace gradwire
