// What turns gradients into new parameters: one interface over flat memory, so that a part of the
// parameters (a shard) is stepped as the whole is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/parameters.h"

namespace gradwire {

// The part of one tensor that an optimizer's spans hold: elements [begin, begin + elems) of the
// tensor, at [offset, offset + elems) of the spans.
struct TensorSlice {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t elems = 0;  // 0: this rank holds nothing of it
  std::int64_t offset = 0;
  bool decays = true;  // weight decay takes it
};
using SliceTable = std::vector<TensorSlice>;

// Every tensor whole, where the table says. Weight decay takes what has two dimensions or more:
// neither biases nor the gains of norms.
SliceTable whole_slices(const ParameterTable& table);
// The same table cut to the elements [begin, end) of its flat buffer; all tensors stay listed, so
// that every rank has equally many.
SliceTable slices_within(const SliceTable& whole, std::int64_t begin, std::int64_t end);
// Elements that the spans have.
std::int64_t slice_elems(const SliceTable& slices);

struct OptimizerOptions {
  std::string name = "sgd";  // sgd, nesterov, adamw, lamb
  double momentum = 0.9;     // sgd, nesterov: 0 <= momentum < 1
  double beta1 = 0.9;        // adamw, lamb: of the mean
  double beta2 = 0.999;      // of the mean square
  double epsilon = 1e-8;     // > 0
  double weight_decay = 0;   // sgd, nesterov: added to the gradient; adamw, lamb: decoupled from it
};

// In place: sums over all ranks that hold parts of the same tensors, equal on all of them.
using SumOverShards = std::function<Status(std::span<double> sums)>;

// Not thread-safe. Steps allocate nothing.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // parameters change by one step against `gradients`. Both have slice_elems() elements and do not
  // overlap. lr is finite and >= 0. Elementwise methods (all but lamb) give the same bits however
  // the parameters are cut into slices and spans.
  virtual Status step(std::span<float> parameters, std::span<const float> gradients, double lr);

  // The same step in parts, each the elements from `first` on of the spans of step(), wherever they
  // lie: begin_step() once, then step_part() for parts that together are everything. A method that
  // looks at whole tensors (two_passes()) changes parameters in a second pass alone: end_pass(),
  // then end_part() for parts that together are everything; on a device each part of its first pass
  // is all that the spans have of a tensor.
  virtual Status begin_step(double lr) = 0;
  virtual Status step_part(std::span<float> parameters, std::span<const float> gradients,
                           std::int64_t first) = 0;
  virtual bool two_passes() const { return false; }
  virtual Status end_pass() { return {}; }
  virtual Status end_part(std::span<float> /*parameters*/, std::int64_t /*first*/) { return {}; }

  // Collective where ranks make steps of their own between exchanges: after the last step, so that
  // all hold the same parameters.
  virtual Status settle(std::span<float> /*parameters*/) { return {}; }

  // What must survive a checkpoint beside steps(): f32 vectors, one per tensor and kind, named
  // "<tensor>.<kind>", of the slice's length, in the table's order kind by kind (slices without
  // elements too). The memory is the optimizer's, for its life.
  virtual std::vector<NamedTensor> state() = 0;
  // Steps done. Setting it belongs to restoring state().
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 protected:
  std::int64_t steps_ = 0;
};

// kInvalidArgument names the option, the value seen and the value wanted. Memory for the state is
// zeroed and the arena's; nothing is kept for a momentum of 0. `sum` is for lamb on shards and not
// called by the others; null where every tensor is whole.
Result<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerOptions& options,
                                                  SliceTable slices, SumOverShards sum = nullptr,
                                                  const MemoryArena& arena = {});

}  // namespace gradwire
