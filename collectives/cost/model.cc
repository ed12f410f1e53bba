#include "collectives/cost/model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "collectives/cost/contention.h"
#include "collectives/cost/forms.h"

namespace gradwire {
namespace {

// A model knows no more than this. Among equals one with fixed neighbours comes first: between
// partners that change, congestion control starts anew each time, and at 16 MiB over 1 Gbit/s an
// all-gather of 4 ranks by recursive doubling takes 110 ms under BBR where the ring takes 107.
constexpr double kAsGood = 1.01;

// Rows so long that an all-to-all of a few ranks sends them all at once. Pairwise has each link to
// one message at a time only while ranks keep step; long rows give them time to drift, two messages
// then share a link while another idles, and nothing brings them together again: 4 ranks at 1
// Gbit/s took 650 to 690 ms for 64 MiB (450 to 520 directly) and 113 or 170 ms, by turns, for 16
// MiB (115 to 122); at 4 MiB 28 to 30 (29 to 33).
constexpr std::int64_t kLongRow = std::int64_t{2} << 20;
constexpr int kFewRanks = 8;  // more senders at once were not measured: they may overrun a port

bool better_all_at_once(const CostQuestion& question) {
  return question.collective == OpKind::kAllToAll && question.ranks <= kFewRanks &&
         question.bytes / question.ranks >= kLongRow;
}

// Whether `bytes` of a question are those of all ranks' rows.
bool has_rows(OpKind collective) {
  return collective == OpKind::kReduceScatter || collective == OpKind::kAllGather ||
         collective == OpKind::kAllToAll || collective == OpKind::kGather ||
         collective == OpKind::kScatter;
}

// How long it takes until all of p ranks know what one knew: whoever knows tells the next one every
// `gap`, who knows after `alpha`.
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

}  // namespace

std::int64_t elems_of(const CostQuestion& question) {
  if (question.collective == OpKind::kBarrier || question.bytes <= 0) return 0;
  const std::int64_t rows = has_rows(question.collective) ? question.ranks : 1;
  return std::max<std::int64_t>(1, question.bytes / (rows * question.elem_bytes));
}

CostTerms& CostTerms::operator+=(const CostTerms& other) {
  alphas += other.alphas;
  beta_bytes += other.beta_bytes;
  alphas_intra += other.alphas_intra;
  beta_intra_bytes += other.beta_intra_bytes;
  gamma_bytes += other.gamma_bytes;
  gaps += other.gaps;
  gaps_intra += other.gaps_intra;
  return *this;
}

ExactTime time_of(const CostTerms& terms, const LinkModel& links) {
  return terms.alphas * ExactTime::from_seconds(links.alpha) +
         terms.beta_bytes * ExactTime::from_seconds(links.beta) +
         terms.alphas_intra * ExactTime::from_seconds(links.alpha_intra) +
         terms.beta_intra_bytes * ExactTime::from_seconds(links.beta_intra) +
         terms.gamma_bytes * ExactTime::from_seconds(links.gamma) +
         terms.gaps * ExactTime::from_seconds(links.gap * links.alpha) +
         terms.gaps_intra * ExactTime::from_seconds(links.gap * links.alpha_intra);
}

namespace {

std::optional<Cost> whole_cost(const CostQuestion& question, const CostShape& shape,
                               std::string_view algorithm) {
  switch (question.collective) {
    case OpKind::kAllReduce: return all_reduce_cost(shape, algorithm);
    case OpKind::kReduceScatter: return reduce_scatter_cost(shape, algorithm);
    case OpKind::kAllGather: return all_gather_cost(shape, algorithm);
    case OpKind::kAllToAll: return all_to_all_cost(shape, algorithm);
    case OpKind::kBroadcast: return broadcast_cost(shape, algorithm);
    case OpKind::kBarrier: return barrier_cost(shape, algorithm);
    case OpKind::kReduce: return reduce_cost(shape, algorithm);
    case OpKind::kGather: return gather_cost(shape, algorithm);
    case OpKind::kScatter: return scatter_cost(shape, algorithm);
    case OpKind::kExclusiveScan: return exclusive_scan_cost(shape, algorithm);
    case OpKind::kSend: return send_recv_cost(shape, algorithm);
    default: return std::nullopt;  // has no schedules of its own (op_traits.h)
  }
}

}  // namespace

std::optional<Cost> cost_of(const CostQuestion& question, std::string_view algorithm) {
  if (question.ranks == 1) return Cost{.exact = true};
  std::optional<Cost> cost = whole_cost(question, CostShape(question), algorithm);
  const std::int64_t segment = question.segment_bytes;
  if (!cost || segment <= 0 || cost->cell_bytes <= segment) return cost;
  // One cut's reductions are seen; the others' run while the next cut travels, unless reducing is
  // what takes longer.
  const CostTerms reduced = gamma_of(cost->terms.gamma_bytes);
  CostTerms moved = cost->terms;
  moved.gamma_bytes = 0;
  if (time_of(reduced, question.links) < time_of(moved, question.links)) {
    cost->terms.gamma_bytes = cost->terms.gamma_bytes / cost->cell_bytes * segment;
  }
  cost->exact = false;
  return cost;
}

ExactTime lower_bound(const CostQuestion& question) {
  const CostShape shape(question);
  if (shape.p == 1) return {};
  const LinkModel& links = shape.links;
  const bool one_node = shape.nodes == 1;
  const bool apart = shape.per_node == 1;
  const double alpha = one_node ? links.alpha_intra
                       : apart  ? links.alpha
                                : std::min(links.alpha, links.alpha_intra);
  const double beta = one_node ? links.beta_intra
                      : apart  ? links.beta
                               : std::min(links.beta, links.beta_intra);
  // A neighbour alone has to know.
  const std::int64_t told = question.collective == OpKind::kSend ? 2 : shape.p;
  const ExactTime latency =
      telling_all(told, ExactTime::from_seconds(alpha), ExactTime::from_seconds(links.gap * alpha));
  // What enters or leaves one rank, and one node through all its ports together: all of a tensor
  // once, or (p-1)/p of it twice for an all-reduce.
  const bool rows = has_rows(question.collective);
  const bool twice = question.collective == OpKind::kAllReduce;
  const std::int64_t total = rows ? shape.p * shape.m : shape.m;
  const auto share = [&](std::int64_t parts) {
    const std::int64_t moved = rows || twice ? total * (parts - 1) : total * parts;
    return (twice ? 2 : 1) * moved / parts;
  };
  const ExactTime port = share(shape.p) * ExactTime::from_seconds(beta);
  ExactTime node;
  if (!one_node) node = share(shape.nodes) / shape.per_node * ExactTime::from_seconds(links.beta);
  return std::max({latency, port, node});
}

std::string_view choose_algorithm(const CostQuestion& question, bool counted) {
  const std::vector<std::string_view> known = algorithms_of(question.collective, counted);
  struct Candidate {
    std::string_view algorithm;
    double seconds;
    int rounds;
  };
  std::vector<Candidate> candidates;
  double least = std::numeric_limits<double>::infinity();
  for (const std::string_view algorithm : known) {
    const std::optional<Cost> cost = cost_of(question, algorithm);
    if (!cost) continue;
    const double seconds = expected_time(question, *cost, algorithm).seconds();
    candidates.push_back({algorithm, seconds, cost->rounds});
    least = std::min(least, seconds);
  }
  std::erase_if(candidates, [&](const Candidate& one) { return one.seconds > least * kAsGood; });
  if (candidates.empty()) return known.front();
  if (better_all_at_once(question)) {
    const auto direct = std::ranges::find(candidates, "direct", &Candidate::algorithm);
    if (direct != candidates.end()) return direct->algorithm;
  }
  if (!mostly_turns(question, candidates.front().algorithm)) return candidates.front().algorithm;
  return std::ranges::min_element(candidates, {}, &Candidate::rounds)->algorithm;
}

std::vector<Crossover> crossovers(CostQuestion question, std::int64_t min_bytes,
                                  std::int64_t max_bytes) {
  const auto at = [&](std::int64_t bytes) {
    question.bytes = bytes;
    return choose_algorithm(question);
  };
  std::vector<Crossover> found{{min_bytes, at(min_bytes)}};
  // Whole elements on every rank, so that rounding does not decide.
  const std::int64_t step = question.ranks * question.elem_bytes;
  for (std::int64_t low = min_bytes; low < max_bytes;) {
    const std::int64_t high = std::min(max_bytes, 2 * low);
    const std::string_view after = at(high);
    if (after != found.back().algorithm) {
      std::int64_t old_side = low;
      std::int64_t new_side = high;
      while (new_side - old_side > step) {
        const std::int64_t middle = old_side + (new_side - old_side) / 2;
        (at(middle) == found.back().algorithm ? old_side : new_side) = middle;
      }
      found.push_back({new_side, at(new_side)});
      if (found.back().algorithm != after) {
        low = new_side;
        continue;
      }
    }
    low = high;
  }
  return found;
}

}  // namespace gradwire
