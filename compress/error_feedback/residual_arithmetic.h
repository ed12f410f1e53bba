// How an element of a residual is stored, to host and device alike.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace gradwire {

inline constexpr double kMostResidualCode = 127;

// Adding the draw below the kept bits carries into them as often as the fraction says. Where the
// carry would make an infinity the value is cut off.
constexpr std::uint16_t bf16_stochastic(float value, std::uint32_t draw) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + draw;
  const bool infinite = (rounded & 0x7f800000u) == 0x7f800000u;
  return static_cast<std::uint16_t>((infinite ? bits : rounded) >> 16);
}

// Of a block whose largest magnitude is `most`.
constexpr float residual_scale(double most) {
  const auto scale = static_cast<float>(most / kMostResidualCode);
  // The largest element shall not round to infinity: the next number below.
  const bool beyond =
      scale * static_cast<float>(kMostResidualCode) > std::numeric_limits<float>::max();
  return beyond ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) - 1) : scale;
}

// `draw` in [0, 1).
constexpr std::int8_t residual_code(double value, float scale, double draw) {
  if (scale == 0) return 0;
  const double exact = value / static_cast<double>(scale) + draw;
  if (exact >= kMostResidualCode) return 127;
  if (exact < -kMostResidualCode) return -127;
  const auto towards_zero = static_cast<int>(exact);
  return static_cast<std::int8_t>(static_cast<double>(towards_zero) > exact ? towards_zero - 1
                                                                            : towards_zero);
}

}  // namespace gradwire
