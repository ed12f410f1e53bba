// Profiles: their file, what is read off them, what is measured, and the planner's use of them.
#include "planner/profile/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "planner/cluster/cluster_file.h"
#include "planner/cost/strategy_cost.h"
#include "planner/graph/built_in_graphs.h"
#include "planner/profile/device_times.h"
#include "planner/profile/link_times.h"
#include "planner/profile/measure.h"
#include "planner/profile/profile_file.h"
#include "tests/support/fails.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"

namespace gradwire::testing::profile_test {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

Profile example() {
  Profile profile;
  profile.conditions = {.host = "node1",
                        .processor = "A \"fast\" one",
                        .cores = 2,
                        .threads = 1,
                        .kernel = "Linux 6.1",
                        .build = "gradwire 0.1.0 (abc)",
                        .date = "2026-01-31T12:00:00Z"};
  profile.layers = {{.name = "mlp fc1",
                     .input = {64, 1, 1},
                     .output = {128, 1, 1},
                     .parameters = 8320,
                     .forward_macs = 8192,
                     .backward_macs = 16384,
                     .rows = 8,
                     .forward_seconds = 1.0 / 3e5,
                     .backward_seconds = 2e-5}};
  profile.products = {{.rows = 8, .in = 16, .out = 16, .seconds = 1e-6},
                      {.rows = 8, .in = 64, .out = 64, .seconds = 9e-6}};
  profile.optimizers = {{.name = "adamw", .elements = 1000, .seconds = 2e-6}};
  profile.codecs = {{.spec = "qsgd:bits=4",
                     .elements = 1000,
                     .encode_seconds = 1e-6,
                     .decode_seconds = 5e-7,
                     .bits_per_element = 4.25}};
  profile.links = {{.transport = "tcp",
                    .latency_seconds = 2e-5,
                    .bytes_per_second = 1.5e9,
                    .cpu_seconds_per_byte = 4e-10}};
  profile.exchanges = {
      {.transport = "tcp", .spec = "none", .elements = 16, .buckets = 1, .seconds = 6e-5},
      {.transport = "tcp", .spec = "none", .elements = 16, .buckets = 5, .seconds = 1.8e-4},
      {.transport = "tcp", .spec = "qsgd:bits=4", .elements = 100, .buckets = 1, .seconds = 1e-4},
      {.transport = "tcp", .spec = "qsgd:bits=4", .elements = 300, .buckets = 1, .seconds = 3e-4}};
  profile.messages = {{.transport = "tcp", .seconds = 5e-5, .send_seconds = 1e-5}};
  profile.sums = {{.elements = 1000, .seconds = 4e-6}};
  return profile;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, text.npos) << what;
  return at == text.npos ? text : text.replace(at, what.size(), with);
}

TEST(ProfileFile, IsReadBackToTheBit) {
  const std::string text = profile_text(example());
  const auto read = parse_profile(text, "p.json");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(profile_text(read.value()), text);
  EXPECT_EQ(read.value().layers[0].forward_seconds, 1.0 / 3e5);
  EXPECT_EQ(read.value().layers[0].output, (SampleShape{128, 1, 1}));
  EXPECT_EQ(read.value().conditions.processor, "A \"fast\" one");
  const auto empty = parse_profile(profile_text({}), "p.json");
  // cores and threads of a profile without conditions are 1.
  ASSERT_TRUE(empty.has_value()) << empty.error().message();
  EXPECT_TRUE(empty.value().layers.empty());
}

// What earlier versions wrote has no exchanges, messages and sums.
TEST(ProfileFile, OfAnEarlierVersionIsRead) {
  std::string text = profile_text(example());
  text = text.substr(0, text.find(",\n\"exchanges\"")) + "}\n";
  const auto read = parse_profile(text, "p.json");
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read.value().links.size(), 1U);
  EXPECT_TRUE(read.value().exchanges.empty());
  EXPECT_TRUE(read.value().messages.empty());
  EXPECT_FALSE(LinkTimes(read.value(), "tcp").any());
}

TEST(ProfileFile, LinesAreOneForEachThingMeasured) {
  const std::string lines = profile_lines(example());
  for (const char* part : {"{\"kind\":\"exchange\",\"transport\":\"tcp\",\"spec\":\"none\"",
                           "{\"kind\":\"message\",\"transport\":\"tcp\",\"seconds\":5e-05",
                           "{\"kind\":\"sum\",\"elements\":1000,\"seconds\":4e-06}"}) {
    EXPECT_THAT(lines, ::testing::HasSubstr(part));
  }
}

TEST(ProfileFile, ErrorsNameTheLine) {
  const std::string good = profile_text(example());
  const auto refused = [&](const std::string& what, const std::string& with) {
    return parse_profile(replaced(good, what, with), "p.json").error();
  };
  // Lines: 1 the machine, 2 and 3 layers, 4 to 6 products, 7 and 8 optimizers, ...
  EXPECT_THAT(refused("{\"profile\": 1", "{\"profile\": 2"),
              fails(Code::kInvalidArgument, "p.json:1:", "version"));
  EXPECT_THAT(refused("\"cores\":2", "\"cores\":0"),
              fails(Code::kInvalidArgument, "p.json:1:", "cores=0", "expected 1"));
  EXPECT_THAT(refused("\"host\":\"node1\",", ""),
              fails(Code::kInvalidArgument, "p.json:1:", "no \"host\""));
  EXPECT_THAT(refused("\"rows\":8,\"forward", "\"rows\":-8,\"forward"),
              fails(Code::kInvalidArgument, "p.json:3:", "rows=-8"));
  EXPECT_THAT(refused("[64,1,1]", "[64,1]"),
              fails(Code::kInvalidArgument, "p.json:3:", "input", "three sizes"));
  EXPECT_THAT(refused("\"seconds\":9e-06", "\"seconds\":\"9\""),
              fails(Code::kInvalidArgument, "p.json:6:", "seconds must be a number"));
  EXPECT_THAT(refused("\"seconds\":2e-06", "\"seconds\":2e-06,\"minutes\":1"),
              fails(Code::kInvalidArgument, "p.json:8:", "unknown key 'minutes'"));
  EXPECT_THAT(refused("\"bytes_per_second\":1500000000.0", "\"bytes_per_second\":-1"),
              fails(Code::kInvalidArgument, "p.json:12:", "bytes_per_second=-1"));
  // Sizes whose products are beyond any number.
  EXPECT_THAT(refused("\"rows\":8,\"in\":64,\"out\":64",
                      "\"rows\":1099511627776,\"in\":1099511627776,\"out\":64"),
              fails(Code::kInvalidArgument, "p.json:6:", "at most 2^60"));
  EXPECT_THAT(refused("\"rows\":8,\"forward", "\"rows\":1125899906842624,\"forward"),
              fails(Code::kInvalidArgument, "p.json:3:", "layer", "at most 2^60"));
  EXPECT_THAT(refused("\"latency_seconds\":2e-05", "\"latency_seconds\":1e+17"),
              fails(Code::kInvalidArgument, "p.json:12:", "latency_seconds=1e+17"));
  EXPECT_THAT(refused("\"codecs\"", "\"coders\""),
              fails(Code::kInvalidArgument, "p.json:1:", "no \"codecs\""));
  EXPECT_THAT(refused("\"send_seconds\":1e-05", "\"send_seconds\":1e+05"),
              fails(Code::kInvalidArgument, "p.json:", "a message", "send_seconds=1e+05"));
  EXPECT_THAT(refused("\"buckets\":5", "\"buckets\":0"),
              fails(Code::kInvalidArgument, "p.json:", "buckets=0", "expected 1"));
  EXPECT_THAT(refused("}]}", "}]"), fails(Code::kInvalidArgument, "p.json:"));
  EXPECT_THAT(parse_profile("[]", "p.json").error(),
              fails(Code::kInvalidArgument, "p.json:1:", "object"));
}

TEST(ProfileTimes, AreOnTheLineBetweenWhatWasMeasured) {
  const MeasuredTimes times{{100, 2.0}, {200, 3.0}, {400, 7.0}};
  EXPECT_THAT(time_of(times, 100), Optional(DoubleEq(2.0)));
  EXPECT_THAT(time_of(times, 150), Optional(DoubleEq(2.5)));
  EXPECT_THAT(time_of(times, 300), Optional(DoubleEq(5.0)));
  EXPECT_THAT(time_of(times, 500), Optional(DoubleEq(9.0)));
  EXPECT_THAT(time_of(times, 50), Optional(DoubleEq(1.5)));
  EXPECT_THAT(time_of({{100, 5.0}, {200, 15.0}}, 10), Optional(DoubleEq(0.0)));
  EXPECT_THAT(time_of({{100, 5.0}, {200, 4.0}}, 1000), Optional(DoubleEq(4.0)));
  EXPECT_THAT(time_of({{100, 2.0}}, 50), Optional(DoubleEq(1.0)));
  EXPECT_EQ(time_of({}, 50), std::nullopt);
}

TEST(ProfileTimes, AreFoundByWhatWasMeasured) {
  Profile profile = example();
  profile.products.push_back({.rows = 8, .in = 16, .out = 16, .seconds = 3e-6});
  profile.products.push_back({.rows = 16, .in = 8, .out = 16, .seconds = 2e-6});
  // Three products of 2,048: the median.
  EXPECT_EQ(product_times(profile), (MeasuredTimes{{2048, 2e-6}, {32768, 9e-6}}));
  ProfiledLayer shape = profile.layers[0];
  shape.name = "another model's";
  shape.rows = 99;
  EXPECT_EQ(layer_times(profile, shape).backward, (MeasuredTimes{{8, 2e-5}}));
  shape.parameters += 1;
  EXPECT_TRUE(layer_times(profile, shape).forward.empty());
  EXPECT_EQ(optimizer_times(profile, "adamw"), (MeasuredTimes{{1000, 2e-6}}));
  EXPECT_TRUE(optimizer_times(profile, "sgd").empty());
  EXPECT_EQ(encode_times(profile, "qsgd:bits=4"), (MeasuredTimes{{1000, 1e-6}}));
  EXPECT_EQ(decode_times(profile, "qsgd:bits=4"), (MeasuredTimes{{1000, 5e-7}}));
  ASSERT_NE(find_link(profile, "tcp"), nullptr);
  EXPECT_EQ(find_link(profile, "shm"), nullptr);
}

TEST(ProfileTimes, OfALinkAreWhatStepsAndMessagesTakeBesides) {
  const LinkTimes tcp(example(), "tcp");
  EXPECT_TRUE(tcp.any());
  EXPECT_DOUBLE_EQ(tcp.bucket(), 3e-5);  // four more take 0.12 ms
  EXPECT_THAT(tcp.exchange("none", 16), Optional(DoubleEq(6e-5)));
  const std::string method = canonical_method("qsgd:bits=4");
  EXPECT_THAT(tcp.exchange(method, 200), Optional(DoubleEq(2e-4)));
  EXPECT_EQ(tcp.exchange("topk:ratio=0.5", 200), std::nullopt);
  EXPECT_DOUBLE_EQ(tcp.waits(), 3e-5);  // behind a latency of 20 us
  EXPECT_DOUBLE_EQ(tcp.send(), 1e-5);
  EXPECT_DOUBLE_EQ(tcp.latency(), 2e-5);
  EXPECT_DOUBLE_EQ(tcp.processor(), 4e-10);
  EXPECT_FALSE(LinkTimes(example(), "shm").any());
  EXPECT_EQ(sum_times(example()), (MeasuredTimes{{1000, 4e-6}}));
}

TEST(ProfileOfAnotherMachine, IsRefusedByName) {
  const Profile profile = example();
  ProfileConditions here = profile.conditions;
  here.date = "2027-01-01T00:00:00Z";
  here.build = "gradwire 0.2.0";
  here.kernel = "Linux 7";
  EXPECT_TRUE(check_same_machine(profile, "p.json", here).ok());
  here.cores = 16;
  EXPECT_THAT(check_same_machine(profile, "p.json", here),
              fails(Code::kInvalidArgument, "p.json", "cores '2'", "'16'"));
  here.processor = "another";
  EXPECT_THAT(check_same_machine(profile, "p.json", here),
              fails(Code::kInvalidArgument, "p.json", "processor", "fast", "another"));
  here.host = "node2";
  EXPECT_THAT(check_same_machine(profile, "p.json", here),
              fails(Code::kInvalidArgument, "p.json", "host 'node1'", "'node2'"));
}

DataSet digits() { return std::move(load_data_set("digits", {})).value(); }

// No time is compared: what is measured has the model's shapes, in its order.
TEST(ProfileMeasures, LayersByTheirShape) {
  const DataSet data = digits();
  const Model<float> model =
      std::move(make_model<float>({"cnn"}, data.shape(), data.classes())).value();
  const auto layers = measure_layers(model, data, "cnn", 4, 2);
  ASSERT_TRUE(layers.has_value()) << layers.error().message();
  ASSERT_EQ(layers.value().size(), model.layers() + 1);
  EXPECT_EQ(layers.value().back().name, "cnn loss");
  EXPECT_EQ(layers.value().back().input, model.output());
  EXPECT_GT(layers.value().back().forward_seconds, 0);
  // The first layer that has parameters derives no gradient of the data.
  const LayerCost first = model.layer(0).cost();
  ASSERT_GT(first.input_macs, 0);
  EXPECT_EQ(layers.value().front().backward_macs, first.weight_macs);
  std::int64_t parameters = 0;
  double forward = 0;
  double backward = 0;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const ProfiledLayer& one = layers.value()[layer];
    EXPECT_EQ(one.name, "cnn " + model.layer_name(layer));
    EXPECT_EQ(one.output, model.layer(layer).output());
    if (layer > 0) {
      EXPECT_EQ(one.input, layers.value()[layer - 1].output);
    }
    EXPECT_EQ(one.rows, 4);
    EXPECT_GE(one.forward_seconds, 0);
    parameters += one.parameters;
    forward += one.forward_seconds;
    backward += one.backward_seconds;
  }
  EXPECT_EQ(parameters, parameter_elems(model.parameters()));
  EXPECT_GT(forward, 0);
  EXPECT_GT(backward, 0);
  EXPECT_THAT(measure_layers(model, data, "cnn", 0, 2).error(),
              fails(Code::kInvalidArgument, "rows=0"));
  EXPECT_THAT(measure_layers(model, data, "cnn", 4, 0).error(),
              fails(Code::kInvalidArgument, "rounds=0"));
  EXPECT_THAT(measure_layers(model, data, "cnn", 1 << 20, 1).error(),
              fails(Code::kInvalidArgument, "1048576", "digits", "1437"));
}

TEST(ProfileMeasures, Optimizers) {
  for (const char* name : {"sgd", "adamw", "lamb"}) {
    const auto one = measure_optimizer(name, 64, 2);
    ASSERT_TRUE(one.has_value()) << one.error().message();
    EXPECT_EQ(one.value().elements, 64);
    EXPECT_GT(one.value().seconds, 0);
  }
  EXPECT_THAT(measure_optimizer("adam", 64, 2).error(), fails(Code::kInvalidArgument, "adam"));
  EXPECT_THAT(measure_optimizer("sgd", 0, 2).error(), fails(Code::kInvalidArgument, "elements=0"));
}

const char* const kCluster =
    "name = \"c\"\n"
    "[device.cpu]\n"
    "memory = \"1G\"\n"
    "profile = \"p.json\"\n"
    "[link.net]\n"
    "profile = \"p.json\"\n"
    "transport = \"tcp\"\n"
    "[[node]]\n"
    "name = \"n\"\n"
    "count = 2\n"
    "device = \"cpu\"\n"
    "uplink = \"net\"\n";

Result<Profile> read_example(const std::string& path) {
  if (path == "p.json") return example();
  return Status(Code::kInvalidArgument, path + " cannot be read");
}

// A cluster's rates as they were measured: the simulated cost of a step uses them.
TEST(ProfileInACluster, StandsForTheRates) {
  const auto read = parse_cluster(kCluster, "c.toml", read_example);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  const Cluster& cluster = read.value();
  const DeviceType& type = cluster.types[0];
  EXPECT_EQ(type.profile, "p.json");
  EXPECT_EQ(type.macs_per_second, 32768 / 9e-6);
  EXPECT_EQ(compute_ticks(type, 2048), 1000);
  EXPECT_EQ(compute_ticks(type, 32768), 9000);
  EXPECT_EQ(compute_ticks(type, (2048 + 32768) / 2), 5000);
  EXPECT_EQ(compute_ticks(type, 0), 0);
  EXPECT_EQ(cluster.links[0].latency, 20000);
  EXPECT_EQ(cluster.links[0].bytes_per_second, 1.5e9);
  EXPECT_EQ(cluster.links[0].profile, "p.json");
  // One device: the step is the sum of its products' times.
  const OperatorGraph graph = built_in_graph("lstm").value();
  const auto cost = SimulatedCost::make(graph, cluster, {});
  ASSERT_TRUE(cost.has_value());
  std::int64_t ticks = 0;
  for (const GraphOperator& one : graph.operators) {
    ticks += compute_ticks(type, one.forward_macs) + compute_ticks(type, one.backward_macs);
  }
  const std::vector<int> all_on_one(graph.groups().size(), 0);
  EXPECT_EQ(cost.value()->time(place_groups(graph, all_on_one)).value().ticks, ticks);
}

TEST(ProfileInACluster, TimesAreFoundByShapeNameAndMethod) {
  const DeviceTimes times(example());
  ProfiledLayer shape = example().layers[0];
  shape.rows = 1;
  shape.name = "another";
  ASSERT_NE(times.layer(shape), nullptr);
  EXPECT_EQ(times.layer(shape)->forward, (MeasuredTimes{{8, 1.0 / 3e5}}));
  shape.output = {64, 1, 1};
  EXPECT_EQ(times.layer(shape), nullptr);
  EXPECT_EQ(times.optimizer("adamw"), (MeasuredTimes{{1000, 2e-6}}));
  EXPECT_TRUE(times.optimizer("sgd").empty());
  EXPECT_EQ(times.encode("qsgd:bits=4"), (MeasuredTimes{{1000, 1e-6}}));
  EXPECT_EQ(times.decode("qsgd:bits=4"), (MeasuredTimes{{1000, 5e-7}}));
  EXPECT_TRUE(times.decode("topk:ratio=0.1").empty());
}

// One profile serves links of any rate: what the file gives is in place of what was measured.
TEST(ProfileInACluster, ALinkMayHaveItsOwnBandwidth) {
  const std::string text = replaced(kCluster, "transport = \"tcp\"",
                                    "transport = \"tcp\"\nbandwidth = 1.25e7\nlatency = 1e-3");
  const auto read = parse_cluster(text, "c.toml", read_example);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  const ClusterLink& link = read.value().links[0];
  EXPECT_EQ(link.bytes_per_second, 1.25e7);
  EXPECT_EQ(link.profile, "") << "its rates are not measured";
  EXPECT_EQ(link.latency, 1'000'000);
  EXPECT_EQ(link.processor_seconds_per_byte, 4e-10);
  EXPECT_EQ(read.value().path(0, 1).processor_seconds_per_byte, 4e-10);
}

TEST(ProfileInACluster, IsRefusedWithTheLine) {
  const auto refused = [](const std::string& what, const std::string& with) {
    return parse_cluster(replaced(kCluster, what, with), "c.toml", read_example).error();
  };
  EXPECT_THAT(refused("profile = \"p.json\"", "profile = \"q.json\""),
              fails(Code::kInvalidArgument, "c.toml:4:", "q.json"));
  EXPECT_THAT(refused("memory = \"1G\"", "memory = \"1G\"\nmacs_per_second = 1e9"),
              fails(Code::kInvalidArgument, "c.toml:4:", "macs_per_second beside profile"));
  EXPECT_THAT(refused("transport = \"tcp\"", "transport = \"shm\""),
              fails(Code::kInvalidArgument, "c.toml:7:", "no link 'shm'", "expected tcp"));
  EXPECT_THAT(refused("transport = \"tcp\"\n", ""),
              fails(Code::kInvalidArgument, "c.toml:6:", "profile without transport"));
  EXPECT_THAT(refused("transport = \"tcp\"", "transport = \"tcp\"\nlatency = 2000"),
              fails(Code::kInvalidArgument, "c.toml:8:", "2000"));
  EXPECT_THAT(refused("transport = \"tcp\"", "transport = \"tcp\"\nprocessor = -1"),
              fails(Code::kInvalidArgument, "c.toml:8:", "processor=-1"));
  EXPECT_THAT(parse_cluster(kCluster, "c.toml").error(),
              fails(Code::kInvalidArgument, "c.toml:4:", "p.json", "not read here"));
  const auto none = [](const std::string&) -> Result<Profile> { return Profile(); };
  EXPECT_THAT(parse_cluster(kCluster, "c.toml", none).error(),
              fails(Code::kInvalidArgument, "c.toml:4:", "no products"));
}

}  // namespace
}  // namespace gradwire::testing::profile_test
