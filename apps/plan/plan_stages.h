// What each rank of a pipeline holds of a planned model.
#pragma once

#include <string>
#include <vector>

#include "apps/plan/plan_question.h"

namespace gradwire {

struct PlanRank {
  int rank = 0;             // of the pipeline
  std::vector<int> stages;  // ascending
  double params = 0;        // of a transformer its own layers', else as many as another rank's
  int contexts = 0;         // micro-batches of its stages, added up over them
  // Bytes; 0 without a transformer's shape.
  double activations = 0;
  double messages = 0;  // fp32, as stages send them
};
// One for each rank of --parallel pp=N/SCHEDULE, with --accumulate micro-batches. Errors as
// choose_pipeline(); kInvalidArgument: fewer layers than stages.
Result<std::vector<PlanRank>> plan_ranks(const PlanQuestion& question);

}  // namespace gradwire
