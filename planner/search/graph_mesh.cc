#include "planner/search/graph_mesh.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.h"
#include "planner/cluster/alike_devices.h"
#include "trainer/pipeline/cut_layers.h"
#include "trainer/pipeline/generate.h"

namespace gradwire {
namespace {

Status no_mesh(const std::string& why) { return {Code::kUnsupported, why}; }

// What of a split no replica of a mesh does.
Status check_by_samples(const GraphOperator& one, const OperatorSplit& split) {
  const auto refuse = [&one](const char* what, int parts) {
    return no_mesh(format("operator '%s' is divided into %d parts by %s (expected by samples)",
                          one.name.c_str(), parts, what));
  };
  if (split.positions > 1) return refuse("positions", split.positions);
  if (split.channels > 1) return refuse("channels", split.channels);
  const std::set<int> devices(split.devices.begin(), split.devices.end());
  if (devices.size() == split.devices.size()) return {};
  return no_mesh(format("operator '%s' has %zu parts on %zu devices (expected one each)",
                        one.name.c_str(), split.devices.size(), devices.size()));
}

// A run numbers its ranks node by node.
Status check_nodes(const Cluster& cluster, const std::vector<int>& devices) {
  std::set<int> left;
  int node = -1;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const int next = cluster.node_of(devices[rank]);
    if (next == node) continue;
    if (node >= 0) left.insert(node);
    node = next;
    if (!left.contains(node)) continue;
    return no_mesh(format("rank %zu is on node '%s' again (expected ranks node by node)", rank,
                          cluster.nodes[static_cast<std::size_t>(node)].name.c_str()));
  }
  return {};
}

double agreement_of(const OperatorStrategy& a, const OperatorStrategy& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::set<int> here(a[i].devices.begin(), a[i].devices.end());
    const std::set<int> there(b[i].devices.begin(), b[i].devices.end());
    const auto both = static_cast<double>(
        std::ranges::count_if(here, [&there](int device) { return there.contains(device); }));
    sum += both / (static_cast<double>(here.size() + there.size()) - both);
  }
  return sum / static_cast<double>(std::max<std::size_t>(a.size(), 1));
}

// The same with devices named as they come, as far as they are alike.
OperatorStrategy renamed(const Cluster& cluster, OperatorStrategy strategy) {
  std::vector<int> order;
  for (const OperatorSplit& split : strategy) {
    order.insert(order.end(), split.devices.begin(), split.devices.end());
  }
  const std::vector<int> names = renamed_alike(cluster, order);
  for (OperatorSplit& split : strategy) {
    for (int& device : split.devices) device = names[static_cast<std::size_t>(device)];
  }
  return strategy;
}

// Operators between which a mesh may be cut, as plan_stages() cuts a model: before such as have
// parameters, so that every stage has some; anywhere, where none has.
struct CutRuns {
  std::vector<std::int64_t> costs;  // products, by run
  std::vector<int> sizes;           // operators, likewise
};

CutRuns cut_runs(const OperatorGraph& graph) {
  const auto has = [](const GraphOperator& one) { return one.parameter_bytes > 0; };
  const bool any = std::ranges::any_of(graph.operators, has);
  CutRuns runs;
  bool run_has = false;
  for (const GraphOperator& one : graph.operators) {
    if (runs.sizes.empty() || !any || (has(one) && run_has)) {
      runs.costs.push_back(0);
      runs.sizes.push_back(0);
      run_has = false;
    }
    run_has = run_has || has(one);
    runs.costs.back() += one.forward_macs + one.backward_macs;
    ++runs.sizes.back();
  }
  return runs;
}

// Rank r on device r.
Result<GraphMesh> even_mesh(const CutRuns& runs, int dp, int pp) {
  GraphMesh mesh{.dp = dp, .pp = pp};
  GW_ASSIGN(const std::vector<Range> cuts, cut_layers(runs.costs, pp));
  for (const Range& cut : cuts) {
    const auto begin = runs.sizes.begin();
    mesh.layers.push_back(std::accumulate(begin + cut.begin, begin + cut.end, 0));
  }
  mesh.devices.resize(static_cast<std::size_t>(dp) * static_cast<std::size_t>(pp));
  std::iota(mesh.devices.begin(), mesh.devices.end(), 0);
  return mesh;
}

}  // namespace

std::string to_string(const GraphMesh& mesh) {
  std::string text = format("dp=%d", mesh.dp);
  if (mesh.pp == 1) return text;
  const PipelineSpec order{.kind = PipelineKind::kOneFOneB, .layers = mesh.layers};
  return text + format(",pp=%d/%s", mesh.pp, order.text().c_str());
}

OperatorStrategy strategy_of(const GraphMesh& mesh) {
  OperatorStrategy strategy;
  auto first = mesh.devices.begin();
  for (const int layers : mesh.layers) {
    OperatorSplit split{.samples = mesh.dp, .devices = {first, first + mesh.dp}};
    strategy.insert(strategy.end(), static_cast<std::size_t>(layers), split);
    first += mesh.dp;
  }
  return strategy;
}

std::vector<PlacedStage> stages_of(const GraphMesh& mesh) {
  std::vector<PlacedStage> stages;
  int layer = 0;
  int device = 0;
  for (const int layers : mesh.layers) {
    stages.push_back({layer, layer + layers, device, device + mesh.dp});
    layer += layers;
    device += mesh.dp;
  }
  return stages;
}

OperatorStrategy strategy_of(const std::vector<PlacedStage>& stages) {
  OperatorStrategy strategy;
  for (const PlacedStage& stage : stages) {
    OperatorSplit split{.samples = stage.replicas()};
    split.devices.resize(static_cast<std::size_t>(stage.replicas()));
    std::iota(split.devices.begin(), split.devices.end(), stage.first_device);
    strategy.insert(strategy.end(), static_cast<std::size_t>(stage.end_layer - stage.first_layer),
                    split);
  }
  return strategy;
}

Result<GraphMesh> mesh_of(const OperatorGraph& graph, const Cluster& cluster,
                          const OperatorStrategy& strategy) {
  GW_TRY(check_graph(graph));
  GW_TRY(check_strategy(graph, cluster, strategy));
  GraphMesh mesh{.dp = strategy.front().samples, .pp = 0};
  const OperatorSplit* stage = nullptr;
  std::set<int> taken;
  for (int number = 0; number < graph.size(); ++number) {
    const GraphOperator& one = graph.at(number);
    const OperatorSplit& split = strategy[static_cast<std::size_t>(number)];
    GW_TRY(check_by_samples(one, split));
    if (split.samples != mesh.dp) {
      return no_mesh(format("operator '%s' is on %d devices, and '%s' on %d (expected as many)",
                            one.name.c_str(), split.samples, graph.at(0).name.c_str(), mesh.dp));
    }
    if (stage != nullptr && split.devices == stage->devices) {
      ++mesh.layers.back();
      continue;
    }
    for (const int device : split.devices) {
      if (taken.insert(device).second) continue;
      return no_mesh(
          format("operator '%s' is on device %d, which has a stage before it (expected stages of "
                 "consecutive operators on devices of their own)",
                 one.name.c_str(), device));
    }
    stage = &split;
    ++mesh.pp;
    mesh.layers.push_back(1);
    mesh.devices.insert(mesh.devices.end(), split.devices.begin(), split.devices.end());
  }
  if (graph.samples % mesh.dp != 0) {
    return no_mesh(format("%lld samples do not divide evenly among %d replicas",
                          static_cast<long long>(graph.samples), mesh.dp));
  }
  GW_TRY(check_nodes(cluster, mesh.devices));
  return mesh;
}

Result<std::vector<GraphMesh>> even_meshes(const OperatorGraph& graph, const Cluster& cluster) {
  const CutRuns runs = cut_runs(graph);
  const int devices = cluster.devices();
  const int most = std::min(devices, static_cast<int>(runs.sizes.size()));
  std::vector<GraphMesh> all;
  for (int pp = 1; pp <= most; ++pp) {
    for (int dp = 1; dp <= devices / pp; ++dp) {
      if (devices % (dp * pp) != 0 || graph.samples % dp != 0) continue;
      GW_ASSIGN(all.emplace_back(), even_mesh(runs, dp, pp));
    }
  }
  return all;
}

Result<NearMeshes> near_meshes(const OperatorGraph& graph, const Cluster& cluster,
                               const OperatorStrategy& strategy, const MeshTime& time) {
  GW_ASSIGN(const std::vector<GraphMesh> meshes, even_meshes(graph, cluster));
  const OperatorStrategy named = renamed(cluster, strategy);
  NearMeshes found;
  bool is_first = true;
  for (const GraphMesh& mesh : meshes) {
    ComparedMesh one;
    one.mesh = mesh;
    one.agreement = agreement_of(named, strategy_of(mesh));
    GW_ASSIGN(one.time, time(mesh));
    const ComparedMesh& nearest = found.nearest;
    const bool nearer = one.agreement > nearest.agreement ||
                        (one.agreement == nearest.agreement && one.time < nearest.time);
    if (is_first || nearer) found.nearest = one;
    if (is_first || one.time < found.fastest.time) found.fastest = one;
    is_first = false;
  }
  return found;
}

}  // namespace gradwire
