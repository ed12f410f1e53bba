// What becomes of the micro-batches' gradients of one rank before anybody else sees them.
//
// Per micro-batch, in this order: stored in the precision asked for; unscaled; clipped; taken into
// its momentum; added to the sum in fp32. After the last one: times 1 / micro-batches.
//
// Several micro-batches may be under way, and end in any order, each parameter by itself: the sum
// is a left fold in the order of their numbers, so that its bits do not depend on the order in
// which they end. A gradient whose turn has not come waits in the memory that backward wrote it to.
//
// Under Demands::each_micro_batch each of them, times 1 / micro-batches, is handed over by itself,
// and what came of it is added up in fp32: here, unless the strategy steps.
//
// Without main gradients nothing but the tensors in work are in fp32: sums of micro-batches are
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
  // The table is borrowed. at_a_time: how many micro-batches beside the first one (without main
  // gradients: how many) may have gradients that are not in the sum; each takes fp32 memory of all
  // parameters, of which under Demands::gradients_pass and without main gradients the tensors alone
  // count that are in work or wait. 1 is enough where micro-batches run one after another.
  static Result<GradientFold> create(const ParameterTable& table, const TrainingOptions& options,
                                     const Demands& demands, int at_a_time = 1);
  // Whether gradients() stay in fp32 until the step is made. Else the caller that is given one
  // says by put_away() that it is final, and stored() is what the step reads.
  bool keeps_sums() const { return keeps_sums_; }
  // Micro-batches are handed over one by one.
  bool hands_each_over() const { return each_; }
  // The memory that is handed over: what is dropped of it is taken again where the next step, or
  // micro-batch, writes it. gradients(), but where micro-batches are added up afterwards.
  const PagedTensors& handed_over() const { return adds_ ? slots_.front().grads : grads_; }
  GradientFold() = default;

  // Micro-batch `micro` is under way: where its backward writes gradients. kInternal where more are
  // than create() was told.
  Result<std::span<float>> begin(int micro);
  // The result: this rank's gradient of the step, and later what the exchange makes of it.
  std::span<float> gradients();
  std::span<float> gradient(int index);
  // handed_over() as a tensor of the parameter's shape, final when stream() has run what it has.
  TensorView view(int index);
  Stream stream() const { return stream_; }

  // A step needs whole gradients before it can go on: nothing is handed on during backward. Else a
  // parameter is done as soon as all of its micro-batches are in.
  bool needs_whole() const { return needs_whole_; }
  // Before the first micro-batch: what its losses will be multiplied by.
  void begin_step(double loss_scale);
  // The gradient of parameter `index` from `micro` is complete. Returns whether the parameter is
  // done: gradient(index) is this rank's of the step.
  Result<bool> ready(int index, int micro);
  // All of them are; loss_scale is what the loss was multiplied by.
  Status micro_batch_done(int micro, double loss_scale);
  // Where each micro-batch is handed over: what came of micro-batch `micro` joins the sum. The next
  // one begins after it.
  Status add_up(int micro);

  // Without main gradients, where the step needed whole ones: gradient `index` is in fp32 again.
  Status bring(int index);
  // Likewise, after the exchange: it is not.
  Status put_away(int index);
  const StoredGradients& stored() const { return stored_gradients_; }
  StoredGradients& stored() { return stored_gradients_; }
  // Of the whole gradient that is handed over, in the form that it is kept in. Waits for the device
  // where it is there.
  Result<bool> finite();
  // Likewise; where it is longer than `most`, times most / length from then on. `length` is
  // norm()'s result, or of a gradient that this is a part of.
  Result<double> norm();
  Status shorten(double length, double most);
  // With main gradients: the sum of squares of every tensor, in the table's order.
  Status sums_of_squares(std::span<double> by_tensor);

  // "worker<i>.<parameter>.momentum", of micro-batch i; empty without momentum at the worker.
  std::vector<NamedTensor> state();

 private:
  struct Range {
    std::size_t first;
    std::size_t count;
  };
  // Memory of a micro-batch that is under way.
  struct Slot {
    PagedTensors grads;
    int micro = -1;  // whose it is; -1: nobody's
    int held = 0;    // tensors that are not in the sum yet
  };
  Range range(int index) const;
  Slot* slot_of(int micro);
  const PagedTensors& memory_of(int micro);
  std::span<float> part_of(int micro, Range range);
  std::vector<bool>::reference is_in(int index, int micro);
  Status keep_stored(std::span<float> values, Range range);
  Status combine(int micro, Range range);
  Status join(int index, int micro);
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
  bool keeps_stored_ = true;          // at its place; else a tensor at a time
  bool each_ = false;                 // micro-batches are handed over one by one
  bool adds_ = false;                 // and added up here
  bool drops_micro_ = false;          // slots' tensors as they join the sum
  PagedTensors grads_;                // the sum; the first micro-batch's go there at once
  std::vector<Slot> slots_;           // of the other micro-batches; without main gradients of all
  std::vector<int> joined_;           // by parameter: micro-batches that are in the sum
  std::vector<bool> in_;              // by parameter and micro-batch: complete
  std::vector<bool> done_;            // by micro-batch: micro_batch_done(), where that joins it
  int joined_whole_ = 0;              // likewise: micro-batches that are in the sum
  Buffer stored_;                     // one micro-batch's in 16 bits, or one tensor's
  StoredGradients stored_gradients_;  // without main gradients
  std::vector<Buffer> momentum_;      // u, one per micro-batch
};

}  // namespace gradwire
