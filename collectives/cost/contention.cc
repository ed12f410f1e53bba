#include "collectives/cost/contention.h"

#include <algorithm>
#include <vector>

namespace gradwire {
namespace {

// Starts and bytes of different messages pass each other: with half of the smaller, all-reduces of
// 1 KiB to 1 MiB by six algorithms came out within a third, over loopback and links of 1 and 10
// Gbit/s, 2 and 4 ranks on 2 processors; with all or nothing of it some were twice as far off.
constexpr double kSeenOfSmaller = 0.5;

}  // namespace

Traffic traffic_of(const CostQuestion& question, std::string_view algorithm) {
  std::vector<int> node_of;
  for (int rank = 0; rank < question.ranks; ++rank) {
    node_of.push_back(static_cast<int>(std::int64_t{rank} * question.nodes / question.ranks));
  }
  Traffic traffic;
  for (int rank = 0; rank < question.ranks; ++rank) {
    const Schedule schedule = make_schedule({.collective = question.collective,
                                             .algorithm = algorithm,
                                             .rank = rank,
                                             .size = question.ranks,
                                             .elems = elems_of(question),
                                             .node_of = node_of,
                                             .levels = question.levels});
    for (const Round& round : schedule.rounds) {
      for (const Step& step : round) {
        if (step.op == Step::Op::kSend) {
          ++traffic.messages;
          traffic.bytes += step.from.range.size() * question.elem_bytes;
        } else if (step.op == Step::Op::kRecvReduce || step.op == Step::Op::kReduce) {
          traffic.reduced += step.to.range.size() * question.elem_bytes;
        }
      }
    }
  }
  return traffic;
}

namespace {

// What all ranks together take for their messages' starts, and for the rest.
struct Shares {
  ExactTime starts;
  ExactTime work;
};

// None where ranks are in nobody's way, or nothing is known about it.
std::optional<Shares> shares_of(const CostQuestion& question, std::string_view algorithm) {
  const LinkModel& links = question.links;
  const bool together = question.nodes == 1;
  const bool alike = together || question.nodes == question.ranks;
  if (!alike || (links.contention <= 1 && links.contention_beta <= 1) || question.ranks < 2 ||
      question.ranks > kMostContenders) {
    return std::nullopt;
  }
  const Traffic traffic = traffic_of(question, algorithm);
  const double alpha = together ? links.alpha_intra : links.alpha;
  const double beta = together ? links.beta_intra : links.beta;
  const ExactTime starts =
      traffic.messages * ExactTime::from_seconds(links.contention * alpha / question.ranks);
  ExactTime work =
      traffic.bytes * ExactTime::from_seconds(links.contention_beta * beta / question.ranks);
  if (links.contention_beta > 1) {
    work += traffic.reduced * ExactTime::from_seconds(links.gamma / question.ranks);
  }
  return Shares{starts, work};
}

}  // namespace

bool mostly_turns(const CostQuestion& question, std::string_view algorithm) {
  const auto shares = shares_of(question, algorithm);
  return shares && question.links.contention > 1 && shares->work <= 2 * shares->starts;
}

ExactTime expected_time(const CostQuestion& question, const Cost& cost,
                        std::string_view algorithm) {
  const LinkModel& links = question.links;
  const auto shares = shares_of(question, algorithm);
  if (!shares) return time_of(cost.terms, links);
  const auto [starts, work] = *shares;
  const double smaller = std::min(starts, work).seconds();
  const ExactTime together_take =
      std::max(starts, work) + ExactTime::from_seconds(smaller * kSeenOfSmaller);
  return std::max(time_of(cost.terms, links), together_take);
}

}  // namespace gradwire
