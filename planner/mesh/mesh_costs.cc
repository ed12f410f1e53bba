#include "planner/mesh/mesh_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace gradwire {
namespace {

constexpr double kSentWidth = 4;  // bytes: activations and their gradients are sent in fp32

// Bytes of a parameter that the optimizer's step reads and writes: its gradient, the parameter and
// its moments in fp32, and in 16 bits what the parameter is rounded to. lamb's second pass reads
// the direction that its first one wrote, and has the parameter once more.
double moved_by_update(const MeshProblem& problem) {
  constexpr double kRead = 4;
  constexpr double kReadAndWritten = 8;
  double moved = problem.element_bytes() + kReadAndWritten;
  if (problem.precision != Precision::kF32) moved += problem.element_bytes();
  if (problem.optimizer == "adamw") return moved + 2 * kReadAndWritten;
  if (problem.optimizer == "lamb") return moved + 3 * kReadAndWritten + kRead;
  return problem.momentum > 0 ? moved + kReadAndWritten : moved;
}

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
    GW_TRY(begin());
    MeshCosts costs;
    costs.ends_are_tied = tied_elems_ > 0;
    for (const MeshReplica& replica : links_.replicas) {
      auto& ranks = costs.replicas.emplace_back();
      for (int rank = 0; rank < choice_.pp; ++rank) {
        auto& stages = ranks.emplace_back();
        double gathered = 0;
        for (const auto& [pipe, stage] : choice_.stages_of(rank)) {
          GW_ASSIGN(MeshStageCost one, stage_of(replica, rank, pipe, stage));
          stages.push_back(std::move(one));
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

  Result<std::vector<std::vector<std::int64_t>>> by_rank() {
    GW_TRY(begin());
    // Devices of one type on one kind of ring take the same.
    std::map<std::pair<int, MeshLink>, std::vector<std::int64_t>> known;
    const std::vector<std::int64_t> none(work_->size());
    std::vector<std::vector<std::int64_t>> ticks(static_cast<std::size_t>(choice_.pp), none);
    for (const MeshReplica& replica : links_.replicas) {
      for (std::size_t rank = 0; rank < ticks.size(); ++rank) {
        const auto [place, is_new] = known.try_emplace({replica.types[rank], replica.sums[rank]});
        if (is_new) place->second = layers_on(replica, rank);
        std::ranges::transform(ticks[rank], place->second, ticks[rank].begin(),
                               [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
      }
    }
    return ticks;
  }

 private:
  Status begin() {
    const std::vector<int>& layers = choice_.order.layers;
    GW_ASSIGN(cuts_, problem_.model->cuts(choice_.stages(), choice_.has_flush(), layers));
    GW_ASSIGN(work_, problem_.model->work(choice_.tp, choice_.has_flush(), choice_.stages(),
                                          choice_.recompute, layers));
    if (choice_.stages() == 1) cuts_ = {LayerRange{0, work_->size()}};
    find_ties();
    return {};
  }

  // Every layer, there and back.
  std::vector<std::int64_t> layers_on(const MeshReplica& replica, std::size_t rank) const {
    const DeviceType& type = problem_.cluster->types[static_cast<std::size_t>(replica.types[rank])];
    std::vector<std::int64_t> ticks;
    MeshStageCost all;
    for (std::size_t layer = 0; layer < work_->size(); ++layer) {
      MeshLayerCost one = computation_of(type, layer);
      if (choice_.tp > 1) add_sums(replica.sums[rank], layer, one, all);
      one.backward_weight += joining(type, one.parameters);
      ticks.push_back(one.there() + one.input() + one.backward_weight);
    }
    return ticks;
  }

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

  Result<MeshStageCost> stage_of(const MeshReplica& replica, int rank, int pipe, int number) const {
    const LayerRange range = cuts_[static_cast<std::size_t>(number)];
    const auto at = static_cast<std::size_t>(rank);
    const DeviceType& type = problem_.cluster->types[static_cast<std::size_t>(replica.types[at])];
    MeshStageCost stage{.pipe = pipe, .stage = number};
    double parameters = 0;
    for (std::size_t layer = range.begin; layer < range.end; ++layer) {
      MeshLayerCost one = computation_of(type, layer);
      if (choice_.tp > 1) add_sums(replica.sums[at], layer, one, stage);
      one.backward_weight += joining(type, one.parameters);
      if (choice_.zero > 0) {
        one.gather = ring_half(links_.data[at], one.parameters * problem_.element_bytes());
      }
      parameters += one.parameters;
      stage.layers.push_back(one);
    }
    if (range.end < work_->size()) stage.output_bytes = sent(work(range.end - 1).output_elems);
    if (range.begin > 0) stage.input_bytes = sent(work(range.begin).input_elems);
    stage.sends_output = range.end < work_->size() && !has(rank, pipe, number + 1);
    stage.sends_input = range.begin > 0 && !has(rank, pipe, number - 1);
    if (choice_.zero == 3 && choice_.pp == 1) gather_ahead(stage.layers);
    GW_TRY(add_reductions(at, type, range.begin, stage.layers));
    const double shards = choice_.zero == 0 ? 1 : choice_.dp * choice_.pipes();
    stage.update = problem_.rates->update_ticks(type, problem_.optimizer, parameters / shards,
                                                moved_by_update(problem_));
    return stage;
  }

  bool has(int rank, int pipe, int number) const {
    const auto stages = choice_.stages_of(rank);
    return std::ranges::find(stages, std::pair(pipe, number)) != stages.end();
  }

  double sent(std::int64_t elems) const {
    return kSentWidth * static_cast<double>(elems) * static_cast<double>(choice_.micro_batch);
  }

  // Of layers in sequence, whose products or times are those of the rank that has most samples.
  MeshLayerCost computation_of(const DeviceType& type, std::size_t layer) const {
    const MeshLayerWork& one = work(layer);
    const auto rows =
        static_cast<std::int64_t>(std::ceil(one.rows * static_cast<double>(choice_.micro_batch)));
    MeshLayerCost cost{.parameters =
                           one.parameters + (layer + 1 == work_->size() ? tied_elems_ : 0)};
    if (const auto ticks = problem_.rates->layer_ticks(type, {&one.whole, one.macs, rows})) {
      cost.forward = ticks->forward;
      cost.again = one.times_again * ticks->forward;
      cost.backward_input = ticks->backward_input;
      cost.backward_weight = ticks->backward_weight;
    } else {
      const auto ticks_of = [&](std::int64_t macs) {
        return problem_.rates->compute_ticks(type, macs * rows);
      };
      cost.forward = ticks_of(one.macs.forward_macs);
      cost.again = ticks_of(one.again);
      cost.backward_input = ticks_of(one.macs.input_macs);
      cost.backward_weight = ticks_of(one.macs.weight_macs);
    }
    if (!one.loss) return cost;
    if (const auto loss = problem_.rates->layer_ticks(type, {&*one.loss, {}, rows})) {
      cost.forward += loss->forward;
    }
    return cost;
  }

  // A micro-batch's gradients to the sum of those before it; the first one has none.
  std::int64_t joining(const DeviceType& type, double parameters) const {
    const std::int64_t micro_batches = choice_.accumulate / choice_.pipes();
    if (micro_batches < 2) return 0;
    return problem_.rates->sum_ticks(type, parameters) * (micro_batches - 1) / micro_batches;
  }

  void add_sums(const MeshLink& ring, std::size_t layer, MeshLayerCost& one,
                MeshStageCost& stage) const {
    const MeshLayerWork& of = work(layer);
    for (const MeshSum& sum : of.sums) {
      const double bytes = kSentWidth * sum.elems * static_cast<double>(choice_.micro_batch);
      const MeshExchange exchange =
          sum.half ? canonical_half(ring, bytes) : canonical_all_reduce(ring, bytes);
      // What is computed again is added up again.
      const bool twice = !sum.back && of.again > 0;
      stage.sum_bytes += (twice ? 2 : 1) * exchange.sent;
      if (!sum.back) one.sum_forward += exchange.whole();
      if (twice) one.sum_backward += exchange.whole();
      if (sum.back) one.sum_backward += behind_weights(exchange, sum, of, one);
    }
    const MeshExchange gradients = canonical_all_reduce(ring, of.summed * sizeof(float));
    one.sum_gradients = gradients.whole();
    stage.sum_step_bytes += gradients.sent;
  }

  // By how much longer a layer is on its way back for an exchange that its product of weights is
  // beside. The processor that sends does not compute meanwhile.
  static std::int64_t behind_weights(const MeshExchange& exchange, const MeshSum& sum,
                                     const MeshLayerWork& of, const MeshLayerCost& one) {
    const double share = of.macs.weight_macs == 0 ? 0
                                                  : static_cast<double>(sum.beside) /
                                                        static_cast<double>(of.macs.weight_macs);
    const auto beside = static_cast<std::int64_t>(share * static_cast<double>(one.backward_weight));
    return std::max(exchange.whole() - beside, exchange.beside);
  }

  // Buckets as the aggregator fills them (plan_buckets()), by whole layers.
  Status add_reductions(std::size_t rank, const DeviceType& type, std::size_t first,
                        std::vector<MeshLayerCost>& layers) const {
    struct Open {
      MeshGradients gradients = {};
      std::size_t layer = 0;  // the last one that is in it
    };
    const MeshLink& ring = links_.data[rank];
    std::vector<Open> open(compression_.ways());
    const auto close = [&](std::size_t way) {
      Open& one = open[way];
      if (one.gradients.elems > 0)
        layers[one.layer].reduce += reduction(way, one.gradients, rank, type);
      one = {};
    };
    for (std::size_t i = layers.size(); ring.members > 1 && i-- > 0;) {
      GW_ASSIGN(const std::vector<MeshGradients>* const all,
                compression_.gradients(work(first + i), ring.members));
      for (std::size_t way = 0; way < open.size(); ++way) {
        MeshGradients more = (*all)[way];
        // The head's own use of what both ends of the pipeline have.
        if (way == 0) more.elems += layers[i].parameters - work(first + i).parameters;
        if (more.elems == 0) continue;
        if (open[way].gradients.elems > 0 &&
            bytes_of(open[way].gradients) + bytes_of(more) > problem_.bucket_bytes) {
          close(way);
        }
        open[way].gradients += more;
        open[way].layer = i;
      }
    }
    for (std::size_t way = 0; way < open.size(); ++way) close(way);
    return {};
  }

  std::int64_t bytes_of(const MeshGradients& gradients) const {
    return static_cast<std::int64_t>(gradients.elems * problem_.element_bytes());
  }

  MeshExchange reduction(std::size_t way, const MeshGradients& gradients, std::size_t rank,
                         const DeviceType& type) const {
    const MeshLink& ring = links_.data[rank];
    if (choice_.zero > 0) {
      return with_a_bucket(ring, ring_half(ring, gradients.elems * problem_.element_bytes()));
    }
    return compression_.exchange(way, gradients, ring, links_.direct[rank],
                                 problem_.element_bytes(), *problem_.rates, type);
  }

  // A layer's parameters come while the layer before it computes.
  static void gather_ahead(std::vector<MeshLayerCost>& layers) {
    const auto gather = [&](std::size_t layer) { return layers[layer].gather.whole(); };
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

Result<std::vector<std::vector<std::int64_t>>> mesh_rank_ticks(const MeshProblem& problem,
                                                               const MeshChoice& choice,
                                                               const MeshLinks& links) {
  GW_ASSIGN(const MeshCompression none, MeshCompression::make("none", 0));
  return CostsOfMesh(problem, choice, links, none).by_rank();
}

}  // namespace gradwire
