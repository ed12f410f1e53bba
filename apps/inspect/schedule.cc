// `gradwire inspect schedule ALGORITHM RANKS`: who sends what when, and the checker's verdict.
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "base/text.h"
#include "collectives/checker.h"
#include "collectives/selection.h"

namespace gradwire {
namespace {

constexpr std::array kCollectives{
    Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
    Collective::kAllToAll,  Collective::kBroadcast,     Collective::kReduce,
    Collective::kGather,    Collective::kScatter,       Collective::kExclusiveScan,
    Collective::kBarrier,   Collective::kSendRecv,
};

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const Collective collective : kCollectives) names.emplace_back(to_string(collective));
  return names;
}

// The operation asked for, else the first that has such an algorithm.
Result<Collective> choose(const std::string& op, const std::string& algorithm) {
  std::string known;
  for (const Collective collective : kCollectives) {
    if (!op.empty() && op != to_string(collective)) continue;
    for (const std::string_view name : algorithms_of(collective)) {
      if (name == algorithm) return collective;
      known += (known.empty() ? "" : ", ") + std::string(name) + " (" +
               std::string(to_string(collective)) + ")";
    }
  }
  return Status(Code::kInvalidArgument, "inspect schedule: unknown algorithm ('" + algorithm +
                                            "' seen; one of " + known + " wanted)");
}

void print_costs(const std::vector<ScheduleCost>& costs) {
  std::printf("checked: every schedule ends, every contribution is counted exactly once\n");
  std::printf("%6s %8s %10s %15s %15s\n", "rank", "rounds", "messages", "elements sent",
              "elements recv");
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    std::printf("%6zu %8d %10lld %15lld %15lld\n", rank, costs[rank].rounds,
                static_cast<long long>(costs[rank].messages_sent),
                static_cast<long long>(costs[rank].elems_sent),
                static_cast<long long>(costs[rank].elems_received));
  }
}

// Ranks in blocks, one a node; the first ranks % nodes nodes have one more.
std::vector<int> in_blocks(int ranks, int nodes) {
  std::vector<int> node_of;
  for (int node = 0; node < nodes; ++node) {
    node_of.insert(node_of.end(), static_cast<std::size_t>(piece(ranks, nodes, node).size()), node);
  }
  return node_of;
}

// Prints every rank's part, then what the checker says.
Status print_schedules(ScheduleRequest request) {
  std::vector<Schedule> schedules;
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    schedules.push_back(make_schedule(request));
  }
  std::printf(
      "%s by %s, %d rank(s), %lld elements\n\n", std::string(to_string(request.collective)).c_str(),
      std::string(request.algorithm).c_str(), request.size, static_cast<long long>(request.elems));
  for (const Schedule& schedule : schedules) std::printf("%s\n", to_string(schedule).c_str());
  GW_ASSIGN(const auto costs, check_schedules(schedules, claim_of(request)));
  print_costs(costs);
  return {};
}

// A whole number from `least` to `most`.
Result<int> number(const std::string& name, const std::string& text, int least, int most) {
  const auto value = to_int(text);
  if (value && *value >= least && *value <= most) return static_cast<int>(*value);
  return Status(
      Code::kInvalidArgument,
      format("inspect schedule: bad value for %s ('%s' seen; a whole number from %d to %d "
             "wanted)",
             name.c_str(), text.c_str(), least, most));
}

}  // namespace

Result<int> inspect_schedule(const std::vector<std::string>& args) {
  std::string algorithm;
  std::string ranks_text;
  std::string op;
  std::int64_t elems = 12;
  std::int64_t root = 0;
  std::int64_t nodes = 1;
  Flags flags("inspect schedule",
              "Prints every rank's rounds of a collective operation and proves, without a network, "
              "that they end and count every contribution exactly once.");
  flags.positional("algorithm", algorithm,
                   "ring, canonical, halving_doubling, ...: docs/algorithms.md");
  flags.positional("ranks", ranks_text, "how many, 1 to 256");
  flags.choice("op", op, operation_names(), "operation; unset: the first with such an algorithm");
  flags.integer("elems", elems, {0, 1e9},
                "elements of the tensor, or of one rank's row where the operation has rows");
  flags.integer("root", root, {0, 255}, "the root, where the operation has one");
  flags.integer("nodes", nodes, {1, 256},
                "two_level, blueconnect: on how many nodes the ranks are");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const int size, number("ranks", ranks_text, 1, 256));
  GW_TRY(number("--root", std::to_string(root), 0, size - 1).error());
  GW_TRY(number("--nodes", std::to_string(nodes), 1, size).error());
  GW_ASSIGN(const Collective collective, choose(op, algorithm));
  const std::vector<int> node_of = in_blocks(size, static_cast<int>(nodes));
  GW_TRY(print_schedules({.collective = collective,
                          .algorithm = algorithm,
                          .size = size,
                          .elems = elems,
                          .root = static_cast<int>(root),
                          .node_of = node_of}));
  return 0;
}

}  // namespace gradwire
