#include "planner/mesh/mesh_costs.h"

#include <algorithm>

namespace gradwire {
namespace {

constexpr double kSentWidth = 4;  // bytes: activations and their gradients are sent in fp32

std::int64_t sum_of(const std::vector<MeshLayerCost>& layers,
                    std::int64_t (MeshLayerCost::*part)() const) {
  std::int64_t sum = 0;
  for (const MeshLayerCost& layer : layers) sum += (layer.*part)();
  return sum;
}

class CostsOfMesh {
 public:
  CostsOfMesh(const MeshProblem& problem, const MeshChoice& choice, const MeshLinks& links,
              const MeshCompression& compression)
      : problem_(problem), choice_(choice), links_(links), compression_(compression) {}

  Result<MeshCosts> all() {
    GW_ASSIGN(cuts_, problem_.model->cuts(choice_.stages(), choice_.has_flush()));
    GW_ASSIGN(work_, problem_.model->work(choice_.tp, choice_.has_flush(), choice_.stages(),
                                          choice_.recompute));
    find_ties();
    MeshCosts costs;
    costs.ends_are_tied = tied_elems_ > 0;
    for (const MeshReplica& replica : links_.replicas) {
      auto& ranks = costs.replicas.emplace_back();
      for (int rank = 0; rank < choice_.pp; ++rank) {
        auto& stages = ranks.emplace_back();
        double gathered = 0;
        for (const auto& [pipe, stage] : choice_.stages_of(rank)) {
          stages.push_back(stage_of(replica, rank, pipe, stage));
          for (const MeshLayerCost& layer : stages.back().layers) {
            gathered += gathers_a_step() * layer.gather.sent;
          }
        }
        costs.gathered_bytes = std::max(costs.gathered_bytes, gathered);
      }
      costs.tied.push_back(tied_ends(replica));
    }
    return costs;
  }

 private:
  const MeshLayerWork& work(std::size_t layer) const { return (*work_)[layer]; }

  // Where the last stage computes with a parameter of the first one, on another rank.
  void find_ties() {
    const int end = choice_.stages() - 1;
    for (const auto& [pipe, stage] : choice_.stages_of(0)) {
      if (stage == end) return;  // the same rank has both ends
    }
    tied_elems_ = work_->back().tied;
  }

  // Of ZeRO: how often a step gathers all parameters.
  double gathers_a_step() const {
    if (choice_.zero == 0) return 0;
    return choice_.zero == 3 && choice_.pp == 1 ? 2.0 * choice_.accumulate : 1;
  }

  MeshExchange tied_ends(const MeshReplica& replica) const {
    if (tied_elems_ == 0) return {};
    MeshLink link = replica.hops.at({0, choice_.pp - 1});
    link.members = 2;
    return ring_all_reduce(link, tied_elems_ * problem_.element_bytes());
  }

  MeshStageCost stage_of(const MeshReplica& replica, int rank, int pipe, int number) const {
    const LayerRange range = cuts_[static_cast<std::size_t>(number)];
    const auto at = static_cast<std::size_t>(rank);
    const DeviceType& type = problem_.cluster->types[static_cast<std::size_t>(replica.types[at])];
    MeshStageCost stage{.pipe = pipe, .stage = number};
    for (std::size_t layer = range.begin; layer < range.end; ++layer) {
      MeshLayerCost one = products_of(type, layer);
      if (choice_.tp > 1) add_sums(replica.sums[at], layer, one, stage);
      add_exchanges(at, one);
      stage.layers.push_back(one);
    }
    if (range.end < work_->size()) stage.output_bytes = sent(work(range.end - 1).output_elems);
    if (range.begin > 0) stage.input_bytes = sent(work(range.begin).input_elems);
    if (choice_.zero == 3 && choice_.pp == 1) gather_ahead(stage.layers);
    return stage;
  }

  double sent(std::int64_t elems) const {
    return kSentWidth * static_cast<double>(elems * choice_.micro_batch);
  }

  MeshLayerCost products_of(const DeviceType& type, std::size_t layer) const {
    const MeshLayerWork& one = work(layer);
    const auto ticks = [&](std::int64_t macs) {
      return problem_.rates->compute_ticks(type, macs * choice_.micro_batch);
    };
    return {.forward = ticks(one.macs.forward_macs),
            .again = ticks(one.again),
            .backward_input = ticks(one.macs.input_macs),
            .backward_weight = ticks(one.macs.weight_macs),
            .parameters = one.parameters + (layer + 1 == work_->size() ? tied_elems_ : 0)};
  }

  void add_sums(const MeshLink& ring, std::size_t layer, MeshLayerCost& one,
                MeshStageCost& stage) const {
    const auto sum = [&](std::int64_t elems) {
      const MeshExchange exchange = ring_all_reduce(ring, sent(elems));
      stage.sum_bytes += exchange.sent;
      return exchange.ticks + exchange.latency;
    };
    const MeshLayerWork& of = work(layer);
    if (of.half_of_block || layer == 0) one.sum_forward = sum(of.output_elems);
    if (of.half_of_block) one.sum_backward = sum(of.output_elems);
    // What is computed again is added up again.
    if (of.half_of_block && of.again > 0) one.sum_backward += sum(of.output_elems);
    if (layer > 0 && layer + 1 == work_->size()) one.sum_backward = sum(of.input_elems);
  }

  void add_exchanges(std::size_t rank, MeshLayerCost& one) const {
    const double bytes = one.parameters * problem_.element_bytes();
    const MeshLink& ring = links_.data[rank];
    if (choice_.zero > 0) {
      one.reduce = one.gather = ring_half(ring, bytes);
    } else if (compression_.none()) {
      one.reduce = ring_all_reduce(ring, bytes);
    } else {
      one.reduce = compression_.exchange(ring, links_.direct[rank], one.parameters * sizeof(float),
                                         problem_.rates->codec_byte(choice_.compressor));
    }
  }

  // A layer's parameters come while the layer before it computes.
  static void gather_ahead(std::vector<MeshLayerCost>& layers) {
    const auto gather = [&](std::size_t layer) {
      return layers[layer].gather.ticks + layers[layer].gather.latency;
    };
    const std::size_t count = layers.size();
    for (std::size_t i = 0; i < count; ++i) {
      MeshLayerCost& one = layers[i];
      const std::int64_t next = i + 1 < count ? gather(i + 1) : 0;
      one.wait_forward = std::max<std::int64_t>(next - one.there(), 0) + (i == 0 ? gather(0) : 0);
      const std::int64_t before = i > 0 ? gather(i - 1) : 0;
      const std::int64_t back = one.input() + one.backward_weight;
      one.wait_backward =
          std::max<std::int64_t>(before - back, 0) + (i + 1 == count ? gather(i) : 0);
    }
  }

  const MeshProblem& problem_;
  const MeshChoice& choice_;
  const MeshLinks& links_;
  const MeshCompression& compression_;
  std::vector<LayerRange> cuts_;
  const std::vector<MeshLayerWork>* work_ = nullptr;
  double tied_elems_ = 0;  // of a parameter that both ends of the pipeline have
};

}  // namespace

std::int64_t MeshStageCost::there() const { return sum_of(layers, &MeshLayerCost::there); }
std::int64_t MeshStageCost::input() const { return sum_of(layers, &MeshLayerCost::input); }
std::int64_t MeshStageCost::weight() const {
  std::int64_t sum = 0;
  for (const MeshLayerCost& layer : layers) sum += layer.backward_weight;
  return sum;
}

Result<MeshCosts> mesh_costs(const MeshProblem& problem, const MeshChoice& choice,
                             const MeshLinks& links, const MeshCompression& compression) {
  return CostsOfMesh(problem, choice, links, compression).all();
}

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
  for (const MeshStageCost& stage : stages) {
    const auto at = static_cast<std::size_t>(stage.stage);
    head = std::min(head, before.there[at]);
    tail = std::min(tail, before.back[at]);
    const std::int64_t back = stage.input() + stage.weight();
    work += micro_batches * (stage.there() + back);
    reductions = std::min(reductions, micro_batches * (stage.there() + back) - back);
    for (const MeshLayerCost& layer : stage.layers) {
      if (layer.parameters == 0) continue;
      reduced += layer.reduce.ticks;
      latency = std::min(latency, layer.reduce.latency);
      if (choice.zero == 1 || choice.zero == 2) reduced += layer.gather.ticks;
    }
  }
  if (!choice.has_flush()) return std::max(work, reduced);
  // A weight's gradient may come last, when nothing follows it.
  if (choice.pp == 1 || splits_backward(choice.order.kind)) tail = 0;
  if (latency == INT64_MAX) latency = 0;
  return head + std::max(work + tail, reductions + reduced + latency);
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
