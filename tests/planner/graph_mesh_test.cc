// Placements that are meshes, and the meshes beside those that are none.
#include "planner/search/graph_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "planner/cluster/alike_devices.h"
#include "tests/planner/even_cluster.h"
#include "tests/support/fails.h"

namespace gradwire::graph_mesh_test {
namespace {

using ::testing::ElementsAre;

// A chain of `layers` operators of as many products each, the first of which has no parameters.
OperatorGraph chain(int layers) {
  OperatorGraph graph{.name = "chain", .samples = 8};
  for (int i = 0; i < layers; ++i) {
    GraphOperator one{.name = "l" + std::to_string(i)};
    one.forward_macs = i == 0 ? 0 : 800;
    one.backward_macs = i == 0 ? 0 : 1600;
    one.parameter_bytes = i == 0 ? 0 : 400;
    one.channels = 10;
    one.splits_channels = true;
    if (i > 0) one.inputs = {i - 1};
    graph.operators.push_back(one);
  }
  return graph;
}

OperatorStrategy on(const std::vector<std::vector<int>>& devices) {
  OperatorStrategy strategy;
  for (const auto& one : devices) {
    strategy.push_back({.samples = static_cast<int>(one.size()), .devices = one});
  }
  return strategy;
}

TEST(GraphMesh, StagesOfAsManyReplicasAreAMesh) {
  const OperatorGraph graph = chain(4);
  const Cluster cluster = even_cluster(4, 1);
  const GraphMesh mesh = mesh_of(graph, cluster, on({{2, 0}, {2, 0}, {2, 0}, {1, 3}})).value();
  EXPECT_EQ(mesh.dp, 2);
  EXPECT_EQ(mesh.pp, 2);
  EXPECT_THAT(mesh.layers, ElementsAre(3, 1));
  EXPECT_THAT(mesh.devices, ElementsAre(2, 0, 1, 3));
  EXPECT_EQ(to_string(mesh), "dp=2,pp=2/1f1b[stages=3+1]");
  EXPECT_EQ(mesh_of(graph, cluster, strategy_of(mesh)).value(), mesh);
  EXPECT_EQ(to_string(mesh_of(graph, cluster, on({{3}, {3}, {3}, {3}})).value()), "dp=1");
}

TEST(GraphMesh, AnythingElseIsRefusedByName) {
  const OperatorGraph graph = chain(4);
  const Cluster cluster = even_cluster(4, 1);
  const auto refused = [&](const OperatorStrategy& strategy) {
    return mesh_of(graph, cluster, strategy).error();
  };
  OperatorStrategy divided = on({{0, 1}, {0, 1}, {0, 1}, {0, 1}});
  divided[2] = {.channels = 2, .devices = {0, 1}};
  EXPECT_THAT(refused(divided), fails(Code::kUnsupported, "'l2'", "channels"));
  EXPECT_THAT(refused(on({{0}, {0}, {1, 2}, {1, 2}})), fails(Code::kUnsupported, "'l2'", "'l0'"));
  EXPECT_THAT(refused(on({{0}, {1}, {0}, {1}})), fails(Code::kUnsupported, "'l2'", "device 0"));
  EXPECT_THAT(refused(on({{0, 0}, {0, 0}, {0, 0}, {0, 0}})), fails(Code::kUnsupported, "'l0'"));
  const std::vector<int> three{0, 1, 2};
  EXPECT_THAT(refused(on({three, three, three, three})), fails(Code::kUnsupported, "8 samples"));
  EXPECT_THAT(mesh_of(graph, uneven_cluster(2, 1), on({{0}, {2}, {1}, {3}})).error(),
              fails(Code::kUnsupported, "rank 2", "'node'"));
}

TEST(GraphMesh, EvenMeshesDivideDevicesAndProducts) {
  const std::vector<GraphMesh> all = even_meshes(chain(5), even_cluster(4, 1)).value();
  std::vector<std::string> names;
  for (const GraphMesh& mesh : all) names.push_back(to_string(mesh));
  // The first operator has no parameters, and is with the second one.
  EXPECT_THAT(names, ElementsAre("dp=1", "dp=2", "dp=4", "dp=1,pp=2/1f1b[stages=3+2]",
                                 "dp=2,pp=2/1f1b[stages=3+2]", "dp=1,pp=4/1f1b[stages=2+1+1+1]"));
}

TEST(GraphMesh, TheNearestIsOnTheSameDevicesUpToTheirNames) {
  const OperatorGraph graph = chain(5);
  const Cluster cluster = even_cluster(4, 1);
  const auto cost = SimulatedCost::make(graph, cluster, {}).value();
  const MeshTime time = [&cost](const GraphMesh& mesh) { return cost->time(strategy_of(mesh)); };
  // As dp=1,pp=2 but for the third operator, with other devices of the node.
  const NearMeshes near = near_meshes(graph, cluster, on({{3}, {3}, {1}, {1}, {1}}), time).value();
  EXPECT_EQ(to_string(near.nearest.mesh), "dp=1,pp=2/1f1b[stages=3+2]");
  EXPECT_DOUBLE_EQ(near.nearest.agreement, 0.8);
  EXPECT_EQ(near.nearest.time.ticks, time(near.nearest.mesh).value().ticks);
  const std::vector<GraphMesh> all = even_meshes(graph, cluster).value();
  for (const GraphMesh& mesh : all) {
    EXPECT_GE(time(mesh).value().ticks, near.fastest.time.ticks) << to_string(mesh);
  }
}

TEST(GraphMesh, AlikeDevicesAreThoseOfANodeAndOfAlikeNodes) {
  Cluster cluster = uneven_cluster(2, 1);  // two nodes of two, of other types
  ClusterNode third = cluster.nodes[0];
  third.name = "third";
  cluster.nodes.push_back(third);
  EXPECT_THAT(alike_nodes(cluster), ElementsAre(0, 1, 0));
  EXPECT_THAT(renamed_alike(cluster, {5, 3, 5, 0}), ElementsAre(4, -1, -1, 2, -1, 0));
  AlikeDevices used(cluster);
  const auto candidates = [&] {
    std::set<int> all;
    for (int device = 0; device < 6; ++device) {
      if (used.stands_for_others(device)) all.insert(device);
    }
    return all;
  };
  EXPECT_THAT(candidates(), ElementsAre(0, 2));
  used.use(0);
  EXPECT_THAT(candidates(), ElementsAre(0, 1, 2, 4));
  used.use(4);
  EXPECT_THAT(candidates(), ElementsAre(0, 1, 2, 4, 5));
  used.stop_using(4);
  used.stop_using(0);
  EXPECT_THAT(candidates(), ElementsAre(0, 2));
}

}  // namespace
}  // namespace gradwire::graph_mesh_test
