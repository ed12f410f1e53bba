// How a model is cut into the stages of a schedule, and what of it is one rank's.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/mesh_pairs.h"
#include "gradwire/status.h"
#include "trainer/model.h"
#include "trainer/model_share.h"
#include "trainer/pipeline/run/executor.h"
#include "trainer/pipeline/schedule.h"
#include "trainer/pipeline/stream_rule.h"

namespace gradwire {

// A stage that this rank holds.
struct StagePlace {
  int stage = 0;  // of the pipe
  int pipe = 0;
  LayerRange layers = {};    // of the whole model
  LayerRange here = {};      // the same among the rank's layers (Model::part())
  std::size_t contexts = 0;  // micro-batches between their forward and the end of their backward
  StageRoom room = {};       // messages at a time, in training and evaluation
  bool split = false;        // the backward is I and W
};

// The same on all ranks but for rank, stages, at_a_time. Where two pipes go through the stages both
// ways, ranks r and last - r hold the same two stages: they are replicas, each of which gives the
// gradients of one of these from its pipe's micro-batches, and of the other one from the other's.
struct StagePlan {
  PipelineSchedule schedule;       // lowered
  PipelineExecution how = {};      // of training
  PipelineSchedule forwards = {};  // of `schedule`, for evaluation
  PipelineExecution evaluation = {};
  int rank = 0;
  std::vector<LayerRange> cuts = {};    // by stage: its layers of the whole model
  std::vector<StagePlace> stages = {};  // this rank's, ascending; numbers are of one pipe alone
  // Parameters of the first stage that the last one's layers are tied to, where two ranks hold
  // these: both have them, and add up their gradients (RT).
  std::vector<std::string> shared = {};
  // Micro-batches whose gradients are under way at a time, as GradientFold::create() has it.
  int at_a_time = 1;
  bool gathers = false;  // as plan_stages() was told
  // Without a flush: what training does, and not `schedule`, which is then as many micro-batches as
  // there are numbers of them, for evaluation.
  std::optional<StreamRule> stream = {};

  // The ranges of part(), ascending.
  std::vector<LayerRange> layers() const;

  int pipes() const { return schedule.pipes(); }
  // Of a pipe and a step, which is as many as a rank adds up gradients of.
  int micro_batches() const {
    return stream ? stream->micro_batches : schedule.micro_batches / pipes();
  }
  // A micro-batch's number in its pipe.
  int number_in_pipe(int micro) const { return micro % micro_batches(); }
  // Of ranks that hold the same stages there is one place: as many as hold the model together.
  int place_of(int on_rank) const {
    return pipes() == 1 ? on_rank : place_both_ways(schedule.size(), on_rank);
  }
  int places() const { return schedule.size() / pipes(); }
};

// `schedule`: valid, without transfers and operations of the step's end. Where it does not say the
// layers of its stages, these are cut by what
// their products cost forward and back, before such as have parameters, so that every stage has
// some. Room for messages is bounded (StagePlan::how). kInvalidArgument: fewer of these than
// stages; layers that are said and are not the model's together, or have no parameters in a stage.
// kUnsupported names what stages do not serve: pipes that are not one, or two of as many
// micro-batches that go both ways (both_ways_placement()), a version of weights, an operation that
// is none of F, B, I and W, with two pipes gathers, layers that are tied across ranks otherwise
// than the last rank's last stage to the first rank's first. gathers: parameters are there while a
// gate has a stage's layers open, from before the stage's first operation of a step until behind
// its last one (UNSHARD, RESHARD).
Result<StagePlan> plan_stages(const Model<float>& model, const PipelineSchedule& schedule, int rank,
                              const PipelineExecution& how, bool gathers = false);

// Where plan_stages() may begin a stage: with the first layer, and with each one that has
// parameters behind another one that has some.
std::vector<std::size_t> stage_begins(const Model<float>& model);

// Of a schedule without a flush, over tagged links. kUnsupported, besides: layers that are tied
// across ranks. kInvalidArgument: other ranks than the
// rule's stages; with delayed versions fewer micro-batches than ranks.
Result<StagePlan> plan_stream(const Model<float>& model, const StreamRule& rule, int rank);

// Those of all ranks one after another, which costs little more than one. Errors as plan_stages();
// the first one of `visit` ends it.
Status for_each_stage_plan(const Model<float>& model, const PipelineSchedule& schedule,
                           const PipelineExecution& how, bool gathers,
                           const std::function<Status(const StagePlan& plan)>& visit);

// Of the micro-batches from `first` on, 0 or 1: the most at a time whose gradients a rank has some
// of, and not all of them in a sum that takes micro-batches in their order. `ops`: the rank's list,
// of so many stages. Of two pipes micro-batches count by their numbers in these, of which there are
// so many.
int most_unjoined(const std::vector<PipelineOp>& ops, std::size_t stages, int micro_batches,
                  int first);

// The most micro-batches of a stage that are between their forward and the end of their backward at
// a time; `ops`: its rank's list.
std::size_t most_contexts(const std::vector<PipelineOp>& ops, int stage);

// The layers of the whole model that each place holds, ascending.
std::vector<std::vector<LayerRange>> layers_by_rank(const StagePlan& plan);

// Who holds which parameter: whole ones, each on one place, shared ones on two.
ModelShare share_of_stages(const Model<float>& model, const StagePlan& plan);

}  // namespace gradwire
