// What becomes of the micro-batches' gradients of one rank before anybody else sees them.
//
// Per micro-batch, in this order: stored in the precision asked for; unscaled; clipped; taken into
// its momentum; added to the sum in fp32. After the last one: times 1 / micro-batches.
//
// Without main gradients nothing but the tensor in work is in fp32: sums of micro-batches are
// stored in 16 bits, and so is what the exchange gives back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/memory/paged_tensors.h"
#include "trainer/parameters.h"
#include "trainer/read_back.h"
#include "trainer/step_kernels.h"
#include "trainer/stored_gradients.h"
#include "trainer/strategy/demands.h"
#include "trainer/training_options.h"

namespace gradwire {

class GradientFold {
 public:
  // The table is borrowed.
  static Result<GradientFold> create(const ParameterTable& table, const TrainingOptions& options,
                                     const Demands& demands);
  // Whether gradients() stay in fp32 until the step is made. Else whoever is given one says by
  // put_away() that it is final, and stored() is what the step reads.
  bool keeps_sums() const { return keeps_sums_; }
  // The memory of gradients(): what is dropped of it is taken again where the next step writes it.
  const PagedTensors& paged() const { return grads_; }
  GradientFold() = default;

  // Where backward writes the gradient of micro-batch `micro`.
  std::span<float> fresh(int micro);
  // The result: this rank's gradient of the step, and later what the exchange makes of it.
  std::span<float> gradients();
  std::span<float> gradient(int index);
  // The same as a tensor of the parameter's shape, final when stream() has run what it has.
  TensorView view(int index);
  Stream stream() const { return stream_; }

  // A step needs whole gradients before it can go on: nothing is handed on during
  // backward. Else a parameter is done as soon as the last micro-batch's ready() returns.
  bool needs_whole() const { return needs_whole_; }
  // Before the first micro-batch: what its losses will be multiplied by.
  void begin_step(double loss_scale) { stored_gradients_.begin_step(loss_scale); }
  // The gradient of parameter `index` from `micro` is complete.
  Status ready(int index, int micro);
  // All of them are; loss_scale is what the loss was multiplied by.
  Status micro_batch_done(int micro, double loss_scale);

  // Without main gradients, where the step needed whole ones: gradient `index` is in fp32 again.
  Status bring(int index);
  // Likewise, after the exchange: it is not.
  Status put_away(int index);
  const StoredGradients& stored() const { return stored_gradients_; }
  StoredGradients& stored() { return stored_gradients_; }
  // Of the whole gradient, in the form that it is kept in. Waits for the device where it is there.
  Result<bool> finite();
  // Likewise; where it is longer than `most`, times most / length from then on. `length` is
  // norm()'s result, or of a gradient that this is a part of.
  Result<double> norm();
  Status shorten(double length, double most);

  // "worker<i>.<parameter>.momentum", of micro-batch i; empty without momentum at the worker.
  std::vector<NamedTensor> state();

 private:
  struct Range {
    std::size_t first;
    std::size_t count;
  };
  Range range(int index) const;
  std::span<float> fresh(int micro, Range range);
  Status keep_stored(std::span<float> values, Range range);
  Status combine(int micro, Range range);
  Status take_momentum(std::span<float> u, std::span<float> own);
  Status clip_worker(std::span<float> own);
  TensorView view(std::span<float> values) const;
  Status combine_stored(int index, int micro);

  const ParameterTable* table_ = nullptr;
  Stream stream_;
  std::unique_ptr<StepKernels> there_;  // null on the host
  ReadBack numbers_;                    // likewise empty
  double length_ = 0;                   // whose square numbers_ have
  int accumulate_ = 1;
  double momentum_at_worker_ = 0;
  double clip_worker_ = 0;
  Precision precision_ = Precision::kF32;
  bool needs_whole_ = false;
  bool keeps_sums_ = true;
  bool keeps_stored_ = true;  // at its place; else a tensor at a time
  bool drops_micro_ = false;  // micro_grads_, tensor by tensor as they join the sum
  PagedTensors grads_;
  PagedTensors micro_grads_;          // of micro-batches after the first
  Buffer stored_;                     // one micro-batch's in 16 bits, or one tensor's
  StoredGradients stored_gradients_;  // without main gradients
  std::vector<Buffer> momentum_;      // u, one per micro-batch
};

}  // namespace gradwire
