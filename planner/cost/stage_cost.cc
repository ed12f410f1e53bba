#include "planner/cost/stage_cost.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kMostStageTicks = 0x1p50;

std::int64_t rounded_up(double value) {
  return static_cast<std::int64_t>(std::ceil(std::min(value, kMostStageTicks)));
}

std::int64_t of_range(const std::vector<std::int64_t>& sums, const PlacedStage& stage) {
  return sums[static_cast<std::size_t>(stage.end_layer)] -
         sums[static_cast<std::size_t>(stage.first_layer)];
}

double byte_ticks(const ClusterPath& path) {
  constexpr double kNanosecondsASecond = 1e9;
  return path.bytes_per_second == 0 ? 0 : kNanosecondsASecond / path.bytes_per_second;
}

}  // namespace

Result<StageCost> StageCost::make(const OperatorGraph& graph, const Cluster& cluster,
                                  const CostOptions& options, int micro_batches) {
  GW_TRY(check_graph(graph));
  GW_TRY(check_cluster(cluster));
  GW_TRY(check_cost_options(options));
  if (micro_batches < 1 || micro_batches > graph.samples) {
    return Status(
        Code::kInvalidArgument,
        format("%d micro-batches of %lld samples (expected 1 to %lld)", micro_batches,
               static_cast<long long>(graph.samples), static_cast<long long>(graph.samples)));
  }
  StageCost cost;
  cost.graph_ = &graph;
  cost.cluster_ = &cluster;
  cost.options_ = options;
  cost.micro_batches_ = micro_batches;
  for (auto* sums : {&cost.forward_, &cost.backward_, &cost.parameters_, &cost.outputs_}) {
    sums->push_back(0);
  }
  cost.cut_.resize(graph.operators.size() + 1);
  const auto readers = graph.readers();
  for (int number = 0; number < graph.size(); ++number) {
    const GraphOperator& one = graph.at(number);
    cost.forward_.push_back(cost.forward_.back() + one.forward_macs);
    cost.backward_.push_back(cost.backward_.back() + one.backward_macs);
    cost.parameters_.push_back(cost.parameters_.back() + one.parameter_bytes);
    cost.outputs_.push_back(cost.outputs_.back() + graph.output_bytes(number));
    const auto& behind = readers[static_cast<std::size_t>(number)];
    const int last = behind.empty() ? number : behind.back();
    for (int cut = number + 1; cut <= last; ++cut) {
      cost.cut_[static_cast<std::size_t>(cut)] += graph.output_bytes(number);
    }
  }
  for (const ClusterNode& node : cluster.nodes) {
    cost.type_of_.insert(cost.type_of_.end(), static_cast<std::size_t>(node.devices), node.type);
  }
  for (int device = 0; device + 1 < cluster.devices(); ++device) {
    cost.next_.push_back(cluster.path(device, device + 1));
  }
  return cost;
}

std::int64_t StageCost::compute(const std::vector<std::int64_t>& macs,
                                const PlacedStage& stage) const {
  const double share =
      static_cast<double>(of_range(macs, stage)) / micro_batches_ / stage.replicas();
  std::int64_t slowest = 0;
  for (int device = stage.first_device; device < stage.end_device; ++device) {
    const auto type = static_cast<std::size_t>(type_of_[static_cast<std::size_t>(device)]);
    constexpr double kNanosecondsASecond = 1e9;
    slowest = std::max(
        slowest, rounded_up(share * kNanosecondsASecond / cluster_->types[type].macs_per_second));
  }
  return slowest;
}

std::int64_t StageCost::forward(const PlacedStage& stage) const { return compute(forward_, stage); }

std::int64_t StageCost::backward(const PlacedStage& stage) const {
  return compute(backward_, stage);
}

double StageCost::slowest_byte(const PlacedStage& stage) const {
  if (stage.replicas() < 2) return 0;
  double slowest = byte_ticks(cluster_->path(stage.end_device - 1, stage.first_device));
  for (int device = stage.first_device; device + 1 < stage.end_device; ++device) {
    slowest = std::max(slowest, byte_ticks(next_[static_cast<std::size_t>(device)]));
  }
  return slowest;
}

std::int64_t StageCost::reduce(const PlacedStage& stage) const {
  const int replicas = stage.replicas();
  if (replicas < 2) return 0;
  std::int64_t latency = cluster_->path(stage.end_device - 1, stage.first_device).latency;
  for (int device = stage.first_device; device + 1 < stage.end_device; ++device) {
    latency = std::max(latency, next_[static_cast<std::size_t>(device)].latency);
  }
  const double bytes = static_cast<double>(parameter_bytes(stage)) * options_.gradient_ratio;
  return 2 * (replicas - 1) * latency +
         rounded_up(2.0 * (replicas - 1) / replicas * bytes * slowest_byte(stage));
}

std::int64_t StageCost::transfer(int layer, int device) const {
  if (layer <= 0 || device <= 0) return 0;
  const ClusterPath& path = next_[static_cast<std::size_t>(device) - 1];
  const double bytes =
      static_cast<double>(cut_bytes(layer)) * options_.activation_ratio / micro_batches_;
  return path.latency + rounded_up(bytes * byte_ticks(path));
}

std::int64_t StageCost::parameter_bytes(const PlacedStage& stage) const {
  return of_range(parameters_, stage);
}

double StageCost::memory_bytes(const PlacedStage& stage, int contexts) const {
  const double outputs =
      static_cast<double>(of_range(outputs_, stage)) / micro_batches_ * contexts / stage.replicas();
  return static_cast<double>(parameter_bytes(stage)) * options_.state_ratio + outputs;
}

bool StageCost::fits(const PlacedStage& stage, int contexts) const {
  const double needed = memory_bytes(stage, contexts);
  for (int device = stage.first_device; device < stage.end_device; ++device) {
    const auto type = static_cast<std::size_t>(type_of_[static_cast<std::size_t>(device)]);
    if (needed > static_cast<double>(cluster_->types[type].memory_bytes)) return false;
  }
  return true;
}

}  // namespace gradwire
