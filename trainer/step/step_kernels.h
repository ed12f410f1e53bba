// What the trainer's step asks of a device: gradients' way from backward to new parameters.
//
// Calls enqueue work on one stream; spans are of the device's memory. Results have the host's bits
// but for lengths, whose sums run in an order of their own: the same call on the same values gives
// the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "trainer/optimizers/adamw.h"

namespace gradwire {

// One step of sgd or nesterov (optimizers/sgd.h).
struct SgdStep {
  float rate = 0;
  float momentum = 0;
  float decay = 0;
  bool nesterov = false;
};

// Made by make_step_kernels(). Used by one thread at a time.
class StepKernels {
 public:
  using In = std::span<const float>;
  using Out = std::span<float>;
  virtual ~StepKernels() = default;

  // u = momentum u + g; g = u.
  virtual Status take_momentum(float momentum, Out u, Out g) = 0;
  // `m` is empty without momentum.
  virtual Status sgd(const SgdStep& step, Out x, Out m, In g) = 0;
  virtual Status adamw(const AdamFactors& factors, float rate, float decay, Out x, Out m, Out v,
                       In g) = 0;
  // direction = lamb's for x, whose moments take g in.
  virtual Status lamb_direction(const AdamFactors& factors, float decay, In x, Out m, Out v, In g,
                                Out direction) = 0;
  // squares[0] and [1]: of lengths; x -= lr |x| / |direction| direction, as lamb says.
  virtual Status lamb_step(double lr, std::span<const double> squares, In direction, Out x) = 0;
  // sum[0] = the sum of squares.
  virtual Status sum_of_squares(In values, std::span<double> sum) = 0;
  // Values as long as the root of square[0] become `most` long where that is longer.
  virtual Status clip(std::span<const double> square, double most, Out values) = 0;
  // bad[0] = 1 where one of the values is not finite, else 0.
  virtual Status find_not_finite(In values, std::span<std::uint32_t> bad) = 0;
};

}  // namespace gradwire
