// Who has which parameters between passes, and steps those that are this rank's.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "gradwire/status.h"
#include "trainer/checkpoint/tensor_file.h"
#include "trainer/layer_gate.h"

namespace gradwire {

// The defaults are of a rank that holds all parameters of its trainer, which steps them. All calls
// come from the thread that trains; an error ends the training with that error.
class ParameterKeeper {
 public:
  virtual ~ParameterKeeper() = default;

  // With Demands::own_optimizer: makes the step from the gradients that GradientExchange::finish()
  // left. On return the trainer's parameters are the new ones, where they are held at all.
  virtual Status step(double learning_rate);
  // Likewise, collective, after the last step: on return all ranks that have the same parameters
  // hold them alike. For methods whose ranks make steps of their own between exchanges.
  virtual Status settle() { return {}; }
  // With Demands::clips, after finish(): gradients that step() will use become `most` long where
  // they are longer, those of all ranks together. Returns their length before.
  virtual Result<double> clip(double most);
  // Likewise: none of the gradients that this rank will step from is infinite or no number.
  virtual Result<bool> finite();

  // With Demands::layer_by_layer: what every pass asks for its layers, those that evaluate too.
  // Lent for the keeper's life, the same at every call.
  virtual LayerGate* gate() { return nullptr; }
  // Collective, between steps: on return the trainer's memory holds all of its parameters, until
  // the next pass.
  virtual Status gather() { return {}; }
  // With Demands::holds_master, where the trainer's are in 16 bits: collective, between steps. On
  // return `whole`, memory of the host, has all that ranks step, in fp32.
  virtual Status gather_master(std::span<float> whole);
  // Collective, between steps: what this rank alone has of the parameters, in fp32: those that it
  // steps, or, where others get them changed on their way, what passes see of them;
  // nullopt where the trainer holds them all. Views are valid until the next call of the keeper.
  virtual Result<std::optional<std::vector<TensorPart>>> own_parameters() {
    return std::optional<std::vector<TensorPart>>();
  }
};

}  // namespace gradwire
