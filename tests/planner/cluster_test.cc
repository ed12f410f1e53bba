// Clusters: what their files say, paths, and errors with lines.
#include "planner/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/cluster/cluster_file.h"
#include "tests/support/fails.h"

namespace gradwire::cluster_test {
namespace {

const std::string kText = R"(name = "two kinds"
[device.fast]
memory = "16G"
macs_per_second = 4e12
[device.slow]
memory = 1048576
macs_per_second = 1000000000
[link.bridge]
latency = 2e-6
bandwidth = 1e10
[link.bus]
latency = 0
bandwidth = 2e9
shared = true
[link.network]
latency = 5e-6
bandwidth = 1e9
shared = true
[link.thin]
latency = 1e-6
bandwidth = 5e8
[[node]]
name = "big"
count = 2
devices = 4
device = "fast"
link = "bridge"
uplink = "network"
[[node]]
name = "small"
devices = 2
device = "slow"
link = "bus"
uplink = "thin"
)";

Cluster cluster() { return parse_cluster(kText, "c.toml").value(); }

TEST(Cluster, FilesSayDevicesNodesAndLinks) {
  const Cluster all = cluster();
  EXPECT_EQ(all.name, "two kinds");
  EXPECT_EQ(all.devices(), 10);
  ASSERT_EQ(all.nodes.size(), 3U);
  EXPECT_EQ(all.nodes[0].name, "big0");
  EXPECT_EQ(all.nodes[1].name, "big1");
  EXPECT_EQ(all.node_of(3), 0);
  EXPECT_EQ(all.node_of(4), 1);
  EXPECT_EQ(all.node_of(9), 2);
  EXPECT_EQ(all.type_of(0).memory_bytes, std::int64_t{16} << 30);
  EXPECT_EQ(all.type_of(9).memory_bytes, 1048576);
  // 5 ports a device with itself, 3 a node.
  EXPECT_EQ(all.resources(), 10 * 5 + 3 * 3);
}

TEST(Cluster, PathsHavePortsBusesAndUplinks) {
  const Cluster all = cluster();
  // In a node without a bus: a port out and one in, those of no other pair.
  const ClusterPath in_node = all.path(0, 1);
  EXPECT_EQ(in_node.latency, 2000);
  EXPECT_EQ(send_ticks(in_node, 10), 1);
  EXPECT_EQ(in_node.resources.size(), 2U);
  EXPECT_NE(in_node.resources, all.path(1, 0).resources);
  EXPECT_EQ(in_node.resources[0], all.path(0, 2).resources[0]);
  EXPECT_EQ(in_node.resources[1], all.path(2, 1).resources[1]);
  // A bus is one thing for all.
  EXPECT_EQ(all.path(8, 9).resources.size(), 1U);
  EXPECT_EQ(all.path(8, 9).resources, all.path(9, 8).resources);
  // Between nodes: shared uplinks are the node's, the others the devices'.
  EXPECT_EQ(all.path(0, 4).resources, all.path(1, 7).resources);
  EXPECT_EQ(all.path(0, 8).resources[0], all.path(1, 8).resources[0]);
  EXPECT_NE(all.path(0, 8).resources[1], all.path(0, 9).resources[1]);
  EXPECT_NE(all.path(0, 4).resources[0], in_node.resources[0]);
  EXPECT_EQ(all.path(0, 8).latency, 5000);
  EXPECT_EQ(send_ticks(all.path(0, 8), 500), 1000);
  EXPECT_EQ(send_ticks(all.path(3, 3), 500), 0);
}

TEST(Cluster, TicksAreRoundedUp) {
  const Cluster all = cluster();
  EXPECT_EQ(compute_ticks(all.type_of(9), 7), 7);
  EXPECT_EQ(compute_ticks(all.type_of(0), 4001), 2);
  EXPECT_EQ(compute_ticks(all.type_of(0), 0), 0);
}

// The error of the text with its line `line` (1 is the first) replaced.
Status with_line(int line, const std::string& text) {
  std::string changed;
  std::size_t begin = 0;
  for (int number = 1; begin < kText.size(); ++number) {
    const std::size_t end = kText.find('\n', begin) + 1;
    changed += number == line ? text + "\n" : kText.substr(begin, end - begin);
    begin = end;
  }
  return parse_cluster(changed, "c.toml").error();
}

TEST(Cluster, ANodeHasOneDeviceWhereNothingIsSaid) {
  std::string text = kText;
  text.erase(text.find("devices = 2\n"), 12);
  const auto read = parse_cluster(text, "c.toml");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().nodes.back().devices, 1);
}

TEST(Cluster, ErrorsNameTheLine) {
  EXPECT_THAT(with_line(3, "memory = \"16GB\""),
              fails(Code::kInvalidArgument, "c.toml:3", "16GB", "16G"));
  EXPECT_THAT(with_line(3, "memory = -1"), fails(Code::kInvalidArgument, "c.toml:3", "memory=-1"));
  EXPECT_THAT(with_line(4, "macs_per_second = 0"),
              fails(Code::kInvalidArgument, "c.toml:4", "macs_per_second=0", "from 1e+06"));
  EXPECT_THAT(with_line(4, ""),
              fails(Code::kInvalidArgument, "c.toml:2", "fast", "macs_per_second"));
  EXPECT_THAT(with_line(10, "bandwidth = -1e10"),
              fails(Code::kInvalidArgument, "c.toml:10", "bandwidth=-1e+10", "from 1000"));
  EXPECT_THAT(with_line(9, ""), fails(Code::kInvalidArgument, "c.toml:8", "bridge", "no latency"));
  EXPECT_THAT(with_line(9, "latency = 1e18"),
              fails(Code::kInvalidArgument, "c.toml:9", "latency=1e+18", "0 to 1000"));
  EXPECT_THAT(with_line(4, "macs_per_second = 1e-6"),
              fails(Code::kInvalidArgument, "c.toml:4", "macs_per_second=1e-06"));
  EXPECT_THAT(with_line(4, "macs_per_second = 999999"),
              fails(Code::kInvalidArgument, "c.toml:4", "macs_per_second=999999", "1e+06"));
  EXPECT_THAT(with_line(4, "macs_per_second = [1e12]"),
              fails(Code::kInvalidArgument, "c.toml:4", "macs_per_second=a list"));
  EXPECT_THAT(with_line(24, "count = 1.5"),
              fails(Code::kInvalidArgument, "c.toml:24", "count=1.5", "whole number"));
  EXPECT_THAT(with_line(10, "bandwidth = 1e-300"),
              fails(Code::kInvalidArgument, "c.toml:10", "bandwidth"));
  EXPECT_THAT(with_line(9, "delay = 1"),
              fails(Code::kInvalidArgument, "c.toml:9", "delay", "latency"));
  EXPECT_THAT(with_line(9, "latency = \"2us\""),
              fails(Code::kInvalidArgument, "c.toml:9", "latency=", "2us", "number"));
  EXPECT_THAT(with_line(9, "transport = \"tcp\""),
              fails(Code::kInvalidArgument, "c.toml:9", "transport", "profile"));
  EXPECT_THAT(with_line(14, "shared = 1"),
              fails(Code::kInvalidArgument, "c.toml:14", "shared=1", "true"));
  EXPECT_THAT(with_line(24, "count = 0"), fails(Code::kInvalidArgument, "c.toml:24", "count", "0"));
  EXPECT_THAT(with_line(26, "device = \"faster\""),
              fails(Code::kInvalidArgument, "c.toml:26", "faster", "fast", "slow"));
  EXPECT_THAT(with_line(27, ""), fails(Code::kInvalidArgument, "c.toml:22", "big", "link"));
  EXPECT_THAT(with_line(34, ""), fails(Code::kInvalidArgument, "c.toml:29", "small", "uplink"));
  EXPECT_THAT(with_line(30, "name = \"big1\""),
              fails(Code::kInvalidArgument, "c.toml:30", "big1", "twice", "line 22"));
  EXPECT_THAT(with_line(1, "title = \"x\""), fails(Code::kInvalidArgument, "c.toml:1", "title"));
  EXPECT_THAT(with_line(1, "name = "), fails(Code::kInvalidArgument, "c.toml:1", "TOML"));
  EXPECT_THAT(parse_cluster("name = \"x\"\n", "c.toml").error(),
              fails(Code::kInvalidArgument, "c.toml", "node"));
}

}  // namespace
}  // namespace gradwire::cluster_test
