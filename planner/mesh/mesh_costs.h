// What each stage of a mesh takes of a micro-batch's time, layer by layer.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "planner/mesh/mesh_choice.h"
#include "planner/mesh/mesh_exchange.h"
#include "planner/mesh/mesh_links.h"
#include "planner/mesh/mesh_problem.h"

namespace gradwire {

// Of one layer on one rank, nanoseconds a micro-batch.
struct MeshLayerCost {
  std::int64_t forward = 0;
  std::int64_t again = 0;  // forward once more, on the way back (activation checkpointing)
  std::int64_t backward_input = 0;
  std::int64_t backward_weight = 0;
  // Sums of activations and of their gradients among the ranks of tp, which wait for them.
  std::int64_t sum_forward = 0;
  std::int64_t sum_backward = 0;
  // For parameters that come in parts while the layer before computes (ZeRO stage 3).
  std::int64_t wait_forward = 0;
  std::int64_t wait_backward = 0;
  // Before its gradients are handed over: those that ranks of tp add up, once a step.
  std::int64_t sum_gradients = 0;
  double parameters = 0;  // elements here
  // Of the buckets of gradients that are whole with this layer's, once a step: from the last layer
  // on a bucket is filled up to MeshProblem::bucket_bytes.
  MeshExchange reduce = {};
  MeshExchange gather = {};  // of its parameters among those that have a part each (ZeRO)

  std::int64_t there() const { return forward + sum_forward + wait_forward; }
  std::int64_t input() const { return again + backward_input + sum_backward + wait_backward; }
};

struct MeshStageCost {
  int pipe = 0;
  int stage = 0;
  std::vector<MeshLayerCost> layers = {};
  double output_bytes = 0;    // of a micro-batch, to the next stage
  double input_bytes = 0;     // its gradient, to the stage before
  double sum_bytes = 0;       // that the rank sends in sums of tp, a micro-batch, there and back
  double sum_step_bytes = 0;  // and once a step
  bool sends_output = false;  // whether another rank has the next stage
  bool sends_input = false;   // likewise the stage before
  std::int64_t update = 0;    // nanoseconds of the optimizer's step of what the rank has of it

  std::int64_t there() const;
  std::int64_t input() const;
  std::int64_t weight() const;
};

// Of each kind of replica (MeshLinks::replicas): [rank of the pipeline][its stages in order].
struct MeshCosts {
  std::vector<std::vector<std::vector<MeshStageCost>>> replicas = {};
  // Of parameters that the first and the last stage share on two ranks, which add up their
  // gradients: [replica].
  std::vector<MeshExchange> tied = {};
  bool ends_are_tied = false;
  double gathered_bytes = 0;  // that a rank sends at most to bring parameters together, a step
};

// `links` are choice's on problem.cluster. Layers as problem.rates says of their shapes, else their
// products at the devices' rates, what else they do taking no time. Under ZeRO stage 3 without a
// pipeline each layer's parameters are gathered while the one before it computes, so that a layer
// takes the longer of the two. Sums of tp (MeshSum) are waited for, on the way back beside the
// product of weights. kInvalidArgument: a model that does not divide so, a parameter that no rule
// of the compressor is for.
Result<MeshCosts> mesh_costs(const MeshProblem& problem, const MeshChoice& choice,
                             const MeshLinks& links, const MeshCompression& compression);

// [rank of the pipeline][layer]: what each layer of the model, wherever it is, would take of a
// micro-batch's time there, forward and back with sums of tp; in the slowest replica. Nanoseconds.
// Whether layers are computed again is as choice's division into stages has it. Errors as
// mesh_costs().
Result<std::vector<std::vector<std::int64_t>>> mesh_rank_ticks(const MeshProblem& problem,
                                                               const MeshChoice& choice,
                                                               const MeshLinks& links);

}  // namespace gradwire
