// Searchers of strategies, on the networks and bounds of the literature.
#include "planner/search/placement_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/graph/built_in_graphs.h"
#include "planner/graph/model_graph.h"
#include "planner/search/exhaustive.h"
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
  for (const std::string method : {"random", "min-cut", "reinforce", "mcmc"}) {
    const SearchResult a = search(method, graph, four_gpus(), 300, 5);
    const SearchResult b = search(method, graph, four_gpus(), 300, 5);
    EXPECT_EQ(a.strategy, b.strategy) << method;
    EXPECT_EQ(a.best.size(), b.best.size()) << method;
  }
}

// The expert's placement, a cut's and a random one's on a recurrent and a convolutional network:
// what is placed well beats what is not.
TEST(PlacementSearch, Pl1ExpertAndMinCutBeatARandomPlacement) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    const Cluster cluster = four_gpus();
    const auto expert = search("expert", graph, cluster, 100).time.ticks;
    const auto cut = search("min-cut", graph, cluster, 100).time.ticks;
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
    EXPECT_LT(static_cast<double>(cut), random) << name;
  }
}

TEST(PlacementSearch, Pl2ReinforceIsWithinFivePercentOfTheOptimum) {
  for (const OperatorGraph& graph : {unrolled_lstm(2, 6, 64, 1024), inception_like(1, 32, 64)}) {
    ASSERT_LE(graph.groups().size(), 10U);
    const auto best = search("exhaustive", graph, four_gpus(), 100'000).time.ticks;
    const auto found = search("reinforce", graph, four_gpus(), 3000).time.ticks;
    EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best)) << graph.name;
    EXPECT_GE(found, best) << graph.name;
  }
}

TEST(PlacementSearch, Pl2ReinforceIsAsGoodAsTheExpert) {
  for (const std::string& name : built_in_graph_names()) {
    const OperatorGraph graph = built_in_graph(name).value();
    EXPECT_LE(search("reinforce", graph, four_gpus(), 3000).time.ticks,
              search("expert", graph, four_gpus(), 100).time.ticks)
        << name;
  }
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
