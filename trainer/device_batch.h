// A micro-batch's way to a device, and what the host hears of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/layers/loss.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/read_back.h"

namespace gradwire {

// Beside the activations: labels, the loss, running statistics, and what layers compute by. All of
// it is allocated at birth. Used by one thread at a time.
class DeviceBatch {
 public:
  // For up to `rows` samples of `labels` labels each, on the arena's device.
  static Result<std::unique_ptr<DeviceBatch>> create(const Model<float>& model, std::int64_t rows,
                                                     std::int64_t labels, const MemoryArena& arena);
  // What create() allocates there, all of it MemoryClass::kOther.
  static std::int64_t bytes_there(const Model<float>& model, std::int64_t rows,
                                  std::int64_t labels);

  LayerKernels<float>& kernels() { return *kernels_; }

  // Memory of the host for the next micro-batch. What it held before was read when found()
  // returned.
  std::span<float> samples(std::int64_t rows) const;
  std::span<std::uint32_t> labels(std::int64_t rows) const;
  // Enqueues their copies, the samples' to `x`.
  Status load(std::int64_t rows, std::span<float> x) const;

  // Enqueues the loss of outputs for the first `labels` labels and its derivative (none: empty).
  void judge(Loss loss, std::int64_t labels, std::span<const float> outputs,
             std::span<float> by_outputs);
  struct Found {
    double loss = 0;     // mean over labels
    double correct = 0;  // labels
  };
  // Of the last judge(). Waits for all that is enqueued; the first error of any of it is this
  // call's.
  Result<Found> found() const;

  // Running statistics of the model, for passes that evaluate. Waits.
  Status set_buffers(std::span<const float> values) const;
  std::span<const float> buffers() const;
  // Sums that passes collect; empty for models without buffers.
  std::span<double> statistics() const;
  // Adds them to `sums` and clears them. Waits.
  Status take_statistics(std::span<double> sums) const;
  // Forgets them.
  void clear_statistics() const;

 private:
  DeviceBatch() = default;
  std::int64_t input_ = 0;   // elements of a sample
  std::int64_t labels_ = 0;  // of a sample
  std::unique_ptr<LayerKernels<float>> kernels_;
  Buffer samples_here_;  // pinned, as the others that are here
  Buffer labels_here_;
  Buffer labels_there_;
  Buffer by_label_;
  Buffer buffers_;
  ReadBack found_;
  ReadBack statistics_;
};

}  // namespace gradwire
