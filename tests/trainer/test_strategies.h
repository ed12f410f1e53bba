// Strategies for tests that change a single thing.
#pragma once

#include "trainer/strategy/strategy.h"

namespace gradwire {

// Its own exchange and consensus: by default those of a single process that cannot tell early which
// gradients have arrived.
class OwnStrategy : public Strategy, public GradientExchange, public Consensus {
 public:
  GradientExchange& exchange() override { return *this; }
  ParameterKeeper& keeper() override { return keeper_; }
  Consensus& consensus() override { return *this; }

 private:
  ParameterKeeper keeper_;
};

// Another strategy whose exchange it stands before.
class StrategyAround : public Strategy, public GradientExchange {
 public:
  explicit StrategyAround(Strategy& inner) : inner_(inner) {}
  Demands demands() const override { return inner_.demands(); }
  GradientExchange& exchange() override { return *this; }
  ParameterKeeper& keeper() override { return inner_.keeper(); }
  Consensus& consensus() override { return inner_.consensus(); }

  Status set_gradient_scale(double scale) override { return inner().set_gradient_scale(scale); }
  Status before_step(double learning_rate) override { return inner().before_step(learning_rate); }
  void skip_step() override { inner().skip_step(); }
  Status on_gradient(int index, TensorView grad, const Stream& stream) override {
    return inner().on_gradient(index, grad, stream);
  }
  Result<bool> arrived(int index, bool wait) override { return inner().arrived(index, wait); }
  Status finish(const Stream& stream) override { return inner().finish(stream); }
  bool meets() const override { return inner_.exchange().meets(); }

 protected:
  GradientExchange& inner() { return inner_.exchange(); }

 private:
  Strategy& inner_;
};

}  // namespace gradwire
