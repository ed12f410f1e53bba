// Searchers of strategies: what each does, and what they refuse.
#include "planner/search/placement_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/cluster/alike_devices.h"
#include "planner/graph/built_in_graphs.h"
#include "planner/search/cut_graph.h"
#include "tests/planner/even_cluster.h"
#include "tests/planner/placement_cases.h"
#include "tests/support/fails.h"

namespace gradwire::placement_search_test {
namespace {

TEST(PlacementSearch, EveryMethodFindsAStrategyOfItsTime) {
  const OperatorGraph graph = unrolled_lstm(2, 4, 16, 256);
  const Cluster cluster = even_gpus();
  for (const std::string& method : placement_search_names()) {
    if (method == "metis" && !kHaveMetis) continue;
    const SearchResult result = found_by(method, graph, cluster, 400);
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
    const SearchResult a = found_by(method, graph, even_gpus(), 300, 5);
    const SearchResult b = found_by(method, graph, even_gpus(), 300, 5);
    EXPECT_EQ(a.strategy, b.strategy) << method;
    EXPECT_EQ(a.best.size(), b.best.size()) << method;
  }
}

// Five layers on two devices: consecutive ones, three and two; of embeddings and heads each is with
// its layer.
TEST(PlacementSearch, TheExpertPlacesConsecutiveLayersOnADevice) {
  const OperatorGraph graph = unrolled_lstm(5, 8, 64, 1024);
  const SearchResult found = found_by("expert", graph, even_gpus(2), 10);
  for (int number = 0; number < graph.size(); ++number) {
    const GraphOperator& one = graph.at(number);
    EXPECT_EQ(found.strategy[static_cast<std::size_t>(number)].devices,
              std::vector<int>{one.layer < 3 ? 0 : 1})
        << one.name;
  }
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
    const SearchResult result = found_by(method, graph, even_gpus(2), 100);
    std::vector<int> devices;
    const CutGraph cuts(graph);
    for (const OperatorSplit& one : result.strategy) devices.push_back(one.devices.front());
    EXPECT_EQ(cuts.cut(devices), 2 * 4 * 4) << method;
    EXPECT_NE(devices[0], devices[1]) << method;
  }
}

TEST(PlacementSearch, MetisIsRefusedByNameWhereItIsNotBuilt) {
  const OperatorGraph graph = built_in_graph("lstm").value();
  const Cluster cluster = even_gpus();
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
      const SearchResult result = found_by(method, graph, even_gpus(devices), 10);
      EXPECT_GE(result.evaluations, 1) << method << " " << devices;
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
  const SearchResult found = found_by("exhaustive", graph, cluster, 100'000);
  EXPECT_EQ(found.evaluations, static_cast<std::int64_t>(different.size()));
  EXPECT_EQ(found.time.ticks, best.ticks);
  EXPECT_THAT(search_placement("exhaustive", *cost, {.evaluations = 3}).error(),
              fails(Code::kInvalidArgument, std::to_string(different.size()), "budget of 3"));
}

TEST(PlacementSearch, BadQuestionsAreNamed) {
  const OperatorGraph graph = built_in_graph("lstm").value();
  const Cluster cluster = even_gpus();
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
