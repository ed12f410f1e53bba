// Searchers of strategies on the networks and bounds of the literature, against everything where
// that is few enough: 10 groups on 4 devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/cluster/alike_devices.h"
#include "planner/graph/built_in_graphs.h"
#include "planner/graph/model_graph.h"
#include "planner/search/exhaustive.h"
#include "planner/search/placement_search.h"
#include "planner/search/starts.h"
#include "tests/planner/placement_cases.h"
#include "tests/reference/placement_reference.h"
#include "tests/support/short_run.h"
#include "trainer/models.h"

namespace gradwire::placement_laws_test {
namespace {

constexpr std::int64_t kAll = 1'000'000;  // enough for all placements of 10 groups on 4 devices

// Of few groups, and the two of 10 groups that the literature compares placements on.
std::vector<OperatorGraph> recurrent_graphs() {
  return is_short_run()
             ? std::vector{unrolled_lstm(2, 6, 64, 1024)}
             : std::vector{unrolled_lstm(2, 6, 64, 1024), built_in_graph("lstm").value()};
}
std::vector<OperatorGraph> convolutional_graphs() {
  return is_short_run()
             ? std::vector{inception_like(1, 32, 64)}
             : std::vector{inception_like(1, 32, 64), built_in_graph("inception").value()};
}

// Step times of placements, in nanoseconds: of random ones, which are not chosen among others, the
// median.
std::map<std::string, std::int64_t> placed_times(const OperatorGraph& graph,
                                                 const Cluster& cluster) {
  std::map<std::string, std::int64_t> times;
  std::vector<std::string> methods = cut_methods();
  methods.insert(methods.end(), {"exhaustive", "expert", "one-device"});
  for (const std::string& method : methods) {
    const SearchResult found = found_by(method, graph, cluster, kAll);
    times[method] = found.time.ticks;
    if (cluster.nodes.size() > 1) continue;
    std::vector<int> devices;
    for (const OperatorSplit& one : found.strategy) devices.push_back(one.devices.front());
    EXPECT_EQ(found.time.ticks, reference::SlowPlacement(graph, cluster, devices).run()) << method;
  }
  std::vector<std::int64_t> random;
  for (std::uint64_t seed = 1; seed <= 21; ++seed) {
    random.push_back(found_by("random", graph, cluster, 1, seed).time.ticks);
    EXPECT_GE(random.back(), times["exhaustive"]);
  }
  std::ranges::sort(random);
  times["random"] = random[random.size() / 2];
  return times;
}

// Each of one rank is quicker than each of the next.
void expect_ranks(const OperatorGraph& graph, const Cluster& cluster,
                  const std::vector<std::vector<std::string>>& ranks) {
  std::map<std::string, std::int64_t> times = placed_times(graph, cluster);
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    for (const std::string& quicker : ranks[rank - 1]) {
      for (const std::string& slower : ranks[rank]) {
        EXPECT_LT(times.at(quicker), times.at(slower))
            << graph.name << " on " << cluster.nodes.size() << " nodes: " << quicker << ", "
            << slower;
      }
    }
  }
  for (const std::string& first : ranks.front()) {
    EXPECT_EQ(times.at(first), times.at("exhaustive")) << graph.name << ' ' << first;
  }
}

// Steps of an LSTM can be taken side by side, so that one device is the slowest; between nodes a
// cut, which knows no bandwidth, sends too much.
TEST(PlacementLaws, Pl1ARecurrentNetworkIsQuickestDivided) {
  for (const OperatorGraph& graph : recurrent_graphs()) {
    expect_ranks(graph, even_gpus(),
                 {{"exhaustive"}, cut_methods(), {"expert"}, {"random"}, {"one-device"}});
  }
  expect_ranks(unrolled_lstm(2, 6, 64, 1024), uneven_gpus(),
               {{"exhaustive"}, {"expert"}, {"one-device"}, cut_methods(), {"random"}});
}

// Branches send more than they compute: no placement beats one device, which is the expert's
// answer, too. As in Mirhoseini et al., ICML 2017, table 1, whose policy leaves Inception whole.
TEST(PlacementLaws, Pl1AConvolutionalNetworkIsQuickestOnOneDevice) {
  for (const OperatorGraph& graph : convolutional_graphs()) {
    expect_ranks(graph, even_gpus(),
                 {{"exhaustive", "expert", "one-device"}, cut_methods(), {"random"}});
  }
  expect_ranks(inception_like(1, 32, 64), uneven_gpus(),
               {{"exhaustive", "expert", "one-device"}, cut_methods(), {"random"}});
}

// Two nodes of two, or one of four, of 10^13 products a second: links of 10 GB/s and 5 us, between
// nodes a shared one of 1.25 GB/s and 20 us.
Cluster alike_gpus(int nodes) {
  Cluster cluster = uneven_gpus();
  cluster.links[1].bytes_per_second = 1.25e9;
  cluster.nodes[0].devices = 4 / nodes;
  cluster.nodes[1] = cluster.nodes[0];
  cluster.nodes[1].name = "second";
  cluster.nodes.resize(static_cast<std::size_t>(nodes));
  return cluster;
}

// Seeds 1 to so many.
std::uint64_t seeds_of(const std::string& method) {
  if (is_short_run()) return method == "reinforce" ? 3 : 1;
  return method == "reinforce" ? 8 : 3;
}

// The best that a method came to before its last evaluations: of both reinforcements these are one
// device of each kind of node, and the expert's cuts.
std::int64_t learnt_ticks(const SearchResult& found, std::int64_t evaluations,
                          const Cluster& cluster) {
  constexpr std::int64_t kCuts = 1;
  const std::vector<int> kinds = alike_nodes(cluster);
  const std::int64_t known = std::ssize(std::set<int>(kinds.begin(), kinds.end())) + kCuts;
  std::int64_t ticks = 0;
  for (const SearchPoint& point : found.best) {
    if (point.evaluation <= evaluations - known) ticks = point.time.ticks;
  }
  return ticks;
}

void expect_near_optimum(const std::string& method, const OperatorGraph& graph,
                         const Cluster& cluster, std::int64_t evaluations, std::uint64_t seeds) {
  ASSERT_LE(graph.groups().size(), 10U);
  const auto best = found_by("exhaustive", graph, cluster, kAll).time.ticks;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto found =
        learnt_ticks(found_by(method, graph, cluster, evaluations, seed), evaluations, cluster);
    EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best))
        << graph.name << ' ' << method << ", seed " << seed;
    EXPECT_GE(found, best) << graph.name << ' ' << method << ", seed " << seed;
  }
}

TEST(PlacementLaws, Pl2ReinforceIsWithinFivePercentOfTheOptimum) {
  std::vector<OperatorGraph> graphs = recurrent_graphs();
  for (OperatorGraph& graph : convolutional_graphs()) graphs.push_back(std::move(graph));
  for (const OperatorGraph& graph : graphs) {
    for (const std::string method : {"reinforce", "reinforce-lstm"}) {
      expect_near_optimum(method, graph, even_gpus(), 3000, seeds_of(method));
    }
  }
}

// A policy soon has everything on one node, which may be the slow one: more of them are needed.
TEST(PlacementLaws, Pl2ReinforceOnUnevenNodesIsWithinFivePercentOfTheOptimum) {
  for (const OperatorGraph& graph : convolutional_graphs()) {
    expect_near_optimum("reinforce", graph, uneven_gpus(), 30'000, is_short_run() ? 1 : 3);
  }
  if (is_short_run()) return;
  expect_near_optimum("reinforce", recurrent_graphs().front(), uneven_gpus(), 30'000, 3);
}

TEST(PlacementLaws, Pl2ReinforceIsAsGoodAsTheExpert) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    const auto expert = found_by("expert", graph, even_gpus(), 100).time.ticks;
    for (const std::string method : {"reinforce", "reinforce-lstm"}) {
      for (std::uint64_t seed = 1; seed <= seeds_of(method); ++seed) {
        const SearchResult found = found_by(method, graph, even_gpus(), 3000, seed);
        EXPECT_LE(learnt_ticks(found, 3000, even_gpus()), expert)
            << name << ' ' << method << ", seed " << seed;
      }
    }
  }
}

// Where policies settle with operators on both nodes, and a step takes four times as long.
TEST(PlacementLaws, Pl2ReinforceIsNoWorseThanTheExpertWhereItDoesNotLearn) {
  const OperatorGraph graph = built_in_graph("inception").value();
  const Cluster cluster = alike_gpus(2);
  const auto expert = found_by("expert", graph, cluster, 100).time.ticks;
  std::uint64_t not_learnt = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const SearchResult found = found_by("reinforce", graph, cluster, 1000, seed);
    EXPECT_LE(found.time.ticks, expert) << "seed " << seed;
    EXPECT_EQ(found.evaluations, 1000);
    not_learnt += learnt_ticks(found, 1000, cluster) > expert ? 1 : 0;
  }
  EXPECT_GT(not_learnt, 0U) << "nothing is tested";
}

OperatorGraph graph_of(const ModelOptions& options, const SampleShape& input,
                       std::int64_t samples) {
  return model_graph(make_model<float>(options, input, 10).value(), samples).value();
}

SearchResult best_splits(const OperatorGraph& graph, const Cluster& cluster) {
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  SearchRecord record(*cost, {.evaluations = 1 << 20}, {});
  const Status status = ExhaustiveSplits().search(record);
  EXPECT_TRUE(status.ok()) << status.message();
  return record.result();
}

TEST(PlacementLaws, Pl4MarkovChainIsNeverWorseThanDataParallelism) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    const Cluster cluster = even_gpus();
    const auto cost = SimulatedCost::make(graph, cluster, {}).value();
    const auto pure = cost->time(data_parallel(graph, cluster)).value().ticks;
    for (std::uint64_t seed = 1; seed <= (is_short_run() ? 3 : 10); ++seed) {
      EXPECT_LE(found_by("mcmc", graph, cluster, 100, seed).time.ticks, pure) << name;
    }
  }
}

constexpr std::int64_t kSamples = 32;

// A product of `inner` for each element of the output; backward is twice the forward.
GraphOperator product(const char* name, std::int64_t positions, std::int64_t channels,
                      std::int64_t inner, std::int64_t weights) {
  GraphOperator one{.name = name};
  one.forward_macs = kSamples * positions * channels * inner;
  one.backward_macs = 2 * one.forward_macs;
  one.parameter_bytes = 4 * weights;
  one.positions = positions;
  one.channels = channels;
  one.splits_positions = positions > 1;
  one.splits_channels = true;
  return one;
}

// A convolution, a pool, in the deep one another convolution, and a linear layer.
OperatorGraph small_cnn(bool is_deep) {
  OperatorGraph graph{.name = is_deep ? "deep cnn" : "cnn", .samples = kSamples};
  graph.operators = {product("conv", 1024, 16, 27, 27 * 16),
                     {.name = "pool",
                      .positions = 256,
                      .channels = 16,
                      .splits_positions = true,
                      .splits_channels = true,
                      .reads_all_channels = false}};
  if (is_deep) graph.operators.push_back(product("conv2", 256, 32, 144, 144 * 32));
  const std::int64_t inner = std::int64_t{256} * (is_deep ? 32 : 16);
  const std::int64_t classes = is_deep ? 1000 : 10;
  graph.operators.push_back(product("fc", 1, classes, inner, inner * classes));
  for (int i = 1; i < graph.size(); ++i) {
    graph.operators[static_cast<std::size_t>(i)].inputs = {i - 1};
  }
  return graph;
}

// Devices of 10^12 products a second on links of 0.5 us.
Cluster slow_gpus(int devices, double byte_ticks) {
  Cluster cluster = even_cluster(devices, byte_ticks, 500);
  cluster.types[0].macs_per_second = 1e12;
  return cluster;
}

void expect_near_best_splits(const OperatorGraph& graph, const Cluster& cluster,
                             std::int64_t best) {
  for (std::uint64_t seed = 1; seed <= (is_short_run() ? 4 : 12); ++seed) {
    const auto found = found_by("mcmc", graph, cluster, 1000, seed).time.ticks;
    EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best))
        << graph.name << " on " << cluster.devices() << " devices, seed " << seed;
    EXPECT_GE(found, best) << graph.name;
  }
}

// Networks whose best strategy divides layers in different ways, so that none that chains begin
// with is within the bound.
TEST(PlacementLaws, Pl4MarkovChainIsWithinFivePercentOfTheOptimum) {
  struct Case {
    OperatorGraph graph;
    Cluster cluster;
  };
  std::vector<Case> cases{
      {graph_of({.name = "mlp", .hidden = {4096}}, {1, 32, 32}, 256), slow_gpus(4, 0.01)},
      {small_cnn(false), slow_gpus(4, 0.003)},
      {small_cnn(true), slow_gpus(2, 0.01)}};
  if (!is_short_run()) cases.push_back({small_cnn(true), slow_gpus(4, 0.01)});
  for (const auto& [graph, cluster] : cases) {
    const std::int64_t best = best_splits(graph, cluster).time.ticks;
    const auto cost = SimulatedCost::make(graph, cluster, {}).value();
    const auto bound = static_cast<std::int64_t>(1.05 * static_cast<double>(best));
    for (const OperatorSplit& split : sample_divisions(graph, cluster)) {
      const OperatorStrategy all(graph.operators.size(), split);
      EXPECT_GT(cost->time(all).value().ticks, bound)
          << graph.name << " on " << split.parts() << " of " << cluster.devices() << " devices";
    }
    EXPECT_GT(found_by("expert", graph, cluster, 10).time.ticks, bound) << graph.name;
    expect_near_best_splits(graph, cluster, best);
  }
}

// The quickest of all placements, and of data parallelism on the first devices, of any number.
std::int64_t best_known(const OperatorGraph& graph, const Cluster& cluster) {
  std::int64_t best = found_by("exhaustive", graph, cluster, kAll).time.ticks;
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  OperatorSplit split;
  for (int count = 1; count <= cluster.devices(); ++count) {
    split.samples = count;
    split.devices.push_back(count - 1);
    const OperatorStrategy all(graph.operators.size(), split);
    best = std::min(best, cost->time(all).value().ticks);
  }
  return best;
}

// Data parallelism over all devices is far off there, and a chain that begins with it stays so.
TEST(PlacementLaws, Pl4MarkovChainIsAsGoodAsWhatIsKnown) {
  std::vector<OperatorGraph> graphs{graph_of({.name = "cnn"}, {3, 32, 32}, 256),
                                    built_in_graph("inception").value(),
                                    graph_of({.name = "mlp"}, {1, 28, 28}, 64)};
  if (!is_short_run()) graphs.push_back(built_in_graph("lstm").value());
  for (const OperatorGraph& graph : graphs) {
    for (const int nodes : {1, 2}) {
      const Cluster cluster = alike_gpus(nodes);
      const auto bound = 1.05 * static_cast<double>(best_known(graph, cluster));
      for (std::uint64_t seed = 1; seed <= (is_short_run() ? 4 : 8); ++seed) {
        const auto found = found_by("mcmc", graph, cluster, 2000, seed).time.ticks;
        EXPECT_LE(static_cast<double>(found), bound)
            << graph.name << " on " << nodes << " nodes, seed " << seed;
      }
    }
  }
}

// Links too slow for any division.
TEST(PlacementLaws, Pl4MarkovChainFindsOneDeviceWhereThatIsBest) {
  const OperatorGraph mlp = graph_of({.name = "mlp", .hidden = {512}}, {1, 16, 16}, 8);
  for (const OperatorGraph& graph : {mlp, small_cnn(false)}) {
    for (const int devices : {2, 4}) {
      const Cluster cluster = even_gpus(devices);
      const std::int64_t best = best_splits(graph, cluster).time.ticks;
      EXPECT_EQ(found_by("one-device", graph, cluster, 10).time.ticks, best) << graph.name;
      expect_near_best_splits(graph, cluster, best);
    }
  }
}

}  // namespace
}  // namespace gradwire::placement_laws_test
