// What a step is made from: gradients where they lie when the exchange has had its last word, whole
// ones or a rank's parts of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/precision.h"
#include "trainer/step/read_back.h"
#include "trainer/step/step_kernels.h"
#include "trainer/step/stored_kernels.h"

namespace gradwire {

// read_to_host() will be asked, for at most so many elements at a time: where 16 bits come from a
// device, they come through memory of the arena. null: it will not.
struct WayToHost {
  const MemoryArena* arena = nullptr;
  std::int64_t elems = 0;
};

// In fp32 or in 16 bits, times the step's loss scale. From one thread at a time, but that one may
// read elements that another no longer writes. On a device calls enqueue their work on the arena's
// stream, values are there, and finite() and squares() wait.
class StepGradients {
 public:
  // Parts are of one type (f32, bf16 or f16) and of the arena's place, and are borrowed for this
  // object's life; some may have no elements. read() sees them one behind another.
  static Result<StepGradients> create(const MemoryArena& arena, std::vector<TensorView> parts,
                                      const WayToHost& to_host = {});
  StepGradients() = default;

  // What the next step's values bear; nothing is shortened any more.
  void begin_step(double scale);

  int parts() const { return static_cast<int>(parts_.size()); }
  TensorView part(int index) const { return parts_[static_cast<std::size_t>(index)]; }
  // Bytes of an element.
  std::size_t width() const;
  // Of f32: as they lie, times the scale.
  std::span<const float> values(int index) const;

  // Elements from `first` on, without the scale, and shortened.
  Status read(std::size_t first, std::span<float> values) const;
  // Likewise to the host's memory; waits.
  Status read_to_host(std::size_t first, std::span<float> values) const;
  // No infinity and no NaN among them.
  Result<bool> finite() const;
  // Of each part the sum of squares in double, without the scale.
  Result<std::vector<double>> squares() const;
  // From now on read() gives, and values() are, at most `most` long where all are `length` long.
  Status shorten(double length, double most);

 private:
  std::span<float> floats(std::size_t part) const;
  std::span<const std::uint16_t> halves(std::size_t part) const;
  // visit(part, first of its elements, elements before them, count) for elements [first, first +
  // count) of all.
  template <typename Visit>
  Status for_each_part(std::size_t first, std::size_t count, Visit visit) const {
    std::size_t begin = 0;  // of the part among all
    for (std::size_t part = 0, done = 0; part < parts_.size() && done < count; ++part) {
      const std::size_t end = begin + static_cast<std::size_t>(parts_[part].elems());
      if (first + done < end) {
        const std::size_t some = std::min(count - done, end - first - done);
        GW_TRY(visit(part, first + done - begin, done, some));
        done += some;
      }
      begin = end;
    }
    return {};
  }
  Status read_part(std::size_t part, std::size_t first, std::span<float> values) const;
  void finish_read(std::span<float> values) const;
  bool finite_here(std::size_t part) const;
  double squares_here(std::size_t part) const;

  Precision precision_ = Precision::kF32;
  std::vector<TensorView> parts_;
  double scale_ = 1;
  double length_ = 0;
  double most_ = 0;
  Stream stream_;
  std::unique_ptr<StepKernels> kernels_;  // of a device alone, of f32
  std::unique_ptr<StoredKernels> there_;  // of a device alone, of 16 bits
  ReadBack numbers_;                      // likewise: one for each part
  Buffer coming_;                         // likewise, of 16 bits: a piece on its way to the host
};

}  // namespace gradwire
