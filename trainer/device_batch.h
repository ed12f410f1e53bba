// The way of micro-batches to a device, and what the host hears of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/layers/loss.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/model.h"
#include "trainer/step/read_back.h"

namespace gradwire {

// Beside the activations: labels, losses, running statistics, and what layers compute by. All of it
// is allocated at birth. Used by one thread at a time.
//
// The host waits for the device in found(), set_buffers() and take_statistics(), nowhere else. Up
// to Sizes::at_once micro-batches, known by their numbers, may be enqueued before a found().
class DeviceBatch {
 public:
  struct Sizes {
    std::int64_t rows = 1;    // the most samples of a micro-batch
    std::int64_t labels = 1;  // of a sample
    std::size_t at_once = 1;  // micro-batches
    bool reads = true;        // samples are read here
    bool judges = true;       // losses are computed here
    // Of a model whose classes ranks divide, these ranks: judge() exchanges with them what
    // OutputLoss does. Borrowed.
    LayerPeers* peers = nullptr;
  };
  // On the arena's device. `model`: the layers that are here.
  static Result<std::unique_ptr<DeviceBatch>> create(const Model<float>& model, const Sizes& sizes,
                                                     const MemoryArena& arena);
  // What create() allocates there, all of it MemoryClass::kOther.
  static std::int64_t bytes_there(const Model<float>& model, const Sizes& sizes);

  LayerKernels<float>& kernels() { return *kernels_; }

  // Memory of the host for a micro-batch. What it held before was read when found() returned.
  std::span<float> samples(std::int64_t rows, std::size_t micro = 0) const;
  std::span<std::uint32_t> labels(std::int64_t rows, std::size_t micro = 0) const;
  // Enqueue their copies: the samples' to `x`, the labels' for the next judge().
  Status load_samples(std::span<float> x, std::size_t micro = 0) const;
  Status load_labels(std::int64_t rows, std::size_t micro = 0) const;

  // Enqueues the loss of outputs for the first `labels` labels and its derivative (none: empty). Of
  // divided classes Found::correct is of calls without a derivative alone, and an error of an
  // exchange is the peers' status().
  void judge(Loss loss, std::int64_t labels, std::span<const float> outputs,
             std::span<float> by_outputs, std::size_t micro = 0);
  struct Found {
    double loss = 0;     // mean over labels
    double correct = 0;  // labels
  };
  // By micro-batch, each of its last judge(); empty where nothing is judged. Waits for all that is
  // enqueued; the first error of any of it is this call's. Valid until the next call.
  Result<std::span<const Found>> found() const;

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
  explicit DeviceBatch(const Sizes& sizes) : sizes_(sizes) {}
  Status take_ends(const Model<float>& model, const MemoryArena& arena);
  void judge_part(const ClassPart<float>& part, std::span<float> by_outputs,
                  std::span<double> by_label, std::span<double> found);

  Sizes sizes_;
  std::int64_t input_ = 0;  // elements of a sample
  std::unique_ptr<LayerKernels<float>> kernels_;
  Buffer samples_here_;  // pinned, as the others that are here
  Buffer labels_here_;
  Buffer labels_there_;
  Buffer by_label_;
  std::optional<ClassShare> classes_;
  Buffer by_rank_;  // where ranks divide the classes: each label's sums, then what it is said to
                    // be, then its maximum
  Buffer buffers_;
  ReadBack found_;
  ReadBack statistics_;
};

}  // namespace gradwire
