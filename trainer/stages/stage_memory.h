// What the stages of one rank hold in memory beside parameters and gradients that are added up:
// arithmetic over the schedule and the layers' shapes.
#pragma once

#include <cstdint>
#include <string>

#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/stages/stage_plan.h"

namespace gradwire {

// Bytes, the most there is at a time.
struct StageMemory {
  std::int64_t activations = 0;  // contexts of all stages
  std::int64_t workspace = 0;    // what a stage's contexts share
  std::int64_t messages = 0;
  std::int64_t versions = 0;  // of the weights, beside the newest
};
// `part`: of plan.layers(). `rows`: samples of a micro-batch. Errors as PipelineStage::create().
Result<StageMemory> stage_memory(const Model<float>& part, const StagePlan& plan, std::int64_t rows,
                                 const std::string& recompute);
// Of one context of a stage.
Result<std::int64_t> context_bytes(const Model<float>& part, const StagePlace& place,
                                   std::int64_t rows, const std::string& recompute);

// How GradientFold goes about a rank's gradients.
struct FoldWays {
  bool first_waits = false;  // the first micro-batch's have no memory of their own to be added in
  bool whole = false;        // those of a micro-batch are added when all of them are there
};
// The most elements of gradients at a time that have been computed and not yet added to the sum,
// which takes micro-batches in their order.
std::int64_t waiting_gradient_elems(const Model<float>& part, const StagePlan& plan,
                                    const FoldWays& ways);

// The most elements of parameters at a time that are gathered from a stage's first operation of a
// step to its last one.
std::int64_t gathered_stage_elems(const Model<float>& part, const StagePlan& plan);

}  // namespace gradwire
