#include "trainer/strategy/parameter_keeper.h"

namespace gradwire {

Status ParameterKeeper::step(double) {
  return {Code::kInternal, "a strategy without an optimizer was asked for a step"};
}

Result<double> ParameterKeeper::clip(double) {
  return Status(Code::kInternal, "a strategy that does not clip was asked to");
}

}  // namespace gradwire
