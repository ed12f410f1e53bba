#include "planner/mesh/roomy_stages.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "planner/mesh/even_ranks.h"
#include "planner/mesh/stage_runs.h"

namespace gradwire {
namespace {

// A rank's whole room, as a number of these.
constexpr std::int64_t kRoom = 1'000'000'000;

// Bytes of a rank by what they are for.
struct Parts {
  double parameters = 0;   // and what goes with them: gradients, the optimizer's, versions
  double activations = 0;  // of all micro-batches under way
  double fixed = 0;        // whatever the layers are
};

Parts parts_of(const MeshRankMemory& rank) {
  Parts parts{.fixed = static_cast<double>(rank.on_their_way)};
  for (std::size_t i = 0; i < rank.bytes.size(); ++i) {
    const auto bytes = static_cast<double>(rank.bytes[i]);
    switch (static_cast<MemoryClass>(i)) {
      case MemoryClass::kActivations: parts.activations += bytes; break;
      case MemoryClass::kWorkspace:
      case MemoryClass::kMessages:
      case MemoryClass::kGathered: parts.fixed += bytes; break;
      default: parts.parameters += bytes;
    }
  }
  return parts;
}

// Of each layer, of the part that a rank of tp has.
struct Layers {
  std::vector<double> parameters;   // elements
  std::vector<double> tied;         // likewise, of another layer's, which are here if that is not
  std::vector<double> activations;  // of a micro-batch, for the way back
};

Result<Layers> layers_of(const MeshProblem& problem, const MeshChoice& choice) {
  GW_ASSIGN(const Model<float>* const part, problem.model->part(choice.tp, choice.has_flush()));
  GW_ASSIGN(const auto* const work,
            problem.model->work(choice.tp, choice.has_flush(), choice.stages(), choice.recompute,
                                choice.order.layers));
  const ActivationSizes sizes = part->activation_sizes(choice.micro_batch);
  // Of a backward in two halves the derivatives of all levels stay, too.
  const std::int64_t values = splits_backward(choice.order.kind) ? 2 : 1;
  Layers layers;
  for (std::size_t layer = 0; layer < part->layers(); ++layer) {
    layers.parameters.push_back((*work)[layer].parameters);
    layers.tied.push_back((*work)[layer].tied);
    layers.activations.push_back(
        static_cast<double>(values * sizes.level_elems(layer + 1, choice.micro_batch) +
                            sizes.saved[layer] + sizes.stash[layer]));
  }
  return layers;
}

// What a rank's layers take of its room: each class in proportion to what the rank's own layers
// take of it together.
class RankRoom {
 public:
  RankRoom(const Layers& layers, const StageRuns& runs, const MeshRankMemory& memory,
           std::int64_t room)
      : layers_(layers), memory_(memory) {
    const Parts parts = parts_of(memory);
    const double left = static_cast<double>(room) - parts.fixed;
    if (left <= 0) return;
    double parameters = 0;
    double activations = 0;
    for (std::size_t place = 0; place < memory.stages.size(); ++place) {
      const LayerRange own = runs.cuts()[static_cast<std::size_t>(memory.stages[place])];
      for (std::size_t layer = own.begin; layer < own.end; ++layer) {
        parameters += parameters_of(layer);
        activations += activations_of(memory.stages[place], layer);
      }
    }
    parameter_ = kRoom * parts.parameters / std::max(parameters, 1.0) / left;
    activation_ = kRoom * parts.activations / std::max(activations, 1.0) / left;
    has_any_ = true;
  }

  bool has_any() const { return has_any_; }
  // A layer that is larger by far than the room is as bad as any other.
  std::int64_t takes(int stage, std::size_t layer) const {
    const double part =
        parameter_ * parameters_of(layer) + activation_ * activations_of(stage, layer);
    return static_cast<std::int64_t>(std::min(part, kRoom * 1e3));
  }

 private:
  double parameters_of(std::size_t layer) const {
    const bool has_first = memory_.stages.front() == 0;
    return layers_.parameters[layer] + (has_first ? 0 : layers_.tied[layer]);
  }
  double activations_of(int stage, std::size_t layer) const {
    const auto place = std::ranges::find(memory_.stages, stage) - memory_.stages.begin();
    return static_cast<double>(memory_.contexts[static_cast<std::size_t>(place)]) *
           layers_.activations[layer];
  }

  const Layers& layers_;
  const MeshRankMemory& memory_;
  double parameter_ = 0;   // of an element
  double activation_ = 0;  // likewise
  bool has_any_ = false;
};

// Where the ends of stages are, `step` of `steps` on the way from one division to another: each
// stage keeps a run, as it has one at both ends of the way.
std::vector<Range> between(const std::vector<Range>& from, const std::vector<Range>& to,
                           std::int64_t step, std::int64_t steps) {
  std::vector<Range> cuts;
  std::int64_t begin = 0;
  for (std::size_t stage = 0; stage < from.size(); ++stage) {
    const std::int64_t end = (from[stage].end * (steps - step) + to[stage].end * step) / steps;
    cuts.push_back({begin, end});
    begin = end;
  }
  return cuts;
}

// What all runs take, each where it takes least of a room: no division takes less.
std::int64_t least_of_all(const StagedRanks& ranks) {
  std::vector<std::int64_t> least;
  for (const auto& rank : ranks.ticks) {
    for (const std::vector<std::int64_t>& place : rank) {
      if (least.empty()) least = place;
      std::ranges::transform(place, least, least.begin(),
                             [](std::int64_t a, std::int64_t b) { return std::min(a, b); });
    }
  }
  return std::accumulate(least.begin(), least.end(), std::int64_t{0});
}

}  // namespace

Result<std::vector<std::vector<int>>> roomy_stages(const MeshProblem& problem,
                                                   const MeshChoice& choice,
                                                   std::span<const MeshRankMemory> memory,
                                                   std::span<const std::int64_t> rooms) {
  std::vector<std::vector<int>> found;
  if (choice.pp == 1) return found;
  GW_ASSIGN(const StageRuns runs, StageRuns::of(problem, choice));
  GW_ASSIGN(const Layers layers, layers_of(problem, choice));
  std::vector<RankRoom> takes;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    takes.emplace_back(layers, runs, memory[rank], rooms[rank]);
    if (!takes.back().has_any()) return found;
  }
  const StagedRanks ranks = runs.ranks([&](std::size_t rank, std::size_t place, std::size_t layer) {
    return takes[rank].takes(runs.stages()[rank][place], layer);
  });
  // The estimate of a rank that is just too full may be wrong.
  constexpr std::int64_t kNearly = kRoom + kRoom / 10;
  if (least_of_all(ranks) > kNearly * choice.pp) return found;
  GW_ASSIGN(const std::vector<Range> even, even_division(ranks, runs.chosen()));
  if (slowest_rank(ranks, even) > kNearly) return found;
  constexpr std::int64_t kSteps = 16;
  for (std::int64_t step = 1; step < kSteps; ++step) {
    const std::vector<Range> cuts = between(runs.chosen(), even, step, kSteps);
    if (slowest_rank(ranks, cuts) > kRoom || cuts == runs.chosen()) continue;
    found.push_back(runs.layers(cuts));
    break;
  }
  std::vector<int> last = runs.layers(even);
  const bool known = even == runs.chosen() || (!found.empty() && found.front() == last);
  if (!known) found.push_back(std::move(last));
  return found;
}

}  // namespace gradwire
