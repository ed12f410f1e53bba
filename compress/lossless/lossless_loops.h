// The inner loops of lossless over a whole block of fp32, for each instruction set: what
// lossless_encode.cc and lossless_decode.cc do element by element.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/lossless/lossless_kernels.h"

namespace gradwire::cpu {

// A block's elements in parts, a byte each.
struct LosslessBytes {
  using Row = std::array<std::uint8_t, kLosslessBlock>;
  Row exponents;
  Row distances;  // of exponents from the largest, `base`
  Row tops;       // sign above the highest bits of the mantissa
  Row high;       // the other bytes of the mantissa
  Row low;
  std::uint32_t any;  // all elements' bits or'ed together
  std::uint8_t base;
  std::array<std::size_t, 8> escapes;  // [w - 1]: distances of 2^w - 1 and more; 0 after a first 0
};
void lossless_split(const float* x, LosslessBytes& bytes);

// codes = distances, at most `escape`; the exponents whose code is `escape`, in order, to
// `exceptions`. Returns how many.
std::size_t lossless_codes(const LosslessBytes& bytes, std::uint8_t escape, std::uint8_t* codes,
                           std::uint8_t* exceptions);

// The parts of a block's elements; what is null is 0.
struct LosslessRows {
  const std::uint8_t* exponents;
  const std::uint8_t* tops;
  const std::uint8_t* high;
  const std::uint8_t* low;
};
// to = the elements, or to += them.
void lossless_merge(const LosslessRows& rows, bool add, float* to);

}  // namespace gradwire::cpu
