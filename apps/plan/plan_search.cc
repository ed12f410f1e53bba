#include "apps/plan/plan_search.h"

#include <algorithm>
#include <cstdio>

#include "apps/bench/row_file.h"
#include "apps/flags.h"
#include "apps/plan/plan_search_text.h"
#include "apps/plan/read_cluster.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "planner/graph/built_in_graphs.h"
#include "planner/graph/graph_file.h"
#include "planner/search/partitioners.h"

namespace gradwire {
namespace {

// Those that give stages.
const std::vector<std::string> kPartitioners{"pipedream", "dapple", "alpa"};

struct SearchQuestion {
  std::string method = "mcmc";
  std::string graph;
  std::string cluster;
  std::uint64_t seed = 1;
  std::int64_t evaluations = 2000;
  std::int64_t micro_batches = 8;
  CostOptions cost;
  std::string json;
  std::string trace;
};

bool is_partitioner(const std::string& method) {
  return std::ranges::find(kPartitioners, method) != kPartitioners.end();
}

Result<Flags::Outcome> read_flags(const std::vector<std::string>& args, SearchQuestion& q) {
  Flags flags("plan search",
              "Searches for a placement of a graph's operators on a cluster, or for stages of a "
              "pipeline, with one of the literature's methods. Times are of a model of the "
              "machines; nothing runs.");
  std::vector<std::string> methods = placement_search_names();
  methods.insert(methods.end(), kPartitioners.begin(), kPartitioners.end());
  flags.group("Problem");
  flags.text("graph", q.graph,
             "operators: a JSON file, or one of " + gradwire::joined(built_in_graph_names()),
             "none", "FILE");
  flags.file("cluster", q.cluster, "devices and links: a TOML file");
  flags.integer("micro-batches", q.micro_batches, {1, 4096},
                "pipedream, dapple, alpa: micro-batches of a step");
  flags.number("activation-ratio", q.cost.activation_ratio, {0, 1},
               "bytes sent over bytes of activations between devices (compression)");
  flags.number("gradient-ratio", q.cost.gradient_ratio, {0, 1},
               "bytes sent over bytes of gradients among replicas (compression)");
  flags.group("Search");
  flags.choice("method", q.method, methods, "search method");
  flags.seed("seed", q.seed, "seed of methods that draw");
  flags.integer("evaluations", q.evaluations, {1, 1 << 24},
                "number of strategies that are simulated, at most");
  flags.group("Output");
  flags.file("trace", q.trace, "timeline of the best placement, for Perfetto or chrome://tracing");
  flags.json_output(q.json);
  flags.example("gradwire plan search --method reinforce --graph lstm --cluster cluster.toml");
  flags.example("gradwire plan search --method pipedream --graph lstm --cluster cluster.toml");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return outcome;
  for (const auto& [name, value] :
       {std::pair("graph", &q.graph), std::pair("cluster", &q.cluster)}) {
    if (value->empty()) {
      return Status(Code::kInvalidArgument, format("plan search: --%s is missing", name));
    }
  }
  if (is_partitioner(q.method) && !q.trace.empty()) {
    return Status(Code::kInvalidArgument,
                  "plan search: --trace shows a placement (got --method " + q.method + ")");
  }
  return outcome;
}

Result<OperatorGraph> read_graph(const std::string& graph) {
  const std::vector<std::string> names = built_in_graph_names();
  if (std::ranges::find(names, graph) != names.end()) return built_in_graph(graph);
  GW_ASSIGN(const std::string text, read_whole_file(graph));
  return parse_graph(text, graph);
}

Status show(const SearchQuestion& q, const std::string& text, const std::string& lines) {
  if (q.json == kStandardOutput) {
    std::printf("%s", lines.c_str());
    return {};
  }
  std::printf("%s", text.c_str());
  return q.json.empty() ? Status() : write_whole_file(q.json, lines);
}

std::string heading(const SearchQuestion& q, const OperatorGraph& graph, const Cluster& cluster) {
  return format("%s: %d operators of %s on %d devices; %s\n", q.method.c_str(), graph.size(),
                graph.name.empty() ? "a graph" : graph.name.c_str(), cluster.devices(),
                rates_text(cluster).c_str());
}

Status search_stages(const SearchQuestion& q, const OperatorGraph& graph, const Cluster& cluster) {
  GW_ASSIGN(const StageCost cost,
            StageCost::make(graph, cluster, q.cost, static_cast<int>(q.micro_batches)));
  StagePartition found;
  if (q.method == "pipedream") {
    GW_ASSIGN(found, partition_pipedream(cost));
  } else if (q.method == "dapple") {
    GW_ASSIGN(found, partition_dapple(cost));
  } else {
    GW_ASSIGN(found, partition_alpa(cost));
  }
  GW_ASSIGN(const std::int64_t simulated, simulate_stages(cost, found.stages));
  return show(q, heading(q, graph, cluster) + stages_text(cost, found, simulated),
              stages_lines(cost, found, simulated));
}

Status search_placements(const SearchQuestion& q, const OperatorGraph& graph,
                         const Cluster& cluster) {
  GW_ASSIGN(const auto cost, SimulatedCost::make(graph, cluster, q.cost));
  GW_ASSIGN(const SearchResult result,
            search_placement(q.method, *cost, {.seed = q.seed, .evaluations = q.evaluations}));
  GW_ASSIGN(const std::string text, placement_text(*cost, result));
  GW_ASSIGN(const std::string lines, placement_lines(*cost, result));
  GW_TRY(show(q, heading(q, graph, cluster) + text, lines));
  if (!q.trace.empty()) {
    GW_ASSIGN(const std::string trace, placement_trace(*cost, result.strategy));
    GW_TRY(write_whole_file(q.trace, trace));
  }
  if (result.time.over == 0) return {};
  return {Code::kInvalidArgument,
          format("no placement that fits was found: the best is %lld bytes beyond the devices' "
                 "memory",
                 static_cast<long long>(result.time.over))};
}

}  // namespace

Result<int> plan_search_command(const std::vector<std::string>& args) {
  SearchQuestion q;
  GW_ASSIGN(const auto outcome, read_flags(args, q));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const OperatorGraph graph, read_graph(q.graph));
  GW_ASSIGN(const Cluster cluster, read_cluster(q.cluster));
  const Status searched = is_partitioner(q.method) ? search_stages(q, graph, cluster)
                                                   : search_placements(q, graph, cluster);
  GW_TRY(searched.with_context("plan search"));
  return 0;
}

}  // namespace gradwire
