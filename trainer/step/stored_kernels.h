// What the trainer asks of a device that keeps numbers in 16 bits.
//
// Calls enqueue work on one stream; spans are of the device's memory. Results have the host's bits
// but for lengths, as StepKernels says.
#pragma once

#include <cstdint>
#include <span>

#include "gradwire/status.h"
#include "trainer/precision.h"

namespace gradwire {

// Made by make_stored_kernels(), of one precision. Used by one thread at a time.
class StoredKernels {
 public:
  using In = std::span<const float>;
  using Out = std::span<float>;
  using NarrowIn = std::span<const std::uint16_t>;
  using NarrowOut = std::span<std::uint16_t>;
  virtual ~StoredKernels() = default;

  // stored += what is stored of values.
  virtual Status add(In values, NarrowOut stored) = 0;
  // sums += what is stored.
  virtual Status add_to(NarrowIn stored, Out sums) = 0;
  // values = stored times back times factor, rounded in between.
  virtual Status read(NarrowIn stored, float back, float factor, Out values) = 0;
  // values = what is stored of them.
  virtual Status round(Out values) = 0;
  // sum[0] = the sum of squares.
  virtual Status sum_of_squares(NarrowIn stored, std::span<double> sum) = 0;
  // bad[0] = 1 where one of them is not finite, else 0.
  virtual Status find_not_finite(NarrowIn stored, std::span<std::uint32_t> bad) = 0;
};

// sums += what is stored: by kernels of a device, or, where they are null, here.
inline Status add(Precision precision, std::span<const std::uint16_t> stored, std::span<float> sums,
                  StoredKernels* there) {
  if (there != nullptr) return there->add_to(stored, sums);
  add(precision, stored, sums);
  return {};
}

}  // namespace gradwire
