#include "apps/plan/plan_search.h"

#include <algorithm>
#include <cstdio>

#include "apps/bench/row_file.h"
#include "apps/flags.h"
#include "apps/plan/plan_search_graph.h"
#include "apps/plan/plan_search_mesh.h"
#include "apps/plan/plan_search_text.h"
#include "apps/plan/plan_timeline.h"
#include "apps/plan/read_cluster.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "planner/cost/layer_layouts.h"
#include "planner/search/partitioners.h"

namespace gradwire {
namespace {

// Those that give stages.
const std::vector<std::string> kPartitioners{"pipedream", "dapple", "alpa"};

struct SearchQuestion {
  std::string method = "mcmc";
  GraphQuestion graph;
  std::string cluster;
  std::uint64_t seed = 1;
  std::int64_t evaluations = 2000;
  std::int64_t micro_batches = 8;
  CostOptions cost;
  std::string json;
  std::string trace;
  std::string write;
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
  flags.file("cluster", q.cluster, "devices and links: a TOML file");
  add_graph_flags(flags, q.graph);
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
  flags.file("trace", q.trace, "timeline of the answer, for Perfetto or chrome://tracing");
  flags.file("write", q.write,
             "plan file for gradwire train --plan, of an answer that is a mesh, where --graph is a "
             "model");
  flags.json_output(q.json);
  flags.example("gradwire plan search --method reinforce --graph lstm --cluster cluster.toml");
  flags.example("gradwire plan search --method pipedream --graph lstm --cluster cluster.toml");
  flags.example(
      "gradwire plan search --method dapple --graph mlp --image 1x8x8 --cluster cluster.toml "
      "--write plan.toml");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return outcome;
  GW_TRY(check_graph_flags(flags, q.graph));
  if (q.cluster.empty()) {
    return Status(Code::kInvalidArgument, "plan search: --cluster is missing");
  }
  return outcome;
}

// What is printed, in text and as lines of JSON.
struct SearchOutput {
  std::string text;
  std::string lines;
};

Status show(const SearchQuestion& q, const SearchOutput& output) {
  if (q.json == kStandardOutput) {
    std::printf("%s", output.lines.c_str());
    return {};
  }
  std::printf("%s", output.text.c_str());
  return q.json.empty() ? Status() : write_whole_file(q.json, output.lines);
}

std::string heading(const SearchQuestion& q, const OperatorGraph& graph, const Cluster& cluster) {
  return format("%s: %d operators of %s on %d devices; %s\n", q.method.c_str(), graph.size(),
                graph.name.empty() ? "a graph" : graph.name.c_str(), cluster.devices(),
                rates_text(cluster).c_str());
}

// What has been found, where it is shown, traced and written.
struct FoundAnswer {
  SearchAnswer answer = {};
  SearchOutput output = {};
  StepTimeline timeline = {};
};

Status finish(const SearchQuestion& q, const OperatorGraph& graph, const Cluster& cluster,
              const FoundAnswer& found, const MeshTime& mesh_time) {
  GW_ASSIGN(const MeshVerdict verdict,
            judge_answer(q.graph, graph, cluster, found.answer, mesh_time));
  SearchOutput output = found.output;
  output.text = heading(q, graph, cluster) + output.text + "\n" + timeline_picture(found.timeline) +
                "\n" + verdict_text(verdict);
  output.lines += verdict_line(verdict);
  GW_TRY(show(q, output));
  if (!q.trace.empty()) GW_TRY(write_whole_file(q.trace, timeline_trace(found.timeline)));
  const std::int64_t over = found.answer.time.over;
  if (over > 0) {
    return {Code::kInvalidArgument,
            format("no placement that fits was found: the best is %lld bytes beyond the devices' "
                   "memory",
                   static_cast<long long>(over))};
  }
  if (q.write.empty()) return {};
  const bool compressed = q.cost.gradient_ratio < 1;
  GW_ASSIGN(const std::string plan,
            search_plan_text(q.graph, cluster, found.answer, verdict, compressed));
  return write_whole_file(q.write, plan);
}

// Of Alpa's stages: a layer that its devices share otherwise than by samples.
std::string other_layouts(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  for (const PlacedStage& stage : stages) {
    if (stage.replicas() == 1) continue;
    int layer = stage.first_layer;
    for (const LayerLayout layout : best_layouts(cost, stage).layouts) {
      const std::string& name = cost.graph().at(layer++).name;
      if (layout == LayerLayout::kSamples) continue;
      return format("layer '%s' has the layout '%s' on %d devices (expected 'samples')",
                    name.c_str(), std::string(to_string(layout)).c_str(), stage.replicas());
    }
  }
  return {};
}

// What Alpa chose within stages: the step that is simulated has replicas there.
std::string layouts_text(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  std::string text;
  int number = 0;
  for (const PlacedStage& stage : stages) {
    const int at = number++;
    if (stage.replicas() == 1) continue;
    text += format("layouts of stage %d:", at);
    int layer = stage.first_layer;
    for (const LayerLayout layout : best_layouts(cost, stage).layouts) {
      text += " " + cost.graph().at(layer++).name + " " + std::string(to_string(layout)) + ",";
    }
    text.back() = '\n';
  }
  return text +
         "simulated, in the timeline and in the times beside it are replicas in place of these "
         "layouts\n";
}

// Its time under 1F1B, and what its devices hold.
Result<StrategyTime> stages_time(const StageCost& cost, const std::vector<PlacedStage>& stages) {
  StrategyTime time;
  GW_ASSIGN(time.ticks, simulate_stages(cost, stages));
  int left = static_cast<int>(stages.size());
  for (const PlacedStage& stage : stages) {
    const int contexts = std::min(left--, cost.micro_batches());
    const auto bytes = static_cast<std::int64_t>(cost.memory_bytes(stage, contexts));
    for (int device = stage.first_device; device < stage.end_device; ++device) {
      time.memory.push_back(bytes);
      time.over += std::max<std::int64_t>(bytes - cost.cluster().type_of(device).memory_bytes, 0);
    }
  }
  return time;
}

Result<StagePartition> partition(const SearchQuestion& q, const StageCost& cost) {
  if (q.method == "pipedream") return partition_pipedream(cost);
  if (q.method == "dapple") return partition_dapple(cost);
  return partition_alpa(cost);
}

Status search_stages(const SearchQuestion& q, const OperatorGraph& graph, const Cluster& cluster) {
  GW_ASSIGN(const StageCost cost,
            StageCost::make(graph, cluster, q.cost, static_cast<int>(q.micro_batches)));
  GW_ASSIGN(const StagePartition partitioned, partition(q, cost));
  const std::vector<PlacedStage>& stages = partitioned.stages;
  GW_ASSIGN(const StagesRun run, run_stages(cost, stages));
  FoundAnswer found{.timeline = stages_timeline(run)};
  found.answer.strategy = strategy_of(stages);
  found.answer.accumulate = q.micro_batches;
  if (q.method == "alpa") found.answer.other_layouts = other_layouts(cost, stages);
  GW_ASSIGN(found.answer.time, stages_time(cost, stages));
  found.answer.time.over = 0;  // its method holds it to memory, and counts contexts its own way
  found.output = {stages_text(cost, partitioned, run.simulation.makespan),
                  stages_lines(cost, partitioned, run.simulation.makespan)};
  if (!found.answer.other_layouts.empty()) found.output.text += layouts_text(cost, stages);
  return finish(q, graph, cluster, found,
                [&cost](const GraphMesh& mesh) { return stages_time(cost, stages_of(mesh)); });
}

Status search_placements(const SearchQuestion& q, const OperatorGraph& graph,
                         const Cluster& cluster) {
  GW_ASSIGN(const auto cost, SimulatedCost::make(graph, cluster, q.cost));
  GW_ASSIGN(const SearchResult result,
            search_placement(q.method, *cost, {.seed = q.seed, .evaluations = q.evaluations}));
  FoundAnswer found{.answer = {.strategy = result.strategy, .time = result.time}};
  GW_ASSIGN(found.timeline, placement_timeline(*cost, result.strategy));
  GW_ASSIGN(found.output.text, placement_text(*cost, result));
  GW_ASSIGN(found.output.lines, placement_lines(*cost, result));
  return finish(q, graph, cluster, found,
                [&cost](const GraphMesh& mesh) { return cost->time(strategy_of(mesh)); });
}

}  // namespace

Result<int> plan_search_command(const std::vector<std::string>& args) {
  SearchQuestion q;
  GW_ASSIGN(const auto outcome, read_flags(args, q));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const OperatorGraph graph, read_search_graph(q.graph));
  GW_ASSIGN(const Cluster cluster, read_cluster(q.cluster));
  const Status searched = is_partitioner(q.method) ? search_stages(q, graph, cluster)
                                                   : search_placements(q, graph, cluster);
  GW_TRY(searched.with_context("plan search"));
  return 0;
}

}  // namespace gradwire
