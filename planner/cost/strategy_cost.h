// What a strategy costs: the time of one training step on the timeline, and memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "planner/cluster/cluster.h"
#include "planner/cost/strategy.h"
#include "planner/graph/operator_graph.h"
#include "timeline/timeline.h"

namespace gradwire {

struct CostOptions {
  // Bytes that are sent over bytes that there are, above 0 and at most 1: of outputs and their
  // gradients between devices, and of parameters' gradients among replicas.
  double activation_ratio = 1;
  double gradient_ratio = 1;
  // Bytes that a device keeps for each byte of parameters: parameters, gradients and Adam's two
  // moments in fp32.
  double state_ratio = 4;
};

// kInvalidArgument names the option.
Status check_cost_options(const CostOptions& options);

struct StrategyTime {
  std::int64_t ticks = 0;                 // nanoseconds of one step
  std::vector<std::int64_t> memory = {};  // by device, bytes: state and outputs kept for backward
  std::int64_t over = 0;                  // bytes beyond devices' memory, over all of them

  // What fits comes before what does not, the less over the better; then the shorter.
  friend bool operator<(const StrategyTime& a, const StrategyTime& b) {
    return std::pair(a.over, a.ticks) < std::pair(b.over, b.ticks);
  }
};

// Anything that has a cost can be searched for: searchers know strategies and times alone.
class StrategyCost {
 public:
  virtual ~StrategyCost() = default;
  virtual const OperatorGraph& graph() const = 0;
  virtual const Cluster& cluster() const = 0;
  // Errors as check_strategy().
  virtual Result<StrategyTime> time(const OperatorStrategy& strategy) = 0;
};

// A task of a lowered strategy, for pictures.
struct StrategyTask {
  enum class Kind : std::uint8_t { kForward, kBackward, kSend, kReduce };
  Kind kind = Kind::kForward;
  int operation = 0;           // of the graph; of a message its sender
  int device = 0;              // of a message the sender's, of a reduction its first
  int to = 0;                  // of a message: the receiver
  std::vector<int> ring = {};  // of a reduction: all its devices
};

// Paths between devices, each found once. The cluster must outlive it.
class PathCache {
 public:
  explicit PathCache(const Cluster& cluster) : cluster_(cluster) {}
  // Valid as long as the cache.
  const ClusterPath& at(int from, int to);

 private:
  const Cluster& cluster_;
  std::map<std::pair<int, int>, ClusterPath> paths_;
};

struct LoweredStrategy {
  std::vector<TimelineTask> tasks = {};
  std::vector<StrategyTask> meaning = {};  // by task
};

// The cost by simulation. A step is lowered to tasks of the timeline:
//
//   forward    of each part, on its device, behind its inputs' parts
//   backward   of each part, behind its forward and the backwards of its readers
//   send       of what one part reads of another on another device, over the path's ports; what
//              several parts on one device read alike is sent once on the way forward
//   reduce     an all-reduce of the gradients among the devices that have the same parameters, as
//              a ring: 2 (n - 1) messages of 1/n one after another, over all ports of the ring at
//              once, which it has until its last message has arrived
//
// A device does one operator at a time: the one that has been ready longest, then by the graph's
// order. Ports likewise. Not modelled: halos of divided images, the addition of partial sums, the
// optimizer's step. `graph` and `cluster` must outlive it.
class SimulatedCost final : public StrategyCost {
 public:
  // kInvalidArgument: as check_graph(), check_cluster(), check_cost_options().
  static Result<std::unique_ptr<SimulatedCost>> make(const OperatorGraph& graph,
                                                     const Cluster& cluster,
                                                     const CostOptions& options);

  const OperatorGraph& graph() const override { return graph_; }
  const Cluster& cluster() const override { return cluster_; }
  Result<StrategyTime> time(const OperatorStrategy& strategy) override;
  // Errors as check_strategy().
  Result<LoweredStrategy> lower(const OperatorStrategy& strategy);

 private:
  SimulatedCost(const OperatorGraph& graph, const Cluster& cluster, const CostOptions& options);
  StrategyTime memory_of(const OperatorStrategy& strategy) const;

  const OperatorGraph& graph_;
  const Cluster& cluster_;
  CostOptions options_;
  std::vector<std::vector<int>> readers_;
  std::vector<int> type_of_;  // by device
  PathCache paths_;
};

}  // namespace gradwire
