// Optimizers by one text, in the grammar of compressors' specs.
//
//   sgd  nesterov                          momentum is the trainer's
//   adamw  lamb                            beta1=0.9, beta2=0.999, epsilon=1e-8
//   onebit_adam  onebit_lamb               the same, freeze=100
//   zero_one_adam                          the same, variance_doubles=16, local_doubles=16,
//                                          local_most=16
//   demo                                   decay=0.999, chunk=64, topk=32
//   diloco                                 beta1, beta2, epsilon, inner_steps=100, outer_lr=0.7,
//                                          outer_momentum=0.9
//
// A bare value is freeze, or diloco's inner_steps: onebit_adam:300.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "adapters/trainer/optimizers/method.h"
#include "gradwire/status.h"
#include "trainer/optimizers/optimizer.h"

namespace gradwire {

struct OptimizerChoice {
  OptimizerOptions optimizer;           // its name is the method's where there is one
  std::optional<MethodOptions> method;  // that exchanges and steps; its name, counts and optimizer
};

// kInvalidArgument names the optimizer, key or value, and what is wanted. Ranges are checked where
// optimizers are made.
Result<OptimizerChoice> parse_optimizer(std::string_view text);

}  // namespace gradwire
