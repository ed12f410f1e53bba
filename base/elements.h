// Typed access to a view whose dtype is known, and a switch over floating dtypes.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "gradwire/tensor.h"

namespace gradwire {

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType kValue = DType::kI64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType kValue = DType::kI8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType kValue = DType::kU8;
};

// The elements as T. Requires the view's dtype to be T's.
template <typename T>
std::span<T> elements(TensorView view) {
  GW_CHECK(view.dtype() == DTypeOf<T>::kValue);
  return {reinterpret_cast<T*>(view.data()), static_cast<std::size_t>(view.elems())};
}
template <typename T>
std::span<const T> elements(ConstTensorView view) {
  GW_CHECK(view.dtype() == DTypeOf<T>::kValue);
  return {reinterpret_cast<const T*>(view.data()), static_cast<std::size_t>(view.elems())};
}

// Own elements as a view: a vector of them.
template <typename T>
TensorView view_of(std::span<T> data) {
  return {reinterpret_cast<std::byte*>(data.data()),
          Shape::vector(static_cast<std::int64_t>(data.size())), DTypeOf<T>::kValue};
}
template <typename T>
ConstTensorView const_view_of(std::span<const T> data) {
  return {reinterpret_cast<const std::byte*>(data.data()),
          Shape::vector(static_cast<std::int64_t>(data.size())), DTypeOf<T>::kValue};
}

}  // namespace gradwire
