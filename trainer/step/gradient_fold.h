// What becomes of the micro-batches' gradients of one rank before anybody else sees them.
//
// Layers compute gradients in fp32; in a precision of 16 bits each is rounded to that at once. Then
// they are added up, and their mean is handed over:
//
//   form      handed over                                          memory, bytes an element
//   kWide     fp32: the sum itself                                 4
//   kSums     16 bits: the fp32 sum is rounded when it is whole,   4
//             and lies in the first half of its own memory
//   kStored   16 bits: what was rounded, one micro-batch's or      2
//             (no main gradients) the sum of several
//
// beside the tensors in work; on a CUDA device kSums has its 16 bits apart, 2 more. 16 bits bear
// the loss scale, from which they are freed where they are read. kWide unscales, clips each
// worker's, and takes it into that worker's momentum, in fp32; these need a whole gradient of a
// micro-batch.
//
// Several micro-batches may be under way, and end in any order, each parameter by itself: the sum
// is a left fold in the order of their numbers, so that its bits do not depend on the order in
// which they end. A gradient whose turn has not come waits in the memory that backward wrote it to.
//
// A parameter that tied layers use has a gradient for each use. These are added up apart from its
// own, in the same form, and join it once, when both are whole, which is so on stages of a pipeline
// too, where they lie on several ranks. Where something is done with each micro-batch's gradient
// they join it there.
//
// Under Demands::each_micro_batch each of them, times 1 / micro-batches, is handed over by itself,
// and what came of it is added up in fp32: here, unless the strategy steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/layer_peers.h"
#include "trainer/memory/paged_tensors.h"
#include "trainer/memory/trainer_memory.h"
#include "trainer/parameters.h"
#include "trainer/step/gradient_form.h"
#include "trainer/step/read_back.h"
#include "trainer/step/step_gradients.h"
#include "trainer/step/step_kernels.h"
#include "trainer/step/stored_kernels.h"
#include "trainer/strategy/demands.h"
#include "trainer/training_options.h"

namespace gradwire {

class GradientFold {
 public:
  using Form = GradientForm;
  static Form form_of(const TrainingOptions& options, const Demands& demands);
  // A step needs whole gradients before it can go on: nothing is handed on during backward.
  static bool needs_whole(const TrainingOptions& options, const Demands& demands);

  // at_a_time: how many micro-batches beside the first one (in form kStored:
  // how many) may have gradients that are not in the sum; each takes fp32 memory of the tensors
  // that are in work or wait, or of all where that is needed. 1 is enough where micro-batches run
  // one after another.
  static Result<GradientFold> create(GradientTable table, const TrainingOptions& options,
                                     const Demands& demands, int at_a_time = 1);
  GradientFold() = default;

  // Micro-batches are handed over one by one.
  bool hands_each_over() const { return each_; }
  // What is handed over bears the loss scale.
  bool hands_scaled() const { return form_ != Form::kWide; }
  // What is handed over, by parameter: the same memory at every step.
  HandedGradients handed_over() const;
  // What the trainer's own step is made from when the exchange has had its last word.
  std::vector<TensorView> outcome() const;

  // All of outcome() as one, where it is in fp32.
  std::span<float> gradients() const;

  // Micro-batch `micro` is under way: where its backward writes gradients. kInternal where more are
  // than create() was told.
  Result<std::span<float>> begin(int micro);
  // The parameter that gradient `index` of the table belongs to.
  int parameter_of(int index) const { return table_.parameter_of(index); }
  // Before parameter `index` is handed over, which is done but for uses on other ranks: its sum as
  // it lies, for the caller to add theirs to.
  TensorView sum(int index) const;
  // Something is done with each micro-batch's gradient that is to be done with the whole of it:
  // other ranks' parts join it there, in micro_batch(), and sum() has them. Else they join sum().
  bool joins_by_micro_batch() const { return uses_by_micro_ || precision_ != Precision::kF32; }
  // Gradient `index` of the table as the backward of `micro` wrote it, in fp32, before ready().
  TensorView micro_batch(int index, int micro);
  // Gradient `index` of what is handed over, final when stream() has run what it has. Where whole
  // gradients are needed they are: after the last micro-batch, once a step.
  Result<TensorView> hand_over(int index);
  Stream stream() const { return stream_; }

  // Else a parameter is done as soon as all of its micro-batches are in.
  bool needs_whole() const { return needs_whole_; }
  // Before the first micro-batch.
  void begin_step();
  // Gradient `index` of the table from `micro` is complete. Returns whether its parameter is done:
  // hand_over(parameter_of(index)) may be called.
  Result<bool> ready(int index, int micro);
  // All of them are; loss_scale is what the loss was multiplied by.
  Status micro_batch_done(int micro, double loss_scale);
  // Where each micro-batch is handed over: what came of micro-batch `micro` joins the sum. The next
  // one begins after it.
  Status add_up(int micro);
  // Where whole gradients are needed, before they are handed over: none of this rank's is infinite
  // or no number. Waits for the device where they are there.
  Result<bool> finite() const { return whole_.finite(); }

  // "worker<i>.<parameter>.momentum", of micro-batch i; empty without momentum at the worker.
  std::vector<NamedTensor> state();

 private:
  struct Range {
    std::size_t first;
    std::size_t count;
  };
  // fp32 memory of a micro-batch that is under way.
  struct Slot {
    PagedTensors grads;
    int micro = -1;  // whose it is; -1: nobody's
    int held = 0;    // tensors that are not in the sum yet
  };
  Status take_memory(int at_a_time);
  void take_parameters(const PagedTensors& memory) const;
  void take_uses() const;
  int gradients_held() const { return static_cast<int>(table_.tensors.size()); }
  bool is_use(int index) const { return index >= table_.parameters(); }
  bool is_whole(int parameter) const;
  Status add_use(int use);
  Status add_use(int use, std::span<float> micro);
  template <typename Each>
  Status for_each_use(int parameter, const Each& each) const {
    for (int use = table_.parameters(); use < gradients_held(); ++use) {
      if (parameter_of(use) == parameter) GW_TRY(each(use));
    }
    return {};
  }
  Status take_slots(int count);
  Status take_workers(const TrainingOptions& options);
  Range range(int index) const;
  Slot* slot_of(int micro);
  const PagedTensors& memory_of(int micro);
  TensorView view(std::span<float> values) const;
  std::span<float> part_of(int micro, Range range);
  std::vector<bool>::reference is_in(int index, int micro);
  Status round(std::span<float> values) const;
  Status mean_of(std::span<float> sum) const;
  Status combine(int micro, Range range);
  Status combine_stored(int index, int micro);
  Status add_stored(std::span<float> own, std::span<std::uint16_t> sum) const;
  Status join(int index, int micro);
  Status finish_micro(int micro, double loss_scale);
  Status take_momentum(std::span<float> u, std::span<float> own);
  Status clip_worker(std::span<float> own);
  void count_among_peers(const ModelShare& share, LayerPeers& peers);
  Result<double> worker_norm(std::span<const float> own);

  GradientTable table_;
  MemoryArena arena_;
  Stream stream_;
  std::unique_ptr<StepKernels> kernels_;  // null on the host
  std::unique_ptr<StoredKernels> there_;  // null on the host, and in fp32
  ReadBack numbers_;                      // on a device, with clip_worker_
  int accumulate_ = 1;
  double momentum_at_worker_ = 0;
  double clip_worker_ = 0;
  // Where ranks share the model's tensors, with clip_worker_: these, the parameters that count
  // here, and a sum of squares for each.
  LayerPeers* peers_ = nullptr;
  std::vector<bool> counts_;
  std::vector<double> squares_;
  Precision precision_ = Precision::kF32;
  Form form_ = Form::kWide;
  bool needs_whole_ = false;
  bool each_ = false;              // micro-batches are handed over one by one
  bool adds_ = false;              // and added up here
  bool passes_ = false;            // what is handed over comes and goes, tensor by tensor
  bool drops_micro_ = false;       // slots' tensors as they join the sum
  bool uses_by_micro_ = false;     // uses join their parameter in each micro-batch, not in the sum
  PagedTensors grads_;             // fp32: the sum; the first micro-batch's go there at once
  PagedTensors stored_;            // 16 bits
  std::vector<Slot> slots_;        // of the other micro-batches; in form kStored of all
  std::vector<int> joined_;        // by gradient: micro-batches that are in the sum
  std::vector<bool> in_;           // by gradient and micro-batch: complete
  std::vector<bool> done_;         // by micro-batch: micro_batch_done(), where that joins it
  int joined_whole_ = 0;           // likewise: micro-batches that are in the sum
  std::vector<TensorView> views_;  // of what is handed over
  StepGradients whole_;            // where whole ones are needed: this rank's
  std::vector<Buffer> momentum_;   // u, one per micro-batch
};

}  // namespace gradwire
