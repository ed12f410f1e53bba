// How a model is cut into the stages of a schedule, and what of it is one rank's.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/model_share.h"
#include "trainer/pipeline/run/executor.h"
#include "trainer/pipeline/schedule.h"

namespace gradwire {

// A stage that this rank holds.
struct StagePlace {
  int stage = 0;             // of the pipe
  LayerRange layers = {};    // of the whole model
  LayerRange here = {};      // the same among the rank's layers (Model::part())
  std::size_t contexts = 0;  // micro-batches between their forward and the end of their backward
  StageRoom room = {};       // messages at a time, in training and evaluation
  bool split = false;        // the backward is I and W
};

// The same on all ranks but for rank, stages, at_a_time.
struct StagePlan {
  PipelineSchedule schedule;       // lowered
  PipelineExecution how = {};      // of training
  PipelineSchedule forwards = {};  // of `schedule`, for evaluation
  PipelineExecution evaluation = {};
  int rank = 0;
  std::vector<LayerRange> cuts = {};    // by stage: its layers of the whole model
  std::vector<StagePlace> stages = {};  // this rank's, ascending
  // Parameters of the first stage that the last one's layers are tied to, where two ranks hold
  // these: both have them, and add up their gradients (RT).
  std::vector<std::string> shared = {};
  // Micro-batches whose gradients are under way at a time, as GradientFold::create() has it.
  int at_a_time = 1;
  bool gathers = false;  // as plan_stages() was told

  // The ranges of part(), ascending.
  std::vector<LayerRange> layers() const;
};

// `schedule`: valid, without transfers and operations of the step's end. Layers are cut by what
// their products cost forward and back, before such as have parameters, so that every stage has
// some. Room for messages is bounded (StagePlan::how). kInvalidArgument: fewer of these than
// stages. kUnsupported names what stages do not serve: a second pipe, a version of weights, an
// operation that is none of F, B, I and W, layers that are tied across ranks otherwise than the
// last rank's last stage to the first rank's first. gathers: parameters are there while a gate has
// a stage's layers open, from before the stage's first operation of a step until behind its last
// one (UNSHARD, RESHARD).
Result<StagePlan> plan_stages(const Model<float>& model, const PipelineSchedule& schedule, int rank,
                              const PipelineExecution& how, bool gathers = false);

// Those of all ranks one after another, which costs little more than one. Errors as plan_stages();
// the first one of `visit` ends it.
Status for_each_stage_plan(const Model<float>& model, const PipelineSchedule& schedule,
                           const PipelineExecution& how, bool gathers,
                           const std::function<Status(const StagePlan& plan)>& visit);

// Of the micro-batches from `first` on, 0 or 1: the most at a time whose gradients a rank has some
// of, and not all of them in a sum that takes micro-batches in their order. `ops`: the rank's list,
// of so many stages.
int most_unjoined(const std::vector<PipelineOp>& ops, std::size_t stages, int micro_batches,
                  int first);

// The most micro-batches of a stage that are between their forward and the end of their backward at
// a time; `ops`: its rank's list.
std::size_t most_contexts(const std::vector<PipelineOp>& ops, int stage);

// The layers of the whole model that each rank holds, ascending.
std::vector<std::vector<LayerRange>> layers_by_rank(const StagePlan& plan);

// Who holds which parameter: whole ones, each on one rank of Scope::kPipeline, shared ones on two.
ModelShare share_of_stages(const Model<float>& model, const StagePlan& plan);

}  // namespace gradwire
