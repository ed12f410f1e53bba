#include "collectives/cost/simulation.h"

#include "collectives/cost/forms.h"

namespace gradwire {

Result<Simulation> simulate_algorithm(const CostQuestion& question, std::string_view algorithm) {
  SimulationOptions options;
  options.links = question.links;
  options.most_steps = kMostStepsOfAlgorithm;
  options.elem_bytes = question.elem_bytes;
  options.node_of = blocks_of_ranks(question.ranks, question.nodes);
  const std::vector<int> levels = CostShape(question).levels;
  if (const auto cost = cost_of(question, algorithm); cost && cost->segment_bytes > 0) {
    options.segment_bytes = cost->segment_bytes;
    options.slots = kMostSimulatedSlots;
  }
  const std::int64_t elems = elems_of(question);
  const auto run = [&](std::int64_t n) {
    return simulate(
        question.ranks,
        [&](int rank) {
          return make_schedule({.collective = question.collective,
                                .algorithm = algorithm,
                                .rank = rank,
                                .size = question.ranks,
                                .elems = n,
                                .node_of = options.node_of,
                                .levels = levels});
        },
        options);
  };
  Result<Simulation> exact = run(elems);
  const bool divides = elems % question.ranks == 0;
  if (exact.has_value() || exact.error().code() != Code::kUnsupported || divides) return exact;
  // Only where the closed form says that the longer tensor takes the same.
  CostQuestion longer = question;
  longer.bytes += question.ranks * question.elem_bytes -
                  question.bytes % (question.ranks * question.elem_bytes);
  const auto cost = cost_of(question, algorithm);
  const auto cost_of_longer = cost_of(longer, algorithm);
  if (!cost || !cost_of_longer || cost->terms != cost_of_longer->terms) return exact;
  return run(elems_of(longer));
}

}  // namespace gradwire
