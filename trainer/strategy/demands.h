// What a strategy needs of the trainer under it.
#pragma once

#include <cstdint>

#include "gradwire/status.h"

namespace gradwire {

// Said once, before the trainer allocates anything, and the same for the strategy's life.
struct Demands {
  // ParameterKeeper::step() makes the step: the trainer has no optimizer.
  bool own_optimizer = false;
  // It steps from gradients that ParameterKeeper::clip() can make shorter. Of an own optimizer
  // alone: gradients that the trainer steps from it clips itself.
  bool clips = false;
  // ParameterKeeper::gate() brings parameters for the layer that computes with them, and takes them
  // away after it: no parameter stays with the trainer between passes.
  bool layer_by_layer = false;
  // Gradients go tensor by tensor: the trainer keeps no whole ones, nor sums of them, beside what
  // GradientExchange has.
  bool gradients_pass = false;
  // Micro-batches are exchanged one by one and added up afterwards, in fp32: a step has a round for
  // each of them, of on_gradient() once per parameter and a finish(). The exchange adds up where
  // the keeper steps, else the trainer does. false: their sum is exchanged, in one round.
  bool each_micro_batch = false;
  // GradientExchange::arrived() can tell. false: every gradient is the exchange's until its
  // finish(), so there is no step beside the exchange.
  bool tells_arrival = true;
  // In a precision of 16 bits gradients are given in it. false: in fp32.
  bool takes_narrow = true;
  // Gradients in 16 bits are given as soon as they are there, times the loss scale, and what comes
  // of them is looked at for what is not finite. false: not before no rank has one that is not
  // finite among all of its gradients (GradientExchange::set_gradient_scale() frees them of it).
  bool takes_scaled = true;
  // The strategy holds the parameters that its optimizer steps, in fp32: in 16 bits the trainer
  // holds none but those that passes read. Of an own optimizer alone.
  bool holds_master = false;

  friend bool operator==(const Demands&, const Demands&) = default;
};

// kInvalidArgument names the first demand that a strategy has otherwise than `made_for`, those that
// a trainer was made with.
Status check_demands(const Demands& made_for, const Demands& seen);

}  // namespace gradwire
