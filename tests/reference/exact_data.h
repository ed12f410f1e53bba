// Data whose reductions come out the same in every order and every association, so that one answer
// serves all algorithms, bit for bit: whole numbers that stay small enough for bf16 over 17 ranks,
// products of small powers of two, integers that wrap around. Independent of the library but for
// the conversions of base/small_floats.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "base/small_floats.h"
#include "gradwire/tensor.h"

namespace gradwire::reference {

// Element i equals element i + kPeriod: a prime, so that pieces and rows that went astray show.
constexpr std::int64_t kPeriod = 1021;

// Of rank's elements, for kPreMulSum.
inline double exact_factor(int rank) { return rank % 2 == 0 ? 0.5 : -1.0; }

// Rank's element i. Even ones for sums, so that half of them is whole.
inline double exact_number(DType dtype, ReduceOp op, int rank, std::int64_t i) {
  const std::uint64_t draw =
      mix64(static_cast<std::uint64_t>(i % kPeriod) * 1000 + static_cast<std::uint64_t>(rank));
  const bool natural = dtype == DType::kU8;
  if (op == ReduceOp::kProduct) {
    constexpr double kFactors[] = {2, 0.5, -1, 1};
    const std::uint64_t which = draw % 16;
    const double number = which < 3 ? kFactors[which] : 1;
    return is_floating(dtype) ? number
           : natural          ? 1 + static_cast<double>(which % 3)
                              : static_cast<double>(which % 5) - 2;
  }
  if (op == ReduceOp::kMax || op == ReduceOp::kMin) {
    return static_cast<double>(draw % 101) - (natural ? 0 : 50);
  }
  return 2 * (static_cast<double>(draw % 7) - (natural ? 0 : 3));
}

// One element as `dtype` stores it.
inline void store(DType dtype, double value, std::byte* at) {
  const auto put = [at](auto stored) { std::memcpy(at, &stored, sizeof stored); };
  const auto whole = [value] { return static_cast<std::int64_t>(value); };
  switch (dtype) {
    case DType::kF64: return put(value);
    case DType::kF32: return put(static_cast<float>(value));
    case DType::kF16: return put(fp16_from_float(static_cast<float>(value)));
    case DType::kBF16: return put(bf16_from_float(static_cast<float>(value)));
    case DType::kI64: return put(whole());
    case DType::kI32: return put(static_cast<std::int32_t>(whole()));
    case DType::kI8: return put(static_cast<std::int8_t>(whole()));
    case DType::kU8: return put(static_cast<std::uint8_t>(whole()));
  }
}

// `count` elements from `first` on, given those of one period.
inline std::vector<std::byte> unrolled(const std::vector<std::byte>& period, std::size_t width,
                                       std::int64_t first, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * width);
  for (std::size_t done = 0; done < bytes.size();) {
    const auto at =
        static_cast<std::size_t>((first + static_cast<std::int64_t>(done / width)) % kPeriod) *
        width;
    const std::size_t length = std::min(bytes.size() - done, period.size() - at);
    std::memcpy(bytes.data() + done, period.data() + at, length);
    done += length;
  }
  return bytes;
}

inline std::vector<std::byte> exact_inputs(DType dtype, ReduceOp op, int rank, std::int64_t first,
                                           std::int64_t count) {
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> period(static_cast<std::size_t>(kPeriod) * width);
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    store(dtype, exact_number(dtype, op, rank, i),
          period.data() + static_cast<std::size_t>(i) * width);
  }
  return unrolled(period, width, first, count);
}

// The reduction of ranks 0 .. ranks - 1's element i, of a group of `size`. Products of integers are
// below 2^53 before they wrap around: 3^17.
inline double exact_reduction(DType dtype, ReduceOp op, int ranks, int size, std::int64_t i) {
  double result = exact_number(dtype, op, 0, i);
  if (op == ReduceOp::kPreMulSum) result *= exact_factor(0);
  for (int r = 1; r < ranks; ++r) {
    const double number = exact_number(dtype, op, r, i);
    switch (op) {
      case ReduceOp::kProduct: result *= number; break;
      case ReduceOp::kMax: result = std::max(result, number); break;
      case ReduceOp::kMin: result = std::min(result, number); break;
      case ReduceOp::kPreMulSum: result += exact_factor(r) * number; break;
      default: result += number; break;
    }
  }
  if (op != ReduceOp::kMean) return result;
  // One multiplication in the type of the arithmetic.
  if (dtype == DType::kF64) return result * (1.0 / size);
  return static_cast<float>(result) * static_cast<float>(1.0 / size);
}

inline std::vector<std::byte> exact_answers(DType dtype, ReduceOp op, int ranks, int size,
                                            std::int64_t first, std::int64_t count) {
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> period(static_cast<std::size_t>(kPeriod) * width);
  for (std::int64_t i = 0; i < kPeriod; ++i) {
    store(dtype, exact_reduction(dtype, op, ranks, size, i),
          period.data() + static_cast<std::size_t>(i) * width);
  }
  return unrolled(period, width, first, count);
}

}  // namespace gradwire::reference
