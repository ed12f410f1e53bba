// Turns this rank's gradients into those that the step is made from.
#pragma once

#include "gradwire/status.h"
#include "gradwire/stream.h"
#include "gradwire/tensor.h"

namespace gradwire {

// The defaults change nothing, which is right for a single process. All calls come from the thread
// that trains, and in the same order on every rank that has the same parameters. An error ends the
// training with that error.
//
//   a step:   before_step(), then one round, or under Demands::each_micro_batch as many as there
//             are micro-batches; skip_step() alone, or after a round
//   a round:  on_gradient() once per parameter, finish()
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Before before_step(), in a precision of 16 bits: what the step's gradients are multiplied by,
  // as means are to be that finish() leaves. Under Demands::takes_scaled an exchange need not know.
  virtual Status set_gradient_scale(double /*scale*/) { return {}; }

  // Once per step, before its first on_gradient(): what the optimizer will multiply its gradients
  // by.
  virtual Status before_step(double /*learning_rate*/) { return {}; }

  // In place of all else of a step that is left out on all ranks, since a gradient was not finite
  // on one of them: what rounds of it brought is forgotten, and what is kept between steps stays as
  // it was. Under Demands::takes_scaled it may come after the last round, too.
  virtual void skip_step() {}

  // The gradient of parameter `index` of this rank (order of registration) is final for this round:
  // all of its micro-batches are in. Called once per parameter and round, during backward or after
  // it, from the last parameter down to the first. `grad` is the same memory at every step, on a
  // device final when `stream` has run what it has; it is lent until finish() returns, or until
  // arrived() has said yes of it, and may be changed. From then on parameters may change.
  virtual Status on_gradient(int /*index*/, TensorView /*grad*/, const Stream& /*stream*/) {
    return {};
  }

  // Whether gradient `index`, given in this step, holds already what the step is made from, so that
  // its memory may go, or its parameters be updated, before finish(). With `wait`, waits for that
  // unless it takes gradients that were not given yet (false then). Asked where
  // Demands::tells_arrival alone.
  virtual Result<bool> arrived(int /*index*/, bool /*wait*/) { return false; }

  // Once per round, after all on_gradient() calls: on return every gradient holds what the step is
  // made from (the mean over the ranks of Scope::kData), or under Demands::each_micro_batch what is
  // to be added to it.
  virtual Status finish(const Stream& /*stream*/) { return {}; }

  // Whether ranks exchange anything in the coming step, or in the one that before_step() began; the
  // same on all ranks. In a step in which they do not, no losses are averaged either.
  virtual bool meets() const { return true; }
};

}  // namespace gradwire
