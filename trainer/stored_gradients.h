// A step's gradient in 16 bits, for training that keeps nothing of it in fp32 (no main gradients).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/precision.h"
#include "trainer/read_back.h"
#include "trainer/stored_kernels.h"

namespace gradwire {

// Elements lie as the parameters do, at their offsets. What is stored is the gradient times the
// step's loss scale, which keeps small values from fp16's smallest ones. From one thread at a time,
// but that one may read elements that another no longer writes. Where the arena is of a device,
// calls enqueue their work on its stream, values are there, and finite() and norm() wait.
class StoredGradients {
 public:
  // precision: kBF16 or kF16.
  static Result<StoredGradients> create(const MemoryArena& arena, Precision precision,
                                        std::size_t elems);
  StoredGradients() = default;

  // The next step's scale; nothing is shortened any more.
  void begin_step(double loss_scale);

  // Elements from `first` on become values that bear the scale already, rounded to nearest even;
  // too large ones become infinity.
  Status keep_scaled(std::span<const float> values, std::size_t first);
  // Likewise, then they are added to what is stored there.
  Status add_scaled(std::span<const float> values, std::size_t first);
  // Elements become `values` times the scale. A number that 16 bits cannot hold becomes the largest
  // that they can, since nobody looks for overflows after this; what is no number stays none.
  Status keep(std::span<const float> values, std::size_t first);
  // Without the scale, and shortened.
  Status read(std::size_t first, std::span<float> values) const;

  // No infinity and no NaN among them.
  Result<bool> finite() const;
  // Of all elements, without the scale; the sum of squares is in double.
  Result<double> norm() const;
  // What read() gives from now on is at most `most` long, where all are `length` long.
  void shorten(double length, double most);

 private:
  std::span<std::uint16_t> stored() const;
  double sum_of_squares() const;

  Precision precision_ = Precision::kBF16;
  double scale_ = 1;
  double length_ = 0;
  double most_ = 0;
  Stream stream_;
  Buffer buffer_;
  std::unique_ptr<StoredKernels> there_;  // null on the host
  ReadBack numbers_;                      // likewise empty
};

}  // namespace gradwire
