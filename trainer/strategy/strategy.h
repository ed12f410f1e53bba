// What the trainer asks of the outside. The trainer knows nothing of communication: compressed and
// uncompressed, single and distributed runs execute the same code and differ in the strategy alone.
#pragma once

#include "trainer/strategy/consensus.h"
#include "trainer/strategy/demands.h"
#include "trainer/strategy/gradient_exchange.h"
#include "trainer/strategy/parameter_keeper.h"

namespace gradwire {

// Its parts live as long as itself, and are the same at every call.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual Demands demands() const { return {}; }
  virtual GradientExchange& exchange() = 0;
  virtual ParameterKeeper& keeper() = 0;
  virtual Consensus& consensus() = 0;
};

}  // namespace gradwire
