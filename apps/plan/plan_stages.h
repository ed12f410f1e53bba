// What each rank of a pipeline holds of a planned model, and of a model for images the rank that
// holds most.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "apps/plan/plan_question.h"

namespace gradwire {

struct PlanRank {
  int rank = 0;             // of the pipeline
  std::vector<int> stages;  // ascending
  double params = 0;        // of a transformer its own layers', else as many as another rank's
  // Of a transformer, by stage: its layers of the model, first and last, such as 0-3.
  std::vector<std::string> layers = {};
  int contexts = 0;  // micro-batches of its stages, added up over them
  // Of a transformer as gradwire train holds a gpt of that shape, with tied ends, to the byte
  // (run_memory()); else without activations and messages.
  MemoryRow bytes;
};

// By ZeRO stage, for each rank of --parallel pp=N/SCHEDULE, with --accumulate micro-batches; empty
// without a pipeline. Of a model of --image, which has none, one: the rank of tp that holds most,
// as gradwire train holds it, to the byte. Errors as choose_pipeline(), plan_stages(), plan_model()
// and run_memory().
using PlanRanks = std::array<std::vector<PlanRank>, kZeroStages>;
Result<PlanRanks> plan_ranks(const PlanQuestion& question);

}  // namespace gradwire
