// What a cut model's stages cost under virtual time (trainer/pipeline/simulate.h).
#pragma once

#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/pipeline/simulate.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

// F, I and W of each stage (B is I and W) in ticks: products of one sample, and one more in F for
// each layer, so that their sum is what plan_stages() cut by. Messages, reductions and gathers take
// no time, since how long they take is the machine's.
PipelineCosts stage_costs(const Model<float>& model, const StagePlan& plan);

// Idle over all of the ranks' time in one step under these costs, 0 to 1: what the schedule and the
// cut leave idle on any machine. Without a flush it is that of `steps` steps from start to
// drain, at most 1,024 of them. Errors as simulate_pipeline().
Result<double> stage_bubble(const Model<float>& model, const StagePlan& plan,
                            std::int64_t steps = 1);

}  // namespace gradwire
