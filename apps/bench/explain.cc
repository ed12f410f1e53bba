#include "apps/bench/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "apps/links_file.h"
#include "base/elements.h"
#include "base/text.h"
#include "collectives/cost_measure.h"
#include "collectives/cost_model.h"
#include "collectives/executor.h"

namespace gradwire {
namespace {

constexpr std::array kNumbers{&LinkModel::alpha,       &LinkModel::beta,       &LinkModel::gamma,
                              &LinkModel::alpha_intra, &LinkModel::beta_intra, &LinkModel::gap};

// Rank 0's cache, for all.
Result<std::optional<LinkModel>> shared_cache(Communicator& communicator,
                                              const std::string& transport) {
  std::array<double, kNumbers.size() + 1> message{};
  if (communicator.rank() == 0) {
    if (const auto cached = cached_links(transport)) {
      message[0] = 1;
      for (std::size_t i = 0; i < kNumbers.size(); ++i) message[i + 1] = *cached.*kNumbers[i];
    }
  }
  GW_ASSIGN(Work work, communicator.broadcast(view_of(std::span<double>(message)), 0));
  GW_TRY(work.wait());
  if (message[0] == 0) return std::optional<LinkModel>();
  LinkModel links;
  for (std::size_t i = 0; i < kNumbers.size(); ++i) links.*kNumbers[i] = message[i + 1];
  return std::optional(links);
}

Result<LinkModel> links_here(Communicator& communicator, const LinkFlags& flags,
                             const std::string& transport) {
  if (communicator.size() == 1) return communicator.links();
  if (!flags.measure) {
    GW_ASSIGN(const auto cached, shared_cache(communicator, transport));
    if (cached) return *cached;
  }
  GW_ASSIGN(const LinkModel links, measure_links(communicator, communicator.nodes()));
  if (communicator.rank() == 0) cache_links(transport, links);
  return links;
}

constexpr std::array kOperations{
    std::pair{Collective::kAllReduce, OpKind::kAllReduce},
    std::pair{Collective::kReduceScatter, OpKind::kReduceScatter},
    std::pair{Collective::kAllGather, OpKind::kAllGather},
    std::pair{Collective::kAllToAll, OpKind::kAllToAll},
    std::pair{Collective::kBroadcast, OpKind::kBroadcast},
    std::pair{Collective::kReduce, OpKind::kReduce},
    std::pair{Collective::kGather, OpKind::kGather},
    std::pair{Collective::kScatter, OpKind::kScatter},
    std::pair{Collective::kExclusiveScan, OpKind::kExclusiveScan},
    std::pair{Collective::kBarrier, OpKind::kBarrier},
};

std::string links_line(const LinkModel& links) {
  return format("auto chooses by: alpha %.4g us, beta %.4g ns/B, gamma %.4g ns/B, gap %.3g; ",
                links.alpha * 1e6, links.beta * 1e9, links.gamma * 1e9, links.gap) +
         format("inside a node alpha %.4g us, beta %.4g ns/B; ", links.alpha_intra * 1e6,
                links.beta_intra * 1e9) +
         "predicted us, * is what it takes\n";
}

}  // namespace

LinkFlags unset_links() {
  LinkFlags flags;
  for (const auto number : kNumbers) flags.given.*number = -1;
  return flags;
}

void add_link_flags(Flags& flags, LinkFlags& links) {
  const std::string unset = "measured once, then kept in the user's cache";
  flags.group("Links");
  flags.toggle("explain", links.explain, "print what every algorithm is predicted to take");
  flags.toggle("measure", links.measure, "measure the links again");
  flags.number("alpha", links.given.alpha, {0, 1e3}, "seconds that a message takes to start",
               unset);
  flags.number("beta", links.given.beta, {0, 1}, "seconds for each byte of a message", unset);
  flags.number("gamma", links.given.gamma, {0, 1}, "seconds for each byte that is reduced", unset);
  flags.number("alpha-intra", links.given.alpha_intra, {0, 1e3}, "the same inside a node",
               "as --alpha where that is given");
  flags.number("beta-intra", links.given.beta_intra, {0, 1}, "the same inside a node",
               "as --beta where that is given");
  flags.number("gap", links.given.gap, {0, 1},
               "share of alpha for which a message keeps its ports busy", "1");
}

Status settle_links(Communicator& communicator, const LinkFlags& flags,
                    const std::string& transport) {
  LinkModel links = communicator.links();
  if (transport != "inproc" || flags.explain || flags.measure) {
    GW_ASSIGN(links, links_here(communicator, flags, transport));
  }
  LinkModel given = flags.given;
  if (given.alpha_intra < 0) given.alpha_intra = given.alpha;
  if (given.beta_intra < 0) given.beta_intra = given.beta;
  for (const auto number : kNumbers) {
    if (given.*number >= 0) links.*number = given.*number;
  }
  communicator.use_links(links);
  return {};
}

std::string explanation(Communicator& communicator, const bench::CollectiveBenchOptions& options) {
  const auto operation = std::ranges::find_if(
      kOperations, [&](const auto& one) { return to_string(one.first) == options.operation; });
  if (operation == kOperations.end()) return "";
  const Collective collective = operation->first;
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
          cost ? format("%.5g", time_of(cost->terms, question.links).seconds() * 1e6) : "-";
      text += format(" %*s%s", static_cast<int>(std::max<std::size_t>(name.size(), 9)),
                     time.c_str(), name == chosen.value() ? "*" : " ");
    }
    text += "\n";
  }
  return text;
}

}  // namespace gradwire
