#include "trainer/strategy/demands.h"

#include "base/text.h"

namespace gradwire {
namespace {

struct YesOrNo {
  const char* name;
  bool Demands::*value;
};

constexpr YesOrNo kYesOrNo[] = {{"an own optimizer", &Demands::own_optimizer},
                                {"gradients that it clips", &Demands::clips},
                                {"parameters layer by layer", &Demands::layer_by_layer},
                                {"gradients tensor by tensor", &Demands::gradients_pass},
                                {"an exchange of each micro-batch", &Demands::each_micro_batch},
                                {"word of arrived gradients", &Demands::tells_arrival},
                                {"gradients in 16 bits", &Demands::takes_narrow},
                                {"gradients times the loss scale", &Demands::takes_scaled},
                                {"the optimizer's parameters for itself", &Demands::holds_master}};

}  // namespace

Status check_demands(const Demands& made_for, const Demands& seen) {
  for (const YesOrNo& demand : kYesOrNo) {
    const bool wanted = made_for.*demand.value;
    if (seen.*demand.value == wanted) continue;
    return {Code::kInvalidArgument,
            format("the strategy demands %s: %s (expected %s, as the trainer was made for)",
                   demand.name, wanted ? "no" : "yes", wanted ? "yes" : "no")};
  }
  return {};
}

}  // namespace gradwire
