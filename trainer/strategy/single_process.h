// Training without anybody else: gradients are what they are.
#pragma once

#include "trainer/strategy/strategy.h"

namespace gradwire {

class SingleProcess : public Strategy {
 public:
  GradientExchange& exchange() override { return exchange_; }
  ParameterKeeper& keeper() override { return keeper_; }
  Consensus& consensus() override { return consensus_; }

 private:
  // Nothing is ever on its way.
  class Exchange final : public GradientExchange {
   public:
    Result<bool> arrived(int /*index*/, bool /*wait*/) override { return true; }
  };
  Exchange exchange_;
  ParameterKeeper keeper_;
  Consensus consensus_;
};

}  // namespace gradwire
