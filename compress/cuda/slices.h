// What kernels of slices are given, and how they read and write it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compress/cuda/verdict.h"
#include "device/cuda/launch.h"
#include "device/cuda/map_kernel.h"
#include "gradwire/wire_format.h"

namespace gradwire::cuda {

// The elements to encode, and what error feedback keeps of them (Feedback of wire_format.h).
struct Source {
  const float* grad = nullptr;
  const float* residual = nullptr;  // null: the gradient alone
  float* next = nullptr;            // null: nothing is kept
  float own_scale = 1;
  std::int64_t count = 0;

  constexpr float at(std::int64_t i) const {
    return residual == nullptr ? grad[i] : grad[i] + residual[i];
  }
};

// Of tensors of kF32 and one size on a device.
inline Source source_of(ConstTensorView grad, const std::optional<Feedback>& feedback) {
  Source source{.grad = reinterpret_cast<const float*>(grad.data()), .count = grad.elems()};
  if (!feedback.has_value()) return source;
  source.residual = reinterpret_cast<const float*>(feedback->residual.data());
  source.next = reinterpret_cast<float*>(feedback->next.data());
  source.own_scale = static_cast<float>(feedback->scale);
  return source;
}

// x * by, by > 0: a NaN keeps its bits, as on the host, and becomes quiet. (The device's own
// product is one NaN for all.)
constexpr float times(float x, float by) {
  return x == x ? x * by
                : std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) | std::uint32_t{1} << 22);
}
constexpr bool is_finite(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7fffffffu) < 0x7f800000u;
}

// Payloads may start at any byte.
constexpr std::uint32_t load_word(const std::byte* bytes, std::int64_t index) {
  const std::byte* at = bytes + 4 * index;
  std::uint32_t word = 0;
  for (int i = 3; i >= 0; --i) word = word << 8 | static_cast<std::uint32_t>(at[i]);
  return word;
}
constexpr float load_float(const std::byte* bytes, std::int64_t index) {
  return std::bit_cast<float>(load_word(bytes, index));
}
constexpr void store_word(std::byte* bytes, std::int64_t index, std::uint32_t word) {
  std::byte* at = bytes + 4 * index;
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(word >> (8 * i) & 0xffu);
}
constexpr void store_float(std::byte* bytes, std::int64_t index, float value) {
  store_word(bytes, index, std::bit_cast<std::uint32_t>(value));
}

// The low `count` bytes of a word, the lowest first.
constexpr void store_bytes(std::byte* to, std::uint64_t word, int count) {
  for (int i = 0; i < count; ++i) to[i] = static_cast<std::byte>(word >> (8 * i) & 0xffu);
}
constexpr std::uint64_t load_bytes(const std::byte* from, int count) {
  std::uint64_t word = 0;
  for (int i = count - 1; i >= 0; --i) word = word << 8 | static_cast<std::uint64_t>(from[i]);
  return word;
}

}  // namespace gradwire::cuda
