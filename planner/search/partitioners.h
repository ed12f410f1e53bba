// Partitioners: layers into the stages of a pipeline, stages onto devices, by dynamic programming.
// Stages take consecutive devices in the cluster's order, from the first; how many of all they take
// is the partitioner's choice, but Alpa's takes all.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "planner/cost/layer_layouts.h"
#include "planner/cost/stage_cost.h"
#include "trainer/pipeline/simulate.h"

namespace gradwire {

// PipeDream's: minimises the time of the slowest stage or transfer, which without a flush is that
// of one mini-batch in steady state. A stage of m replicas takes (compute + g 4 (m - 1) P / (m B))
// / m, a cut 2 a A / B and two latencies: B bandwidth, P bytes of parameters, A of activations, a
// and g the compression ratios. Their mini-batch is a micro-batch of `cost`; a stage keeps as many
// of them as there are devices from it on, over its replicas, rounded up, and must fit. Source:
// Harlap et al., "PipeDream: fast and efficient pipeline parallel DNN training", 2018, section 3.2,
// and Narayanan et al., SOSP 2019, section 3.1; the factors 4 and 2 and the activation's ratio are
// those of their program; g is ours. kInvalidArgument: no partition fits.
Result<StagePartition> partition_pipedream(const StageCost& cost);

// The time of one stage and of one cut as above.
std::int64_t pipedream_stage_ticks(const StageCost& cost, const PlacedStage& stage);
std::int64_t pipedream_cut_ticks(const StageCost& cost, int layer, int device);
// Whether all stages fit, of which the last ends with device `devices` - 1.
bool pipedream_fits(const StageCost& cost, const PlacedStage& stage, int devices);

// DAPPLE's: minimises the latency of a step with m micro-batches under 1F1B with a flush,
//   L = max over Q of  sum_{s <= Q} F_s + (m - 1) (F_Q + B_Q) + E_Q,
//   E_Q = max( max_{s <= Q} (AR_s + sum_{s <= a <= Q} B_a),
//              max_{s > Q} (AR_s - sum_{Q < a < s} B_a) ),
// where stages are those that compute and, between them, those that send (F = B = the transfer's
// time, AR = 0), AR the all-reduce of a stage's replicas, and Q the pivot: the one that gives most,
// which is what their heuristic looks for. A stage keeps as many micro-batches as there are stages
// from it on, at most m, and must fit.
// Source: Fan et al., "DAPPLE: a pipelined data parallel approach for training large models", PPoPP
// 2021, section 4. Exact: for every suffix of layers and devices it keeps all that no other is
// better than in all that matters to what stands in front.
// kInvalidArgument: no partition fits.
Result<StagePartition> partition_dapple(const StageCost& cost);

// L of any stages, as above; and whether all of them fit.
std::int64_t dapple_ticks(const StageCost& cost, const std::vector<PlacedStage>& stages);
bool dapple_fits(const StageCost& cost, const std::vector<PlacedStage>& stages);

// Alpa's: minimises sum_s t_s + (m - 1) max_s t_s over stages on submeshes that together are all
// devices: powers of 2 inside a node, and whole nodes. t_s is a micro-batch's time under the best
// layouts of the stage's layers (best_layouts()), which must fit (layouts_fit(), with as many
// micro-batches as there are stages from it on). They enumerate the greatest t; here a suffix keeps
// every pair of sum and greatest that none is better than, which are the enumeration's answers.
// Source: Zheng et al., "Alpa: automating inter- and intra-operator parallelism for distributed
// deep learning", OSDI 2022, section 5, equations 2 and 3. kInvalidArgument: a graph that is no
// chain; no partition fits.
Result<StagePartition> partition_alpa(const StageCost& cost);

// Whether [first, end) is a submesh.
bool is_submesh(const Cluster& cluster, int first, int end);

struct StagesRun {
  PipelineSchedule schedule = {};
  PipelineSimulation simulation = {};
};

// A step of these stages under 1F1B with a flush, simulated (trainer/pipeline/simulate.h):
// transfers over links, reductions beside. Layouts inside of stages are by samples.
// kInvalidArgument: no stages, or as simulate_pipeline().
Result<StagesRun> run_stages(const StageCost& cost, const std::vector<PlacedStage>& stages);
// How long it takes, in nanoseconds.
Result<std::int64_t> simulate_stages(const StageCost& cost, const std::vector<PlacedStage>& stages);

}  // namespace gradwire
