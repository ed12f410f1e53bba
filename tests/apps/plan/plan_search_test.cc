// `gradwire plan search`: its rows, its trace, and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "planner/search/have_metis.h"
#include "tests/apps/plan/captured_plan.h"
#include "tests/support/fails.h"

namespace gradwire::plan_search_test {
namespace {

using ::testing::HasSubstr;

constexpr Code kInvalid = Code::kInvalidArgument;

const std::string kCluster = R"([device.gpu]
memory = "16G"
macs_per_second = 1e13
[link.bridge]
latency = 5e-6
bandwidth = 1e10
[[node]]
name = "node"
devices = 4
device = "gpu"
link = "bridge"
)";
const std::string kGraph = R"({"samples": 64, "operators": [
  {"name": "a", "macs": [4194304, 8388608], "parameter_bytes": 262144, "channels": 256,
   "splits": ["channels"]},
  {"name": "b", "macs": [163840, 327680], "parameter_bytes": 10240, "channels": 10,
   "splits": ["channels"], "inputs": ["a"]}]}
)";

class Files {
 public:
  explicit Files(const std::string& cluster = kCluster) {
    EXPECT_TRUE(write_whole_file(path("c.toml"), cluster).ok());
    EXPECT_TRUE(write_whole_file(path("g.json"), kGraph).ok());
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  CapturedPlan search(std::vector<std::string> words) const {
    words.insert(words.begin(), {"search", "--graph", path("g.json"), "--cluster", path("c.toml")});
    return captured_plan(words);
  }
  CapturedPlan of_model(std::vector<std::string> words) const {
    words.insert(words.begin(), {"search", "--cluster", path("c.toml")});
    return captured_plan(words);
  }

 private:
  TemporaryFolder folder_;
};

int count_of(const CapturedPlan& plan, const std::string& kind) {
  int count = 0;
  for (const nlohmann::json& row : plan.rows) count += row["kind"] == kind ? 1 : 0;
  return count;
}

TEST(PlanSearch, PlacementsHavePointsOperatorsAndDevices) {
  const Files files;
  for (const std::string method : {"one-device", "expert", "random", "min-cut", "metis",
                                   "reinforce", "reinforce-lstm", "mcmc", "exhaustive"}) {
    if (method == "metis" && !kHaveMetis) continue;
    const CapturedPlan plan = files.search({"--method", method, "--evaluations", "200"});
    ASSERT_TRUE(plan.error.ok()) << method << ": " << plan.error.message();
    EXPECT_THAT(plan.text, HasSubstr(method + ": 2 operators")) << method;
    EXPECT_THAT(plan.text, HasSubstr("not measured")) << method;
    EXPECT_GE(count_of(plan, "point"), 1) << method;
    EXPECT_EQ(count_of(plan, "operator"), 2) << method;
    EXPECT_EQ(count_of(plan, "device"), 4) << method;
  }
}

TEST(PlanSearch, PartitionersHaveStages) {
  const Files files;
  for (const std::string method : {"pipedream", "dapple", "alpa"}) {
    const CapturedPlan plan = files.search({"--method", method, "--micro-batches", "4"});
    ASSERT_TRUE(plan.error.ok()) << method << ": " << plan.error.message();
    EXPECT_GE(count_of(plan, "stage"), 1) << method;
    ASSERT_EQ(count_of(plan, "partition"), 1) << method;
    for (const nlohmann::json& row : plan.rows) {
      if (row["kind"] == "partition") {
        EXPECT_GT(row["simulated_seconds"].get<double>(), 0) << method;
      }
    }
    EXPECT_EQ(count_of(plan, "answer"), 1) << method;
  }
}

// Layouts that Alpa chose are listed, and that the simulated step has them not is said.
TEST(PlanSearch, LayoutsWithinStagesAreListed) {
  const Files files;
  const CapturedPlan plan =
      files.of_model({"--graph", "mlp", "--image", "1x32x32", "--hidden", "4096,4096", "--batch",
                      "256", "--method", "alpa", "--micro-batches", "8"});
  ASSERT_TRUE(plan.error.ok()) << plan.error.message();
  EXPECT_THAT(plan.text, HasSubstr("has the layout"));
  EXPECT_THAT(plan.text, HasSubstr("layouts of stage 0: "));
  EXPECT_THAT(plan.text, HasSubstr("are replicas in place of these layouts"));
  const CapturedPlan dapple =
      files.of_model({"--graph", "mlp", "--image", "1x32x32", "--hidden", "4096,4096", "--batch",
                      "256", "--method", "dapple", "--micro-batches", "8"});
  EXPECT_EQ(dapple.text.find("layouts of stage"), std::string::npos);
}

// Devices that are slow beside their links, so that operators are divided.
std::string slow_cluster() {
  std::string slow = kCluster;
  slow.replace(slow.find("1e13"), 4, "1e9");
  return slow;
}

TEST(PlanSearch, WhetherAnAnswerIsAMeshIsSaidWithItsTimeline) {
  const Files files(slow_cluster());
  const CapturedPlan one = files.search({"--method", "one-device"});
  EXPECT_EQ(one.rows.back()["kind"], "answer");
  EXPECT_EQ(one.rows.back()["parallel"], "dp=1");
  EXPECT_TRUE(one.rows.back()["nearest"].is_null());
  EXPECT_THAT(one.text, HasSubstr("device    0  FFFF"));
  EXPECT_THAT(one.text, HasSubstr("a mesh: dp=1\n"));
  const CapturedPlan chain = files.search({"--method", "mcmc", "--evaluations", "100"});
  ASSERT_THAT(chain.text, HasSubstr("no mesh: operator 'a' is divided"));
  const nlohmann::json& answer = chain.rows.back();
  EXPECT_EQ(answer["parallel"], "");
  EXPECT_THAT(answer["why"].get<std::string>(), HasSubstr("channels"));
  EXPECT_LE(answer["fastest"]["seconds"], answer["nearest"]["seconds"]);
  EXPECT_GE(answer["nearest"]["agreement"], answer["fastest"]["agreement"]);
}

TEST(PlanSearch, AnAnswerThatIsNoMeshOfAModelIsNotWritten) {
  const Files files(slow_cluster());
  const std::string plan = files.path("plan.toml");
  EXPECT_THAT(files.search({"--method", "one-device", "--write", plan}).error,
              fails(Code::kUnsupported, "--write", "g.json", "none of its models"));
  EXPECT_THAT(files.search({"--method", "mcmc", "--write", plan}).error,
              fails(Code::kUnsupported, "--write", "operator 'a'", "channels"));
  // 63 samples do not divide among 4 micro-batches.
  EXPECT_THAT(files
                  .of_model({"--graph", "mlp", "--image", "1x4x4", "--batch", "63", "--method",
                             "dapple", "--micro-batches", "4", "--write", plan})
                  .error,
              fails(Code::kUnsupported, "--write"));
  EXPECT_FALSE(read_whole_file(plan).has_value());
}

TEST(PlanSearch, TracesOfStagesShowMicroBatches) {
  const Files files;
  const std::string trace = files.path("trace.json");
  ASSERT_TRUE(files
                  .search({"--method", "pipedream", "--micro-batches", "2", "--gradient-ratio", "1",
                           "--trace", trace})
                  .error.ok());
  const auto events = nlohmann::json::parse(read_whole_file(trace).value())["traceEvents"];
  int forwards = 0;
  for (const auto& event : events) {
    if (event["name"] == "forward 1" && event["pid"] == 0) ++forwards;
  }
  EXPECT_EQ(forwards, 1);
}

TEST(PlanSearch, TracesShowEveryOperatorThereAndBack) {
  const Files files;
  const std::string trace = files.path("trace.json");
  ASSERT_TRUE(files.search({"--method", "one-device", "--trace", trace}).error.ok());
  const auto events = nlohmann::json::parse(read_whole_file(trace).value())["traceEvents"];
  std::vector<std::string> names;
  for (const auto& event : events) names.push_back(event["name"]);
  EXPECT_THAT(
      names, ::testing::UnorderedElementsAre("a forward", "b forward", "b backward", "a backward"));
}

TEST(PlanSearch, BadQuestionsAreNamed) {
  const Files files;
  EXPECT_THAT(captured_plan({"search", "--graph", "lstm"}).error, fails(kInvalid, "--cluster"));
  EXPECT_THAT(captured_plan({"search", "--cluster", files.path("c.toml")}).error,
              fails(kInvalid, "--graph"));
  EXPECT_THAT(files.search({"--method", "annealing"}).error, fails(kInvalid, "annealing"));
  EXPECT_THAT(files.search({"--gradient-ratio", "0"}).error, fails(kInvalid, "gradient ratio"));
  EXPECT_THAT(files.search({"--batch", "4"}).error, fails(kInvalid, "--batch", "mlp"));
  EXPECT_THAT(files.of_model({"--graph", "mlp"}).error, fails(kInvalid, "mlp", "--image"));
  EXPECT_THAT(files.of_model({"--graph", "mlp", "--image", "1x8x8", "--heads", "2"}).error,
              fails(kInvalid, "--heads", "gpt"));
  EXPECT_THAT(files.of_model({"--graph", "gpt", "--layers", "2"}).error,
              fails(kInvalid, "gpt", "--width"));
  EXPECT_THAT(files.search({"--method", "dapple", "--micro-batches", "65"}).error,
              fails(kInvalid, "65", "1 to 64"));
  std::string negative = kCluster;
  negative.replace(negative.find("1e10"), 4, "-1e9");
  EXPECT_THAT(Files(negative).search({}).error, fails(kInvalid, "c.toml:6", "bandwidth"));
}

TEST(PlanSearch, WhatDoesNotFitIsSaid) {
  std::string small = kCluster;
  small.replace(small.find("\"16G\""), 5, "4096");
  const Files files(small);
  EXPECT_THAT(files.search({"--method", "expert"}).error, fails(kInvalid, "fits"));
  EXPECT_THAT(files.search({"--method", "pipedream"}).error, fails(kInvalid, "pipedream"));
}

}  // namespace
}  // namespace gradwire::plan_search_test
