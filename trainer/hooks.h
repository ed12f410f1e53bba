// What the trainer asks of the outside. The trainer knows nothing of communication: compressed and
// uncompressed, single and distributed runs execute the same code and differ in the hook alone.
#pragma once

#include <span>

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

class LayerGate;
class Optimizer;

// Turns this rank's gradients into what the optimizer shall use. The defaults do nothing, which is
// right for a single process. All calls come from the thread that trains, and in the same order on
// every rank. An error ends the training with that error.
class GradientHook {
 public:
  virtual ~GradientHook() = default;

  // Once per step, before its first on_gradient(): what the optimizer will multiply its gradients
  // by.
  virtual Status before_step(double /*learning_rate*/) { return {}; }

  // With a loss scale, once per step and before everything else of it: whether this rank's
  // gradients are not finite. True on all ranks if any of them says so: the step is left out then,
  // without before_step() and all that follows, and whatever the hook keeps is as it was.
  virtual Result<bool> skip_step(bool overflow) { return overflow; }

  // The gradient of parameter `index` (order of registration) is final for this step. Called once
  // per parameter and step, during backward or after it, from the last parameter down to the first.
  // `grad` is the same memory at every step, on a device final when `stream` has run what it has;
  // it is lent until before_optimizer_step() returns, or until arrived() has said yes of it, and
  // the hook may change it. From then on parameters may change.
  virtual Status on_gradient(int /*index*/, TensorView /*grad*/, const Stream& /*stream*/) {
    return {};
  }

  // Once per step, after all on_gradient() calls: on return every gradient holds what the optimizer
  // shall use (the mean over all ranks).
  virtual Status before_optimizer_step(const Stream& /*stream*/) { return {}; }

  // Whether gradient `index`, given in this step, holds already what the optimizer shall use, so
  // that its memory may go, or its parameters be updated, before before_optimizer_step(). With
  // `wait`, waits for that unless it takes gradients that were not given yet (false then).
  // kUnsupported from hooks that cannot say so: there is no training without fp32 gradients under
  // them.
  virtual Result<bool> arrived(int /*index*/, bool /*wait*/) { return false; }

  // Where gradients are to be clipped, after before_optimizer_step(): those that the optimizer will
  // use become `most` long where they are longer, all tensors together. Returns their length
  // before. Of gradients on the host: on a device the trainer does it.
  virtual Result<double> clip_gradients(std::span<float> gradients, double most);

  // What makes the step from the gradients, in place of the trainer's own optimizer (which is the
  // one used if null). Lent for the hook's life, and the same at every call. For methods that
  // exchange something else than gradients.
  virtual Optimizer* optimizer() { return nullptr; }

  // What brings parameters layer by layer, for training with TrainingOptions::gated_parameters:
  // every pass asks it, those that evaluate too. Lent for the hook's life, the same at every call.
  virtual LayerGate* gate() { return nullptr; }

  // Whether ranks exchange anything in the coming step, or in the one that before_step() began;
  // the same on all ranks. In a step in which they do not, nothing is averaged either.
  virtual bool meets() const { return true; }

  // In place: the mean over all ranks, never compressed, equal on all ranks. For losses and counts.
  virtual Status average(std::span<double> /*values*/) { return {}; }
  // Starts the same: `values` are lent until finish_average(), which waits, has returned. At most
  // one at a time; other calls may come in between. By default all of it is done at once.
  virtual Status start_average(std::span<double> values) { return average(values); }
  // Does nothing where nothing was started.
  virtual Status finish_average() { return {}; }
};

}  // namespace gradwire
