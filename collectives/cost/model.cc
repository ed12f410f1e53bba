#include "collectives/cost/model.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

constexpr std::int64_t kMostCuts = 64;
constexpr std::int64_t kLeastCut = 4096;  // bytes
// Of a pipeline's cuts: so many steps, and at most so many sets, are simulated first, then twice as
// many; the difference says what the others take.
constexpr std::int64_t kStepsOfCuts = 4000;
constexpr std::int64_t kMostSets = 4;

// Whether `bytes` of a question are those of all ranks' rows.
bool has_rows(OpKind collective) { return traits_of(collective).blocks != Blocks::kNone; }

std::int64_t ranks_of_node(const CostQuestion& question) {
  return (question.ranks + question.nodes - 1) / question.nodes;
}

std::int64_t bytes_of(const CostQuestion& question, std::int64_t elems) {
  return elems * question.elem_bytes * (has_rows(question.collective) ? question.ranks : 1);
}

// How long it takes until all of p ranks know what one knew: each rank that knows tells another one
// every `gap`, who knows after `alpha`.
ExactTime telling_all(std::int64_t p, ExactTime alpha, ExactTime gap) {
  std::priority_queue<ExactTime, std::vector<ExactTime>, std::greater<>> free;
  free.push(ExactTime());
  ExactTime last;
  for (std::int64_t told = 1; told < p; ++told) {
    const ExactTime start = free.top();
    free.pop();
    last = std::max(last, start + alpha);
    free.push(start + gap);
    free.push(start + alpha);
  }
  return last;
}

ScheduleOf schedules_of(const CostQuestion& question, std::string_view algorithm,
                        const std::vector<int>& node_of) {
  // Where no two ranks share a node, nothing says what the levels are.
  std::vector<int> levels;
  if (question.nodes == question.ranks) levels = prime_factors(question.ranks);
  return [&question, algorithm, &node_of, levels](int rank) {
    return make_schedule({.collective = question.collective,
                          .algorithm = algorithm,
                          .rank = rank,
                          .size = question.ranks,
                          .elems = elems_of(question),
                          .node_of = node_of,
                          .levels = levels});
  };
}

std::int64_t steps_of(const TimedJob& job) {
  std::int64_t steps = 1;
  for (const TimedProgram& one : job.programs) steps += static_cast<std::int64_t>(one.steps.size());
  return steps;
}

// Of a pipeline in cuts of options.segment_bytes, as many in flight as the executor has. Of many
// some are simulated: once all slots are taken, each further set of cuts takes the same.
Result<Simulation> simulate_cuts(const TimedJob& job, SimulationOptions options,
                                 std::int64_t cuts) {
  const std::int64_t few = std::clamp<std::int64_t>(kStepsOfCuts / steps_of(job), 1, kMostSets);
  options.most_cuts = static_cast<int>(few) * options.slots;
  if (cuts <= 3 * options.most_cuts) {
    options.most_cuts = 0;
    return simulate(job, options);
  }
  GW_ASSIGN(const Simulation first, simulate(job, options));
  options.most_cuts *= 2;
  GW_ASSIGN(Simulation both, simulate(job, options));
  both.time += (cuts - options.most_cuts) * (both.time - first.time) / (options.most_cuts / 2);
  return both;
}

// Of a pipeline, in more and more cuts until that makes it slower.
Result<AlgorithmCost> best_of_cuts(const CostQuestion& question, const TimedJob& job,
                                   SimulationOptions options) {
  std::int64_t largest = 0;  // elements
  for (const TimedProgram& one : job.programs) largest = std::max(largest, one.largest);
  const std::int64_t bytes = largest * question.elem_bytes;
  const bool executed = question.segment_bytes > 0;
  AlgorithmCost best;
  const std::int64_t fewest =
      executed ? std::max<std::int64_t>(1, (bytes - 1) / question.segment_bytes + 1) : 1;
  for (std::int64_t cuts = fewest; cuts == fewest || executed || cuts <= kMostCuts; cuts *= 2) {
    if (cuts > fewest && bytes / cuts < kLeastCut) break;
    options.segment_bytes = cuts == 1 ? 0 : (largest + cuts - 1) / cuts * question.elem_bytes;
    GW_ASSIGN(const Simulation found, simulate_cuts(job, options, cuts));
    if (cuts > fewest && found.time >= best.time) break;
    best = {found, options.segment_bytes, false};
  }
  return best;
}

Result<AlgorithmCost> simulated(const CostQuestion& question, std::string_view algorithm,
                                std::int64_t most_steps) {
  SimulationOptions options{.links = question.links, .elem_bytes = question.elem_bytes};
  const std::vector<int> node_of = blocks_of_ranks(question.ranks, question.nodes);
  GW_ASSIGN(const TimedJob job, compile(question.ranks, schedules_of(question, algorithm, node_of),
                                        node_of, true, most_steps));
  if (is_pipeline(question.collective, algorithm)) {
    if (2 * options.slots * steps_of(job) > most_steps) {
      return Status(Code::kUnsupported, "cost: too many cuts of too many ranks");
    }
    return best_of_cuts(question, job, options);
  }
  options.overlap_bytes = question.segment_bytes;
  GW_ASSIGN(const Simulation found, simulate(job, options));
  return AlgorithmCost{found, 0, false};
}

// To a question with fewer steps that is near; false if there is none.
bool simplify(CostQuestion& question, bool& is_estimate) {
  const std::int64_t elems = elems_of(question);
  const bool rows = has_rows(question.collective);
  const std::int64_t over = rows ? 0 : elems % question.ranks;
  if (over > 0) {
    question.bytes = bytes_of(question, elems + question.ranks - over);
    return true;
  }
  if (question.nodes == 1 || question.nodes == question.ranks) return false;
  is_estimate = true;
  if (question.ranks % question.nodes != 0) {
    question.ranks = static_cast<int>(ranks_of_node(question)) * question.nodes;
  } else {
    question.nodes = question.ranks;
  }
  question.bytes = bytes_of(question, elems);
  return true;
}

}  // namespace

std::int64_t elems_of(const CostQuestion& question) {
  if (question.collective == OpKind::kBarrier || question.bytes <= 0) return 0;
  const std::int64_t rows = has_rows(question.collective) ? question.ranks : 1;
  return std::max<std::int64_t>(1, question.bytes / (rows * question.elem_bytes));
}

Result<AlgorithmCost> cost_of(const CostQuestion& question, std::string_view algorithm,
                              std::int64_t most_steps) {
  if (question.ranks == 1) return AlgorithmCost{};
  CostQuestion asked = question;
  bool is_estimate = false;
  Result<AlgorithmCost> found = simulated(asked, algorithm, most_steps);
  while (!found.has_value() && found.error().code() == Code::kUnsupported) {
    const bool simpler = simplify(asked, is_estimate);
    const bool hurries = most_steps < kMostStepsOfAlgorithm;
    const bool gives_up = hurries && is_pipeline(question.collective, algorithm);
    if (!simpler && (most_steps == kMostSteps || gives_up)) break;
    if (!simpler) most_steps = kMostSteps;
    found = simulated(asked, algorithm, most_steps);
  }
  if (found.has_value()) found.value().is_estimate = is_estimate;
  return found;
}

ExactTime least_time(const CostQuestion& question, std::string_view algorithm) {
  if (question.ranks == 1) return {};
  const int last_of_node = static_cast<int>(ranks_of_node(question)) - 1;
  const std::vector<int> node_of = blocks_of_ranks(question.ranks, question.nodes);
  const auto schedule_of = schedules_of(question, algorithm, node_of);
  SimulationOptions options{.links = question.links, .elem_bytes = question.elem_bytes};
  options.overlap_bytes = question.segment_bytes;
  if (is_pipeline(question.collective, algorithm)) {  // whose rounds overlap: bytes alone
    options.overlap_bytes = 1;
    options.links.alpha = options.links.alpha_intra = 0;
  }
  ExactTime most;
  for (const int rank : {0, 1, last_of_node, question.ranks - 1}) {
    TimedProgram program = program_of(schedule_of(rank), node_of);
    if (is_pipeline(question.collective, algorithm)) {
      program.round_ends = {static_cast<std::uint32_t>(program.steps.size())};
    }
    most = std::max(most, least_time(program, options));
  }
  return most;
}

ExactTime lower_bound(const CostQuestion& question) {
  const std::int64_t ranks = question.ranks;
  if (ranks == 1) return {};
  const LinkModel& links = question.links;
  const std::int64_t per_node = ranks_of_node(question);
  const bool one_node = question.nodes == 1;
  const bool apart = per_node == 1;
  const double alpha = one_node ? links.alpha_intra
                       : apart  ? links.alpha
                                : std::min(links.alpha, links.alpha_intra);
  const double beta = one_node ? links.beta_intra
                      : apart  ? links.beta
                               : std::min(links.beta, links.beta_intra);
  // A neighbour alone has to know.
  const std::int64_t told = question.collective == OpKind::kSend ? 2 : ranks;
  const ExactTime latency =
      telling_all(told, ExactTime::from_seconds(alpha), ExactTime::from_seconds(links.gap * alpha));
  // What enters or leaves one rank, and one node through all its ports together: all of a tensor
  // once, or (p-1)/p of it twice for an all-reduce.
  const bool rows = has_rows(question.collective);
  const bool twice = question.collective == OpKind::kAllReduce;
  const std::int64_t total = elems_of(question) * question.elem_bytes * (rows ? ranks : 1);
  const auto share = [&](std::int64_t parts) {
    const std::int64_t moved = rows || twice ? total * (parts - 1) : total * parts;
    return (twice ? 2 : 1) * moved / parts;
  };
  const ExactTime port = share(ranks) * ExactTime::from_seconds(beta);
  ExactTime node;
  if (!one_node) node = share(question.nodes) / per_node * ExactTime::from_seconds(links.beta);
  return std::max({latency, port, node});
}

}  // namespace gradwire
