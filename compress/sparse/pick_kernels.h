// Host kernels for elements at given places. T is float or double; places ascend strictly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/corrected.h"

namespace gradwire::cpu {

// What error feedback keeps: next = p - own_scale * what is sent. Null `next`: nothing.
template <typename T>
struct Rest {
  T* next = nullptr;
  T own_scale = 1;
};

// picked[j] = factor * p[index[j]], and the rest of all elements, in one pass over p. False when an
// element of p is not finite; `picked` and the rest are then unspecified.
template <typename T>
bool pick(const Corrected<T>& p, std::span<const std::uint32_t> index, T factor,
          std::span<T> picked, const Rest<T>& rest);

// dst = value[j] at index[j], 0 elsewhere.
template <typename T>
void spread(std::span<const std::uint32_t> index, std::span<const T> value, std::span<T> dst);

}  // namespace gradwire::cpu
