#include "collectives/cost/choice.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "base/forks.h"

namespace gradwire {
namespace {

// A model knows no more than this. Among equals one with fixed neighbours comes first: between
// partners that change, congestion control starts anew each time, and at 16 MiB over 1 Gbit/s an
// all-gather of 4 ranks by recursive doubling takes 110 ms under BBR where the ring takes 107.
constexpr double kAsGood = 1.01;

// A choice is waited for: more steps of ranks that differ are made fewer, as cost_of() says, and
// pipelines of more than about 1500 ranks are left out. Few cuts in flight do not fill trees of
// that depth: on 4096 ranks they take more than twice as long as halving and doubling.
constexpr std::int64_t kMostStepsOfChoice = 150'000;

// Rows so long that an all-to-all of a few ranks sends them all at once. Pairwise has each link to
// one message at a time only while ranks keep step; long rows give them time to drift, two messages
// then share a link while another idles, and nothing brings them together again: 4 ranks at 1
// Gbit/s took 650 to 690 ms for 64 MiB (450 to 520 directly) and 113 or 170 ms, by turns, for 16
// MiB (115 to 122); at 4 MiB 28 to 30 (29 to 33). Simulated ranks keep step.
constexpr std::int64_t kLongRow = std::int64_t{2} << 20;
constexpr int kFewRanks = 8;  // more senders at once were not measured: they may overrun a port

constexpr int kDigits = 4;

std::int64_t rounded_down(std::int64_t bytes) {
  const int width = std::bit_width(static_cast<std::uint64_t>(bytes));
  const int dropped = std::max(0, width - kDigits);
  return (bytes >> dropped) << dropped;
}

// Starts and bytes of different messages pass each other: with half of the smaller, all-reduces of
// 1 KiB to 1 MiB by six algorithms came out within a third, over loopback and links of 1 and 10
// Gbit/s, 2 and 4 ranks on 2 processors; with all or nothing of it some were twice as far off.
constexpr double kSeenOfSmaller = 0.5;

// What all ranks together take, if they are in each other's way.
struct Shares {
  double starts = 0;
  double work = 0;
};

Shares shares_of(const CostQuestion& question, const Simulation& simulated) {
  const LinkModel& links = question.links;
  const bool together = question.nodes == 1;
  const bool alike = together || question.nodes == question.ranks;
  if (!alike || (links.contention <= 1 && links.contention_beta <= 1) ||
      question.ranks > kMostContenders) {
    return {};
  }
  const double alpha = together ? links.alpha_intra : links.alpha;
  const double beta = together ? links.beta_intra : links.beta;
  const double gamma = links.contention_beta > 1 ? links.gamma : 0;
  const auto messages = static_cast<double>(simulated.all_messages);
  const double work = links.contention_beta * beta * static_cast<double>(simulated.all_sent) +
                      gamma * static_cast<double>(simulated.all_reduced);
  return {links.contention * alpha * messages / question.ranks, work / question.ranks};
}

struct Candidate {
  std::string_view algorithm;
  double least = 0;  // seconds that it takes at least
  double seconds = std::numeric_limits<double>::infinity();
  Simulation simulated = {};
};

// Between two ranks nothing is passed on and nothing is shared: a pipeline's cuts are more messages
// of the same bytes, and a scattered reduction more bytes. Simulated, they hide some additions;
// over loopback a reduce of 4 MiB took 1.2 to 2.4 ms that way and 0.6 to 1.4 ms in one message, an
// all-reduce of 1 MiB as long by double trees as directly.
void leave_single_messages(const CostQuestion& question, std::vector<Candidate>& some) {
  if (question.ranks != 2 || some.empty()) return;
  const auto sent = [](const Candidate& one) { return one.simulated.all_sent; };
  const std::int64_t least = sent(*std::ranges::min_element(some, {}, sent));
  std::erase_if(some, [&](const Candidate& one) {
    return sent(one) > least || is_pipeline(question.collective, one.algorithm);
  });
}

// Those that take no more than kAsGood as long as the best, pipelines, which send more messages,
// last. Simulated are those that may be among them, the most promising first.
std::vector<Candidate> best_of(const CostQuestion& question, bool counted) {
  std::vector<Candidate> all;
  for (const std::string_view name : algorithms_of(question.collective, counted)) {
    all.push_back({name, least_time(question, name).seconds()});
  }
  std::vector<Candidate*> order;
  for (Candidate& one : all) order.push_back(&one);
  std::ranges::stable_sort(order, {}, &Candidate::least);
  double best = std::numeric_limits<double>::infinity();
  for (Candidate* const one : order) {
    if (question.ranks > 2 && one->least > best * kAsGood) break;
    const auto cost = cost_of(question, one->algorithm, kMostStepsOfChoice);
    if (!cost.has_value()) continue;
    one->simulated = cost.value();
    one->seconds = expected_seconds(question, one->simulated);
    best = std::min(best, one->seconds);
  }
  leave_single_messages(question, all);
  const double least = std::ranges::min(all, {}, &Candidate::seconds).seconds;
  std::erase_if(all, [&](const Candidate& one) { return !(one.seconds <= least * kAsGood); });
  // clang 14 lacks the ranges form.
  std::stable_partition(all.begin(), all.end(), [&](const Candidate& one) {
    return !is_pipeline(question.collective, one.algorithm);
  });
  return all;
}

// What all groups of the process asked.
template <typename Value>
struct Known {
  const ForkMark mark;
  std::mutex mutex;
  std::map<std::tuple<OpKind, int, int, std::int64_t, std::int64_t, std::vector<double>,
                      std::string_view>,
           Value>
      values;
};

// A child of fork() begins anew: what it finds may be half changed, and locked for good.
template <typename Value, typename Find>
Value remembered(const CostQuestion& q, std::string_view what, const Find& find) {
  static std::atomic<Known<Value>*> made{new Known<Value>};  // for the process's life
  if (made.load()->mark.in_child()) made = new Known<Value>;
  Known<Value>& known = *made;
  const LinkModel& l = q.links;
  const std::scoped_lock lock(known.mutex);
  const auto [entry, is_new] =
      known.values.try_emplace({q.collective,
                                q.ranks,
                                q.nodes,
                                q.bytes,
                                q.segment_bytes,
                                {l.alpha, l.beta, l.gamma, l.alpha_intra, l.beta_intra, l.gap,
                                 l.contention, l.contention_beta},
                                what});
  if (is_new) entry->second = find();
  return entry->second;
}

}  // namespace

double expected_seconds(const CostQuestion& question, const Simulation& simulated) {
  const auto [starts, work] = shares_of(question, simulated);
  const double together = std::max(starts, work) + kSeenOfSmaller * std::min(starts, work);
  return std::max(simulated.time.seconds(), together);
}

bool mostly_turns(const CostQuestion& question, const Simulation& simulated) {
  const auto [starts, work] = shares_of(question, simulated);
  return question.links.contention > 1 && starts > 0 && work <= 2 * starts;
}

std::string_view choose_algorithm(const CostQuestion& question, bool counted) {
  if (question.ranks == 1) return algorithms_of(question.collective, counted).front();
  const std::vector<Candidate> best = best_of(question, counted);
  if (best.empty()) return algorithms_of(question.collective, counted).front();
  if (question.collective == OpKind::kAllToAll && question.ranks <= kFewRanks &&
      question.bytes / question.ranks >= kLongRow) {
    const auto direct = std::ranges::find(best, "direct", &Candidate::algorithm);
    if (direct != best.end()) return direct->algorithm;
  }
  if (!mostly_turns(question, best.front().simulated)) return best.front().algorithm;
  const auto rounds = [](const Candidate& one) { return one.simulated.rounds; };
  return std::ranges::min_element(best, {}, rounds)->algorithm;
}

std::vector<Crossover> crossovers(CostQuestion question, std::int64_t min_bytes,
                                  std::int64_t max_bytes) {
  const auto at = [&](std::int64_t bytes) {
    question.bytes = bytes;
    return choose_algorithm(question);
  };
  std::vector<Crossover> found{{min_bytes, at(min_bytes)}};
  for (std::int64_t low = min_bytes; low < max_bytes;) {
    const std::int64_t high = std::min(max_bytes, 4 * low);
    const std::string_view after = at(high);
    if (after != found.back().algorithm) {
      std::int64_t old_side = low;
      std::int64_t new_side = high;
      while (true) {
        const std::int64_t middle = rounded_down(old_side + (new_side - old_side) / 2);
        if (middle <= old_side) break;
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

AlgorithmChoice::AlgorithmChoice(int ranks, const LinkModel& links, std::int64_t segment_bytes,
                                 std::span<const int> node_of) {
  const std::set<int> nodes(node_of.begin(), node_of.end());
  question_ = {.ranks = ranks,
               .nodes = nodes.empty() ? ranks : static_cast<int>(nodes.size()),
               .links = links,
               .segment_bytes = segment_bytes};
}

std::string_view AlgorithmChoice::choose(OpKind collective, std::int64_t bytes, bool counted) {
  const std::int64_t size = rounded_down(std::max<std::int64_t>(bytes, 0));
  const std::uint64_t key = (static_cast<std::uint64_t>(size) << 8) |
                            (static_cast<std::uint64_t>(collective) << 1) | (counted ? 1 : 0);
  const auto [entry, is_new] = known_.try_emplace(key);
  if (is_new) {
    question_.collective = collective;
    question_.bytes = size;
    entry->second = remembered<std::string_view>(
        question_, counted ? "counted" : "", [&] { return choose_algorithm(question_, counted); });
  }
  return entry->second;
}

std::int64_t AlgorithmChoice::segment_bytes(OpKind collective, std::int64_t bytes,
                                            std::string_view algorithm) {
  if (question_.ranks == 1 || !is_pipeline(collective, algorithm)) return 0;
  const std::int64_t size = rounded_down(std::max<std::int64_t>(bytes, 0));
  const auto [entry, is_new] = segments_.try_emplace({collective, size, algorithm});
  if (is_new) {
    question_.collective = collective;
    question_.bytes = size;
    entry->second = remembered<std::int64_t>(question_, algorithm, [&] {
      const auto cost = cost_of(question_, algorithm, kMostStepsOfChoice);
      return cost.has_value() ? cost.value().segment_bytes : 0;
    });
  }
  return entry->second;
}

}  // namespace gradwire
