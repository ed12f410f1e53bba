// Searchers of strategies on the networks and bounds of the literature, against everything where
// that is few enough: 10 groups on 4 devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/graph/built_in_graphs.h"
#include "planner/graph/model_graph.h"
#include "planner/search/exhaustive.h"
#include "planner/search/placement_search.h"
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

// Seeds 1 to so many.
std::uint64_t seeds_of(const std::string& method) {
  if (is_short_run()) return method == "reinforce" ? 3 : 1;
  return method == "reinforce" ? 8 : 3;
}

void expect_near_optimum(const std::string& method, const OperatorGraph& graph,
                         const Cluster& cluster, std::int64_t evaluations, std::uint64_t seeds) {
  ASSERT_LE(graph.groups().size(), 10U);
  const auto best = found_by("exhaustive", graph, cluster, kAll).time.ticks;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto found = found_by(method, graph, cluster, evaluations, seed).time.ticks;
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
        EXPECT_LE(found_by(method, graph, even_gpus(), 3000, seed).time.ticks, expert)
            << name << ' ' << method << ", seed " << seed;
      }
    }
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

TEST(PlacementLaws, Pl4MarkovChainIsWithinFivePercentOfTheOptimum) {
  const OperatorGraph mlp = graph_of({.name = "mlp", .hidden = {512}}, {1, 16, 16}, 8);
  const OperatorGraph cnn = small_cnn();
  for (const OperatorGraph& graph : {mlp, cnn}) {
    for (const int devices : {2, 4}) {
      const Cluster cluster = even_gpus(devices);
      const auto best = best_splits(graph, cluster).time.ticks;
      for (std::uint64_t seed = 1; seed <= (is_short_run() ? 2 : 10); ++seed) {
        const auto found = found_by("mcmc", graph, cluster, 4000, seed).time.ticks;
        EXPECT_LE(static_cast<double>(found), 1.05 * static_cast<double>(best))
            << graph.operators.size() << " operators, " << devices << " devices, seed " << seed;
        EXPECT_GE(found, best);
      }
    }
  }
}

}  // namespace
}  // namespace gradwire::placement_laws_test
