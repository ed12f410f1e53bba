// `gradwire inspect schedule ALGORITHM RANKS`: every rank's messages, and the checker's result.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "base/nearest.h"
#include "base/text.h"
#include "collectives/schedules/checker.h"
#include "collectives/schedules/selection.h"

namespace gradwire {
namespace {

constexpr std::array kCollectives{
    OpKind::kAllReduce,     OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kAllToAll,
    OpKind::kBroadcast,     OpKind::kReduce,        OpKind::kGather,    OpKind::kScatter,
    OpKind::kExclusiveScan, OpKind::kBarrier,       OpKind::kSend,
};

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const OpKind collective : kCollectives) names.emplace_back(schedule_name(collective));
  return names;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const OpKind collective : kCollectives) {
    for (const std::string_view name : algorithms_of(collective)) {
      if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
    }
  }
  return names;
}

// The operation asked for, else the first that has such an algorithm.
Result<OpKind> choose(const std::string& op, const std::string& algorithm) {
  std::string known;
  std::vector<std::string> names;
  for (const OpKind collective : kCollectives) {
    if (!op.empty() && op != schedule_name(collective)) continue;
    for (const std::string_view name : algorithms_of(collective)) {
      if (name == algorithm) return collective;
      names.emplace_back(name);
      known += (known.empty() ? "" : ", ") + std::string(name) + " (" +
               std::string(schedule_name(collective)) + ")";
    }
  }
  return Status(Code::kInvalidArgument, "inspect schedule: unknown algorithm '" + algorithm + "'" +
                                            did_you_mean(algorithm, names) + " (expected one of " +
                                            known + ")");
}

void print_costs(const std::vector<ScheduleCost>& costs) {
  std::printf("checked: all ranks finish, every contribution counts exactly once\n");
  std::printf("%6s %8s %10s %15s %15s\n", "rank", "rounds", "messages", "elements sent",
              "elements recv");
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    std::printf("%6zu %8d %10lld %15lld %15lld\n", rank, costs[rank].rounds,
                static_cast<long long>(costs[rank].messages_sent),
                static_cast<long long>(costs[rank].elems_sent),
                static_cast<long long>(costs[rank].elems_received));
  }
}

void print_json(const ScheduleRequest& request, const std::vector<Schedule>& schedules,
                const std::vector<ScheduleCost>& costs) {
  for (std::size_t rank = 0; rank < costs.size(); ++rank) {
    const nlohmann::ordered_json json{{"op", schedule_name(request.collective)},
                                      {"algorithm", request.algorithm},
                                      {"ranks", request.size},
                                      {"elements", request.elems},
                                      {"rank", rank},
                                      {"rounds", costs[rank].rounds},
                                      {"messages_sent", costs[rank].messages_sent},
                                      {"elements_sent", costs[rank].elems_sent},
                                      {"elements_received", costs[rank].elems_received},
                                      {"schedule", to_string(schedules[rank])}};
    std::printf("%s\n", json.dump().c_str());
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
Status print_schedules(ScheduleRequest request, bool as_json) {
  std::vector<Schedule> schedules;
  for (request.rank = 0; request.rank < request.size; ++request.rank) {
    schedules.push_back(make_schedule(request));
  }
  if (as_json) {
    GW_ASSIGN(const auto costs, check_schedules(schedules, claim_of(request)));
    print_json(request, schedules, costs);
    return {};
  }
  std::printf("%s by %s, %d rank(s), %lld elements\n\n",
              std::string(schedule_name(request.collective)).c_str(),
              std::string(request.algorithm).c_str(), request.size,
              static_cast<long long>(request.elems));
  for (const Schedule& schedule : schedules) std::printf("%s\n", to_string(schedule).c_str());
  GW_ASSIGN(const auto costs, check_schedules(schedules, claim_of(request)));
  print_costs(costs);
  return {};
}

// A whole number from `least` to `most`.
Result<int> number(const std::string& name, const std::string& text, int least, int most) {
  const auto value = to_int(text);
  if (value && *value >= least && *value <= most) return static_cast<int>(*value);
  return Status(Code::kInvalidArgument,
                format("inspect schedule: %s must be a whole number from %d to %d (got '%s')",
                       name.c_str(), least, most, text.c_str()));
}

}  // namespace

Result<int> inspect_schedule(const std::vector<std::string>& args) {
  if (!args.empty() && args.front() == "pipeline") {
    return inspect_pipeline({args.begin() + 1, args.end()});
  }
  std::string algorithm;
  std::string ranks_text;
  std::string op;
  std::int64_t elems = 12;
  std::int64_t root = 0;
  std::int64_t nodes = 1;
  bool as_json = false;
  Flags flags("inspect schedule",
              "Prints the messages of every rank and round of a collective algorithm and checks, "
              "without a network, that all ranks finish and every contribution counts exactly "
              "once. `inspect schedule pipeline` does so for schedules of pipelines.");
  flags.positional("ALGORITHM", algorithm,
                   "ring, canonical, halving_doubling, ... (docs/algorithms.md)", false,
                   algorithm_names());
  flags.positional("RANKS", ranks_text, "number of ranks, 1 to 256");
  flags.choice("op", op, operation_names(), "collective operation",
               "the first that has the algorithm");
  flags.integer("elements", elems, {0, 1e9},
                "elements of the tensor, or of one rank's block where ranks have blocks");
  flags.alias("elems", "elements");
  flags.integer("root", root, {0, 255}, "root rank, where the operation has one");
  flags.integer("nodes", nodes, {1, 256}, "two_level, blueconnect: number of nodes");
  flags.toggle("json", as_json, "one JSON line per rank: rounds, messages and elements");
  flags.example("gradwire inspect schedule ring 4");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const int size, number("RANKS", ranks_text, 1, 256));
  GW_TRY(number("--root", std::to_string(root), 0, size - 1).error());
  GW_TRY(number("--nodes", std::to_string(nodes), 1, size).error());
  GW_ASSIGN(const OpKind collective, choose(op, algorithm));
  const std::vector<int> node_of = in_blocks(size, static_cast<int>(nodes));
  GW_TRY(print_schedules({.collective = collective,
                          .algorithm = algorithm,
                          .size = size,
                          .elems = elems,
                          .root = static_cast<int>(root),
                          .node_of = node_of},
                         as_json));
  return 0;
}

}  // namespace gradwire
