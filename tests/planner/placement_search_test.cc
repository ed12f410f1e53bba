// Searchers of strategies, on the networks and bounds of the literature.
#include "planner/search/placement_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/cluster/alike_devices.h"
#include "planner/graph/built_in_graphs.h"
#include "planner/graph/model_graph.h"
#include "planner/search/cut_graph.h"
#include "planner/search/exhaustive.h"
#include "planner/search/have_metis.h"
#include "tests/planner/even_cluster.h"
#include "tests/support/fails.h"
#include "trainer/models.h"

namespace gradwire::placement_search_test {
namespace {

// Devices of 10^13 products a second, links of 10 GB/s and 5 us.
Cluster four_gpus(int devices = 4) {
  Cluster cluster = even_cluster(devices, 0.1, 5000);
  cluster.types[0].macs_per_second = 1e13;
  return cluster;
}

SearchResult search(const std::string& method, const OperatorGraph& graph, const Cluster& cluster,
                    std::int64_t evaluations, std::uint64_t seed = 1) {
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  auto result = search_placement(method, *cost, {.seed = seed, .evaluations = evaluations});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.has_value() ? std::move(result).value() : SearchResult{};
}

TEST(PlacementSearch, EveryMethodFindsAStrategyOfItsTime) {
  const OperatorGraph graph = unrolled_lstm(2, 4, 16, 256);
  const Cluster cluster = four_gpus();
  for (const std::string& method : placement_search_names()) {
    if (method == "metis" && !kHaveMetis) continue;
    const SearchResult result = search(method, graph, cluster, 400);
    const auto cost = SimulatedCost::make(graph, cluster, {}).value();
    EXPECT_EQ(cost->time(result.strategy).value().ticks, result.time.ticks) << method;
    EXPECT_LE(result.evaluations, 400) << method;
    ASSERT_FALSE(result.best.empty()) << method;
    EXPECT_EQ(result.best.back().time.ticks, result.time.ticks) << method;
    for (std::size_t i = 1; i < result.best.size(); ++i) {
      EXPECT_LT(result.best[i].time, result.best[i - 1].time) << method;
      EXPECT_GT(result.best[i].evaluation, result.best[i - 1].evaluation) << method;
    }
  }
}

TEST(PlacementSearch, TheSameSeedFindsTheSame) {
  const OperatorGraph graph = inception_like(1, 8, 16);
  for (const std::string method : {"random", "min-cut", "reinforce", "reinforce-lstm", "mcmc"}) {
    const SearchResult a = search(method, graph, four_gpus(), 300, 5);
    const SearchResult b = search(method, graph, four_gpus(), 300, 5);
    EXPECT_EQ(a.strategy, b.strategy) << method;
    EXPECT_EQ(a.best.size(), b.best.size()) << method;
  }
}

// Those that cut the graph: ours, and METIS's where this build has it.
std::vector<std::string> cut_methods() {
  std::vector<std::string> methods{"min-cut"};
  if (kHaveMetis) methods.emplace_back("metis");
  return methods;
}

// Two chains of six groups that read one small output of each other: no cut has fewer bytes than
// the one between them.
TEST(PlacementSearch, CutsGoWhereFewestBytesDo) {
  OperatorGraph graph{.name = "two chains", .samples = 4};
  for (int i = 0; i < 12; ++i) {
    GraphOperator one{.name = "o" + std::to_string(i)};
    one.forward_macs = 1000;
    one.backward_macs = 2000;
    one.channels = i == 4 ? 1 : 64;  // read by the other chain
    if (i >= 2) one.inputs = {i - 2};
    if (i == 7) one.inputs.insert(one.inputs.begin(), 4);
    graph.operators.push_back(one);
  }
  for (const std::string& method : cut_methods()) {
    const SearchResult result = search(method, graph, four_gpus(2), 100);
    std::vector<int> devices;
    const CutGraph cuts(graph);
    for (const OperatorSplit& one : result.strategy) devices.push_back(one.devices.front());
    EXPECT_EQ(cuts.cut(devices), 2 * 4 * 4) << method;
    EXPECT_NE(devices[0], devices[1]) << method;
  }
}

TEST(PlacementSearch, MetisIsRefusedByNameWhereItIsNotBuilt) {
  const OperatorGraph graph = built_in_graph("lstm").value();
  const Cluster cluster = four_gpus();
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  const auto found = search_placement("metis", *cost, {});
  EXPECT_EQ(found.has_value(), kHaveMetis);
  if (!kHaveMetis) {
    EXPECT_THAT(found.error(), fails(Code::kUnsupported, "metis", "libmetis-dev", "min-cut"));
  }
}

// More devices than groups, groups that read nothing of each other, and products beyond 32 bits.
TEST(PlacementSearch, CutsServeGraphsOfAnyShape) {
  OperatorGraph graph{.name = "apart", .samples = 1};
  for (int i = 0; i < 3; ++i) {
    GraphOperator one{.name = "o" + std::to_string(i)};
    one.forward_macs = std::int64_t{1} << 50;
    graph.operators.push_back(one);
  }
  for (const std::string& method : cut_methods()) {
    for (const int devices : {1, 2, 4}) {
      const SearchResult result = search(method, graph, four_gpus(devices), 10);
      EXPECT_GE(result.evaluations, 1) << method << " " << devices;
    }
  }
}

// The expert's placement, a cut's and a random one's on a recurrent and a convolutional network:
// what is placed well beats what is not.
TEST(PlacementSearch, Pl1ExpertAndMinCutBeatARandomPlacement) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    const Cluster cluster = four_gpus();
    const auto expert = search("expert", graph, cluster, 100).time.ticks;
    const auto one = search("one-device", graph, cluster, 100).time.ticks;
    EXPECT_LE(expert, one) << name;
    double random = 0;  // a placement that is not chosen among others
    constexpr int kTrials = 20;
    for (int seed = 1; seed <= kTrials; ++seed) {
      random +=
          static_cast<double>(
              search("random", graph, cluster, 1, static_cast<std::uint64_t>(seed)).time.ticks) /
          kTrials;
    }
    EXPECT_LT(static_cast<double>(expert), random) << name;
    for (const std::string& method : cut_methods()) {
      const auto cut = search(method, graph, cluster, 100).time.ticks;
      EXPECT_LT(static_cast<double>(cut), random) << name << " " << method;
    }
  }
}

TEST(PlacementSearch, Pl2ReinforceIsWithinFivePercentOfTheOptimum) {
  for (const OperatorGraph& graph : {unrolled_lstm(2, 6, 64, 1024), inception_like(1, 32, 64)}) {
    ASSERT_LE(graph.groups().size(), 10U);
    const auto best = search("exhaustive", graph, four_gpus(), 100'000).time.ticks;
    for (const std::string method : {"reinforce", "reinforce-lstm"}) {
      const auto found = search(method, graph, four_gpus(), 3000).time.ticks;
      EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best))
          << graph.name << " " << method;
      EXPECT_GE(found, best) << graph.name << " " << method;
    }
  }
}

TEST(PlacementSearch, Pl2ReinforceIsAsGoodAsTheExpert) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    const auto expert = search("expert", graph, four_gpus(), 100).time.ticks;
    for (const std::string method : {"reinforce", "reinforce-lstm"}) {
      EXPECT_LE(search(method, graph, four_gpus(), 3000).time.ticks, expert)
          << name << " " << method;
    }
  }
}

// Two nodes of two alike devices, and one of two others: every placement of five groups, of which
// those alone are evaluated that none before them equals by names.
TEST(PlacementSearch, ExhaustiveTriesEachPlacementOnceUpToAlikeDevicesAndNodes) {
  Cluster cluster = uneven_cluster(2, 0.1);
  ClusterNode third = cluster.nodes[0];
  third.name = "third";
  cluster.nodes.push_back(third);
  OperatorGraph graph = inception_like(1, 8, 16);
  graph.operators.resize(5);
  for (GraphOperator& one : graph.operators) one.group.clear();
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  StrategyTime best;
  std::set<std::vector<int>> different;
  for (int number = 0; number < 6 * 6 * 6 * 6 * 6; ++number) {
    std::vector<int> place;
    for (int rest = number; place.size() < 5; rest /= 6) place.push_back(rest % 6);
    const StrategyTime time = cost->time(place_groups(graph, place)).value();
    if (number == 0 || time < best) best = time;
    const std::vector<int> names = renamed_alike(cluster, place);
    for (int& device : place) device = names[static_cast<std::size_t>(device)];
    different.insert(place);
  }
  const SearchResult found = search("exhaustive", graph, cluster, 100'000);
  EXPECT_EQ(found.evaluations, static_cast<std::int64_t>(different.size()));
  EXPECT_EQ(found.time.ticks, best.ticks);
  EXPECT_THAT(search_placement("exhaustive", *cost, {.evaluations = 3}).error(),
              fails(Code::kInvalidArgument, std::to_string(different.size()), "budget of 3"));
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

TEST(PlacementSearch, Pl4MarkovChainIsNeverWorseThanDataParallelism) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    const Cluster cluster = four_gpus();
    const auto cost = SimulatedCost::make(graph, cluster, {}).value();
    const auto pure = cost->time(data_parallel(graph, cluster)).value().ticks;
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
      EXPECT_LE(search("mcmc", graph, cluster, 100, seed).time.ticks, pure) << name;
    }
  }
}

// A convolution, a pool and a linear layer.
OperatorGraph small_cnn() {
  constexpr std::int64_t kSamples = 32;
  OperatorGraph graph{.name = "cnn", .samples = kSamples};
  const std::int64_t convolved = kSamples * 1024 * 16 * 27;
  const std::int64_t product = kSamples * 256 * 16 * 10;
  graph.operators = {{.name = "conv",
                      .forward_macs = convolved,
                      .backward_macs = 2 * convolved,
                      .parameter_bytes = 4 * 27 * 16,
                      .positions = 1024,
                      .channels = 16,
                      .splits_positions = true,
                      .splits_channels = true},
                     {.name = "pool",
                      .positions = 256,
                      .channels = 16,
                      .splits_positions = true,
                      .splits_channels = true,
                      .reads_all_channels = false,
                      .inputs = {0}},
                     {.name = "fc",
                      .forward_macs = product,
                      .backward_macs = 2 * product,
                      .parameter_bytes = 4 * 256 * 16 * 10,
                      .channels = 10,
                      .splits_channels = true,
                      .inputs = {1}}};
  return graph;
}

TEST(PlacementSearch, Pl4MarkovChainIsWithinFivePercentOfTheOptimum) {
  const OperatorGraph mlp = graph_of({.name = "mlp", .hidden = {512}}, {1, 16, 16}, 8);
  const OperatorGraph cnn = small_cnn();
  for (const OperatorGraph& graph : {mlp, cnn}) {
    for (const int devices : {2, 4}) {
      const Cluster cluster = four_gpus(devices);
      const auto best = best_splits(graph, cluster).time.ticks;
      const auto found = search("mcmc", graph, cluster, 4000).time.ticks;
      EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best))
          << graph.operators.size() << " operators, " << devices << " devices";
      EXPECT_GE(found, best);
    }
  }
}

TEST(PlacementSearch, BadQuestionsAreNamed) {
  const OperatorGraph graph = built_in_graph("lstm").value();
  const Cluster cluster = four_gpus();
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  EXPECT_THAT(search_placement("annealing", *cost, {}).error(),
              fails(Code::kInvalidArgument, "annealing", "mcmc"));
  EXPECT_THAT(search_placement("random", *cost, {.evaluations = 0}).error(),
              fails(Code::kInvalidArgument, "0 evaluations"));
  // 10 groups on 4 devices that are alike: the partitions of 10 into at most 4.
  EXPECT_THAT(search_placement("exhaustive", *cost, {.evaluations = 1000}).error(),
              fails(Code::kInvalidArgument, "exhaustive", "43947", "1000"));
}

}  // namespace
}  // namespace gradwire::placement_search_test
