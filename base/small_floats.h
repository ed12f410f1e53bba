// fp32 <-> fp16 and bfloat16, round to nearest even, in integer arithmetic: the same bits on every
// machine. NaN stays NaN (quiet, payload's top bits kept); values too large become infinity; fp16
// subnormals are exact.
#pragma once

#include <bit>
#include <cstdint>

namespace gradwire {

constexpr std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t quiet = (bits >> 16) | 0x0040u;
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}
constexpr float float_from_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

// Both directions of fp16 compute every case and select, so that loops over them become vectors.
constexpr std::uint16_t fp16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  // Below 2^-14: let fp32 addition round to a multiple of 2^-24. (The clamp keeps the sum defined.)
  const std::uint32_t low = magnitude < 0x38800000u ? magnitude : 0u;
  const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(low) + 0.5f);
  const std::uint32_t normal = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  std::uint32_t half = magnitude < 0x38800000u ? tiny - 0x3f000000u : normal >> 13;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds past 65504
  half = magnitude > 0x7f800000u ? nan : half;
  return static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000u));
}
constexpr float float_from_fp16(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu;
  // Zero and subnormals: put behind the point of 2^-14, which is then taken away; exact.
  const auto tiny = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>((magnitude << 13) + 0x38800000u) - 0x1p-14f);
  const std::uint32_t normal = (magnitude << 13) + 0x38000000u;
  const std::uint32_t special = 0x7f800000u | ((magnitude & 0x3ffu) << 13);
  std::uint32_t bits = magnitude < 0x0400u ? tiny : normal;
  bits = magnitude >= 0x7c00u ? special : bits;
  return std::bit_cast<float>(bits | (static_cast<std::uint32_t>(half & 0x8000u) << 16));
}

}  // namespace gradwire
