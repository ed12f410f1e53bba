// mx's loops over whole blocks of fp32, for each instruction set: the bits that mx_cpu.cc's blocks
// give.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/tiny_floats.h"
#include "compress/mx/mx_kernels.h"

namespace gradwire::cpu {

// Calls call.operator()<Float>() with the type's TinyFloat.
template <typename Call>
auto with_mx_float(MxType type, const Call& call) {
  switch (type) {
    case MxType::kE4M3: return call.template operator()<Float8E4M3>();
    case MxType::kE5M2: return call.template operator()<Float8E5M2>();
    case MxType::kE3M2: return call.template operator()<Float6E3M2>();
    case MxType::kE2M3: return call.template operator()<Float6E2M3>();
    default: return call.template operator()<Float4E2M1>();
  }
}

// floor(log2) of the type's largest number.
template <typename Float>
constexpr int exponent_of_largest() {
  return static_cast<int>(Float::kLargestBits >> 23) - 127;
}

// 2^exponent for |exponent| <= 127.
template <typename T>
T power_of_two(int exponent) {
  return static_cast<T>(std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52));
}

// A scale for each block of kMxBlock elements of x, and one byte for each code. Where hardware has
// no vectors: false, and nothing is done.
bool mx_codes(MxType type, std::span<const float> x, std::uint8_t* scales, std::uint8_t* codes);

// dst = what the codes stand for, or dst += it. False as above.
bool mx_values(MxType type, const std::uint8_t* scales, const std::uint8_t* codes, bool add,
               std::span<float> dst);

}  // namespace gradwire::cpu
