#include "trainer/strategy/parameter_keeper.h"

namespace gradwire {

Status ParameterKeeper::step(double) {
  return {Code::kInternal, "a strategy without an optimizer was asked for a step"};
}

Result<double> ParameterKeeper::clip(double) {
  return Status(Code::kInternal, "a strategy that does not clip was asked to");
}

Status ParameterKeeper::gather_master(std::span<float>) {
  return {Code::kInternal, "a strategy that holds no parameters was asked for them"};
}

Result<bool> ParameterKeeper::finite() {
  return Status(Code::kInternal, "a strategy that does not look at gradients was asked to");
}

}  // namespace gradwire
