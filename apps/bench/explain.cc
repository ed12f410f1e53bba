#include "apps/bench/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "collectives/cost/choice.h"
#include "collectives/engine/executor.h"

namespace gradwire {
namespace {

constexpr std::array kNumbers{&LinkModel::alpha,       &LinkModel::beta,       &LinkModel::gamma,
                              &LinkModel::alpha_intra, &LinkModel::beta_intra, &LinkModel::gap};

constexpr std::array kOperations{
    std::pair{OpKind::kAllReduce, OpKind::kAllReduce},
    std::pair{OpKind::kReduceScatter, OpKind::kReduceScatter},
    std::pair{OpKind::kAllGather, OpKind::kAllGather},
    std::pair{OpKind::kAllToAll, OpKind::kAllToAll},
    std::pair{OpKind::kBroadcast, OpKind::kBroadcast},
    std::pair{OpKind::kReduce, OpKind::kReduce},
    std::pair{OpKind::kGather, OpKind::kGather},
    std::pair{OpKind::kScatter, OpKind::kScatter},
    std::pair{OpKind::kExclusiveScan, OpKind::kExclusiveScan},
    std::pair{OpKind::kBarrier, OpKind::kBarrier},
};

std::string links_line(const LinkModel& links) {
  return format("link parameters: alpha %.4g us, beta %.4g ns/B, gamma %.4g ns/B, gap %.3g; ",
                links.alpha * 1e6, links.beta * 1e9, links.gamma * 1e9, links.gap) +
         format("contention: alpha x %.3g, beta x %.3g; ", links.contention,
                links.contention_beta) +
         format("inside a node alpha %.4g us, beta %.4g ns/B; ", links.alpha_intra * 1e6,
                links.beta_intra * 1e9) +
         "predicted us, * chosen by auto\n";
}

}  // namespace

LinkFlags unset_links() {
  LinkFlags flags;
  for (const auto number : kNumbers) flags.given.*number = -1;
  return flags;
}

void add_link_flags(Flags& flags, LinkFlags& links) {
  const std::string unset = "measured once and cached for a week (GRADWIRE_LINKS)";
  flags.group("Link parameters");
  flags.toggle("explain", links.explain, "predicted time of every algorithm, printed first");
  flags.toggle("calibrate", links.measure, "new measurement of the link parameters");
  flags.alias("measure", "calibrate");
  flags.number("alpha", links.given.alpha, {0, 1e3}, "latency of a message, in seconds", unset);
  flags.number("beta", links.given.beta, {0, 1}, "transfer time per byte, in seconds", unset);
  flags.number("gamma", links.given.gamma, {0, 1}, "reduction time per byte, in seconds", unset);
  flags.number("alpha-intra", links.given.alpha_intra, {0, 1e3},
               "latency of a message inside a node, in seconds", "--alpha, where given");
  flags.number("beta-intra", links.given.beta_intra, {0, 1},
               "transfer time per byte inside a node, in seconds", "--beta, where given");
  flags.number("gap", links.given.gap, {0, 1},
               "fraction of alpha for which a message occupies its ports", "1");
}

void use_given_links(Communicator& communicator, const LinkFlags& flags) {
  LinkModel links = communicator.links();
  LinkModel given = flags.given;
  if (given.alpha_intra < 0) given.alpha_intra = given.alpha;
  if (given.beta_intra < 0) given.beta_intra = given.beta;
  for (const auto number : kNumbers) {
    if (given.*number >= 0) links.*number = given.*number;
  }
  // They were found as multiples of the measured numbers.
  if (given.alpha >= 0 || given.alpha_intra >= 0) links.contention = 1;
  if (given.beta >= 0 || given.beta_intra >= 0) links.contention_beta = 1;
  communicator.set_link_parameters(links);
}

std::string explanation(Communicator& communicator, const bench::CollectiveBenchOptions& options) {
  const auto operation = std::ranges::find_if(
      kOperations, [&](const auto& one) { return to_string(one.first) == options.operation; });
  if (operation == kOperations.end()) return "";
  const OpKind collective = operation->first;
  const int ranks = communicator.size();
  CostQuestion question{.collective = collective,
                        .ranks = ranks,
                        .nodes = communicator.node_count(),
                        .links = communicator.links(),
                        .segment_bytes = static_cast<std::int64_t>(Segmentation{}.segment_bytes)};
  const auto algorithms = algorithms_of(collective);
  std::string text = links_line(question.links) + format("%12s", "bytes");
  for (const std::string_view name : algorithms) {
    text += format(" %*s", static_cast<int>(std::max<std::size_t>(name.size(), 9) + 1),
                   std::string(name).c_str());
  }
  text += "\n";
  for (double size = static_cast<double>(options.min_bytes);
       size <= static_cast<double>(options.max_bytes); size *= options.factor) {
    question.bytes = std::llround(size);
    const auto chosen = communicator.algorithm_for(operation->second, question.bytes);
    if (!chosen.has_value()) return std::string(chosen.error().message()) + "\n";
    text += format("%12lld", static_cast<long long>(question.bytes));
    for (const std::string_view name : algorithms) {
      const auto cost = cost_of(question, name);
      const std::string time =
          cost.has_value() ? format("%.5g", expected_seconds(question, cost.value()) * 1e6) : "-";
      text += format(" %*s%s", static_cast<int>(std::max<std::size_t>(name.size(), 9)),
                     time.c_str(), name == chosen.value() ? "*" : " ");
    }
    const bool is_listed = std::ranges::find(algorithms, chosen.value()) != algorithms.end();
    text += is_listed ? "\n" : "  " + std::string(chosen.value()) + "* (no prediction)\n";
  }
  return text;
}

}  // namespace gradwire
