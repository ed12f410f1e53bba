// Reductions element by element, in the order that the schedules promise. Slow, and independent of
// the library but for the conversions of base/small_floats.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "base/small_floats.h"
#include "gradwire/schedule.h"
#include "gradwire/tensor.h"

namespace gradwire::reference {

// One element type: how it is stored and in what it is added.
template <DType kType>
struct Element;
template <typename T>
struct PlainElement {
  using Stored = T;
  using Computed = T;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};
template <>
struct Element<DType::kF64> : PlainElement<double> {};
template <>
struct Element<DType::kF32> : PlainElement<float> {};
template <>
struct Element<DType::kI64> : PlainElement<std::int64_t> {};
template <>
struct Element<DType::kI32> : PlainElement<std::int32_t> {};
template <>
struct Element<DType::kI8> : PlainElement<std::int8_t> {};
template <>
struct Element<DType::kU8> : PlainElement<std::uint8_t> {};
template <>
struct Element<DType::kF16> {
  using Stored = std::uint16_t;
  using Computed = float;
  static float widen(Stored value) { return float_from_fp16(value); }
  static Stored narrow(float value) { return fp16_from_float(value); }
};
template <>
struct Element<DType::kBF16> {
  using Stored = std::uint16_t;
  using Computed = float;
  static float widen(Stored value) { return float_from_bf16(value); }
  static Stored narrow(float value) { return bf16_from_float(value); }
};

template <DType kType>
constexpr bool is_floating() {
  return kType == DType::kF64 || kType == DType::kF32 || kType == DType::kF16 ||
         kType == DType::kBF16;
}

// Rank's element i: awkward fractions for floating types, small numbers for integers.
template <DType kType>
typename Element<kType>::Stored input(int rank, std::int64_t i) {
  using E = Element<kType>;
  const std::uint64_t draw =
      mix64(static_cast<std::uint64_t>(i) * 1000 + static_cast<std::uint64_t>(rank));
  const int value = static_cast<int>(draw % 21);
  if constexpr (is_floating<kType>()) {
    return E::narrow(static_cast<typename E::Computed>(value - 10) / 3);
  } else {
    return static_cast<typename E::Stored>(kType == DType::kU8 ? value : value - 10);
  }
}

template <DType kType>
std::vector<std::byte> inputs(int rank, std::int64_t first, std::int64_t count) {
  using Stored = typename Element<kType>::Stored;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * sizeof(Stored));
  for (std::int64_t i = 0; i < count; ++i) {
    const Stored value = input<kType>(rank, first + i);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(Stored), &value,
                sizeof(Stored));
  }
  return bytes;
}

// In the type that additions are made in: not rounded to kType.
template <DType kType>
typename Element<kType>::Computed combine(ReduceOp op, typename Element<kType>::Computed x,
                                          typename Element<kType>::Stored b) {
  using Computed = typename Element<kType>::Computed;
  const Computed y = Element<kType>::widen(b);
  if (op == ReduceOp::kMax) return x < y ? y : x;
  if (op == ReduceOp::kMin) return y < x ? y : x;
  if (op == ReduceOp::kProduct) return static_cast<Computed>(x * y);
  return static_cast<Computed>(x + y);
}

// Element i of all ranks, combined from rank `first` on, around the circle. A mean's factor belongs
// to the last step. once: rounded to kType only then, else after every step.
template <DType kType>
typename Element<kType>::Stored fold(ReduceOp op, int size, int first, std::int64_t i, bool once) {
  using E = Element<kType>;
  using Computed = typename E::Computed;
  Computed sum = E::widen(input<kType>(first, i));
  for (int k = 1; k < size; ++k) {
    if (!once) sum = E::widen(E::narrow(sum));
    sum = combine<kType>(op, sum, input<kType>((first + k) % size, i));
  }
  if constexpr (is_floating<kType>()) {
    if (op == ReduceOp::kMean && size > 1) sum *= static_cast<Computed>(1.0 / size);
  }
  return E::narrow(sum);
}

// The canonical order starts from rank 0 and is rounded once; a ring's chunk c starts from rank
// c + 1, where its walk begins, and is rounded at every rank.
template <DType kType>
std::vector<std::byte> all_reduce(ReduceOp op, int size, std::int64_t elems, bool canonical) {
  using Stored = typename Element<kType>::Stored;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elems) * sizeof(Stored));
  for (int c = 0; c < size; ++c) {
    const Range chunk = piece(elems, size, c);
    for (std::int64_t i = chunk.begin; i < chunk.end; ++i) {
      const Stored value = fold<kType>(op, size, canonical ? 0 : (c + 1) % size, i, canonical);
      std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(Stored), &value,
                  sizeof(Stored));
    }
  }
  return bytes;
}

template <DType kType>
std::vector<std::byte> reduce_scatter(ReduceOp op, int size, int rank, std::int64_t elems,
                                      bool canonical) {
  using Stored = typename Element<kType>::Stored;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elems) * sizeof(Stored));
  for (std::int64_t i = 0; i < elems; ++i) {
    const Stored value =
        fold<kType>(op, size, canonical ? 0 : (rank + 1) % size, rank * elems + i, canonical);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(Stored), &value,
                sizeof(Stored));
  }
  return bytes;
}

}  // namespace gradwire::reference
