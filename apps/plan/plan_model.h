// The bundled trainer's model of a plan: shapes alone, so that any size may be asked about.
#pragma once

#include "apps/plan/plan_question.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/model.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// --model; a gpt has the transformer's shape and tied ends, as transformer_params() counts. `share`
// is the part of it that a rank has. Errors as make_model().
Result<Model<float>> plan_model(const PlanQuestion& question, const TensorShare& share = {});

// What is asked of a run of it on one rank, at one stage of ZeRO.
Result<RunMemoryQuestion> plan_run(const PlanQuestion& question, int stage);

}  // namespace gradwire
