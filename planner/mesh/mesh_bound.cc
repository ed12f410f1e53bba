#include "planner/mesh/mesh_bound.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gradwire {
namespace {

// Sums over the stages before each, of one replica.
struct Before {
  std::vector<std::int64_t> there;
  std::vector<std::int64_t> back;
};

Before sums_before(const MeshChoice& choice, const std::vector<std::vector<MeshStageCost>>& ranks) {
  const auto stages = static_cast<std::size_t>(choice.stages());
  // Under chimera two ranks have each stage: the faster one counts.
  std::vector<std::int64_t> there(stages, INT64_MAX);
  std::vector<std::int64_t> back(stages, INT64_MAX);
  for (const auto& rank : ranks) {
    for (const MeshStageCost& one : rank) {
      const auto at = static_cast<std::size_t>(one.stage);
      there[at] = std::min(there[at], one.there());
      back[at] = std::min(back[at], one.input());
    }
  }
  Before before{{0}, {0}};
  for (std::size_t stage = 0; stage < stages; ++stage) {
    before.there.push_back(before.there.back() + there[stage]);
    before.back.push_back(before.back.back() + back[stage]);
  }
  return before;
}

std::int64_t rank_bound(const MeshChoice& choice, const std::vector<MeshStageCost>& stages,
                        const Before& before) {
  const std::int64_t micro_batches = choice.accumulate / choice.pipes();
  std::int64_t head = INT64_MAX;
  std::int64_t tail = INT64_MAX;
  std::int64_t work = 0;
  std::int64_t reduced = 0;
  std::int64_t latency = INT64_MAX;     // the last one's: which one that is, nothing says here
  std::int64_t reductions = INT64_MAX;  // the first one begins no earlier behind the head
  std::int64_t update = 0;
  for (const MeshStageCost& stage : stages) {
    const auto at = static_cast<std::size_t>(stage.stage);
    head = std::min(head, before.there[at]);
    tail = std::min(tail, before.back[at]);
    const std::int64_t back = stage.input() + stage.weight();
    work += micro_batches * (stage.there() + back);
    reductions = std::min(reductions, micro_batches * (stage.there() + back) - back);
    update += stage.update;
    for (const MeshLayerCost& layer : stage.layers) {
      if (!layer.reduce.any()) continue;
      reduced += layer.reduce.ticks;
      latency = std::min(latency, layer.reduce.latency);
    }
    for (const MeshLayerCost& layer : stage.layers) {
      if (choice.zero == 1 || choice.zero == 2) reduced += layer.gather.ticks;
    }
  }
  if (!choice.has_flush()) return std::max(work + update, reduced);
  // A weight's gradient may come last, when nothing follows it.
  if (choice.pp == 1 || splits_backward(choice.order.kind)) tail = 0;
  if (latency == INT64_MAX) latency = 0;
  return head + std::max(work + std::max(tail, update), reductions + reduced + latency + update);
}

}  // namespace

std::int64_t mesh_bound(const MeshChoice& choice, const MeshCosts& costs) {
  std::int64_t most = 0;
  for (const auto& ranks : costs.replicas) {
    const Before before = sums_before(choice, ranks);
    for (const auto& stages : ranks) most = std::max(most, rank_bound(choice, stages, before));
  }
  return most;
}

}  // namespace gradwire
