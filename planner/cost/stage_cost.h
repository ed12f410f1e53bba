// What the stages of a pipeline cost, for partitioners: consecutive operators of the graph (layers)
// on consecutive devices of the cluster, which are replicas. Whole nanoseconds, each quotient
// rounded up, so that partitioners and a search over everything compare by ==.
#pragma once

#include <cstdint>
#include <vector>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"
#include "planner/cost/strategy_cost.h"
#include "planner/graph/operator_graph.h"

namespace gradwire {

// Layers [first_layer, end_layer) on devices [first_device, end_device).
struct PlacedStage {
  int first_layer = 0;
  int end_layer = 0;
  int first_device = 0;
  int end_device = 0;

  int replicas() const { return end_device - first_device; }
  friend bool operator==(const PlacedStage&, const PlacedStage&) = default;
};

// The stages of a partitioner's answer, in the model's order, and what it minimised.
struct StagePartition {
  std::vector<PlacedStage> stages = {};
  std::int64_t ticks = 0;
};

// Immutable. Layers are the graph's operators in their order; where a graph is no chain, a cut
// sends all outputs that are read behind it.
class StageCost {
 public:
  // `micro_batches`: of a step, which divide graph.samples evenly or nearly so. `graph` and
  // `cluster` must outlive it. kInvalidArgument: as check_graph(), check_cluster(),
  // check_cost_options(); micro_batches below 1 or above the samples.
  static Result<StageCost> make(const OperatorGraph& graph, const Cluster& cluster,
                                const CostOptions& options, int micro_batches);

  int layers() const { return static_cast<int>(forward_.size()) - 1; }
  int devices() const { return cluster_->devices(); }
  int micro_batches() const { return micro_batches_; }
  const OperatorGraph& graph() const { return *graph_; }
  const Cluster& cluster() const { return *cluster_; }
  const CostOptions& options() const { return options_; }

  // Of one micro-batch, whose samples the replicas share; of the slowest of them.
  std::int64_t forward(const PlacedStage& stage) const;
  std::int64_t backward(const PlacedStage& stage) const;
  // The replicas' all-reduce of the gradients, compressed, as a ring over the slowest path among
  // them; once a step. 0 for one replica.
  std::int64_t reduce(const PlacedStage& stage) const;
  // Of one micro-batch's activations, compressed, between the last device before `device` and the
  // first behind: a cut before layer `layer`.
  std::int64_t transfer(int layer, int device) const;
  // Bytes that the cut sends for all samples, not compressed.
  std::int64_t cut_bytes(int layer) const { return cut_[static_cast<std::size_t>(layer)]; }
  std::int64_t parameter_bytes(const PlacedStage& stage) const;
  // Of a replica: the state of the stage's parameters and the outputs of `contexts` micro-batches,
  // of which it has its share.
  double memory_bytes(const PlacedStage& stage, int contexts) const;
  // Whether every replica has room for them.
  bool fits(const PlacedStage& stage, int contexts) const;

  // Nanoseconds a byte of the slowest path between neighbours among the stage's devices, around
  // the ring; 0 for one device.
  double slowest_byte(const PlacedStage& stage) const;

 private:
  StageCost() = default;
  std::int64_t compute(const std::vector<std::int64_t>& macs, const PlacedStage& stage) const;

  const OperatorGraph* graph_ = nullptr;
  const Cluster* cluster_ = nullptr;
  CostOptions options_;
  int micro_batches_ = 1;
  std::vector<std::int64_t> forward_;     // products of all samples, layers before
  std::vector<std::int64_t> backward_;    // likewise
  std::vector<std::int64_t> parameters_;  // bytes, likewise
  std::vector<std::int64_t> outputs_;     // bytes of all samples, likewise
  std::vector<std::int64_t> cut_;         // bytes, by the layer behind it
  std::vector<int> type_of_;              // by device
  std::vector<ClusterPath> next_;         // by device: the path to the next one
};

}  // namespace gradwire
