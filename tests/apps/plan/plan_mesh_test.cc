// `gradwire plan --cluster`: rows, reasons, page, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/apps/plan/captured_plan.h"
#include "tests/support/fails.h"

namespace gradwire::plan_mesh_test {
namespace {

using ::testing::HasSubstr;

constexpr Code kBad = Code::kInvalidArgument;

const std::string kCluster = R"(name = "two nodes"
[device.gpu]
memory = "1G"
macs_per_second = 1e12
[link.bridge]
latency = 5e-6
bandwidth = 1e10
[link.network]
latency = 2e-5
bandwidth = 1e9
shared = true
[[node]]
name = "node"
count = 2
devices = 2
device = "gpu"
link = "bridge"
uplink = "network"
)";

class PlanMesh : public ::testing::Test {
 protected:
  PlanMesh() { EXPECT_TRUE(write_whole_file(file("c.toml"), kCluster).ok()); }
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  CapturedPlan search(std::vector<std::string> words) const {
    words.insert(words.end(), {"--cluster", file("c.toml"), "--layers", "4", "--width", "64",
                               "--heads", "4", "--sequence", "32", "--vocabulary", "100"});
    return captured_plan(words);
  }
  TemporaryFolder folder_;
};

int count_of(const CapturedPlan& plan, const std::string& kind) {
  int count = 0;
  for (const nlohmann::json& row : plan.rows) count += row["kind"] == kind ? 1 : 0;
  return count;
}

TEST_F(PlanMesh, RowsAreSortedFitAndAddUp) {
  const CapturedPlan plan = search({"--batch", "16", "--rows", "12"});
  ASSERT_TRUE(plan.error.ok()) << plan.error.message();
  EXPECT_THAT(plan.text, HasSubstr("given, not measured"));
  EXPECT_THAT(plan.text, HasSubstr("left out"));
  ASSERT_EQ(count_of(plan, "mesh"), 12);
  double before = 0;
  for (const nlohmann::json& row : plan.rows) {
    if (row["kind"] != "mesh") continue;
    const double seconds = row["seconds"];
    EXPECT_GE(seconds, before);
    before = seconds;
    EXPECT_TRUE(row["fits"]);
    EXPECT_LE(row["bound_seconds"].get<double>(), seconds);
    double sum = 0;
    for (const char* phase : {"compute", "bubble", "tensors", "messages", "data"}) {
      sum += row[std::string(phase) + "_seconds"].get<double>();
    }
    EXPECT_NEAR(sum, seconds, 1e-9);
    EXPECT_EQ(row["dp"].get<int>() * row["tp"].get<int>() * row["pp"].get<int>(), 4);
  }
}

TEST_F(PlanMesh, ARowIsExplainedAndDrawn) {
  const CapturedPlan plan =
      search({"--batch", "16", "--why", "2", "--html", file("p.html"), "--rows", "3"});
  ASSERT_TRUE(plan.error.ok()) << plan.error.message();
  EXPECT_THAT(plan.text, HasSubstr("Row 2: "));
  EXPECT_THAT(plan.text, HasSubstr("Beside it: ranks on other axes"));
  EXPECT_GE(count_of(plan, "rank"), 1);
  EXPECT_GE(count_of(plan, "neighbour"), 3);
  const std::string page = read_whole_file(file("p.html")).value();
  EXPECT_THAT(page, HasSubstr("\"spans\":[["));
  EXPECT_THAT(page, HasSubstr("\"classes\":[{"));
  EXPECT_EQ(page.find("@@"), std::string::npos) << "every mark is filled in";
  EXPECT_THAT(page, HasSubstr("<h2>Beside it</h2>"));
  EXPECT_THAT(page, HasSubstr("<td>+0.0 %</td>")) << "the row itself";
  for (const nlohmann::json& row : plan.rows) {
    if (row["kind"] != "neighbour" || !row["fits"]) continue;
    EXPECT_THAT(page, HasSubstr("<tr><th>" + row["parallel"].get<std::string>()));
    break;
  }
}

TEST_F(PlanMesh, BadQuestionsAreNamed) {
  EXPECT_THAT(search({}).error, fails(kBad, "--batch"));
  EXPECT_THAT(search({"--batch", "16", "--data", "4"}).error, fails(kBad, "--data", "--cluster"));
  EXPECT_THAT(search({"--batch", "16", "--compressors", "none;nonesuch"}).error,
              fails(kBad, "nonesuch"));
  EXPECT_THAT(search({"--batch", "16", "--compressors", "none;none"}).error,
              fails(kBad, "--compressors", "'none' twice"));
  EXPECT_THAT(search({"--batch", "16", "--params", "1e6"}).error,
              fails(kBad, "--params", "--cluster"));
  EXPECT_THAT(search({"--batch", "16", "--device-mem", "0"}).error,
              fails(kBad, "--device-mem 0", "--cluster", "1 byte"));
  EXPECT_THAT(search({"--batch", "16", "--device-mem", "1000"}).error,
              fails(kBad, "no mesh fits", "memory", "the smallest", "has 1000"));
  EXPECT_THAT(search({"--batch", "1", "--rows", "1", "--why", "1000"}).error, fails(kBad, "--why"));
  EXPECT_THAT(captured_plan({"--params", "1e6", "--batch", "4"}).error,
              fails(kBad, "--batch", "--cluster"));
}

// What flags say of a mesh stays, and its time is that of the same row among all.
TEST_F(PlanMesh, AMeshOfOnesOwnIsPriced) {
  const CapturedPlan all = search({"--batch", "16", "--rows", "1000"});
  const CapturedPlan one = search({"--batch", "16", "--parallel", "dp=2,pp=2/gpipe,zero=0",
                                   "--accumulate", "4", "--recompute", "none", "--why", "1"});
  ASSERT_TRUE(one.error.ok()) << one.error.message();
  ASSERT_EQ(count_of(one, "mesh"), 1);
  EXPECT_GE(count_of(one, "neighbour"), 3) << "among all, not among those given";
  int same = 0;
  for (const nlohmann::json& row : all.rows) {
    if (row["kind"] != "mesh" || row["parallel"] != one.rows[0]["parallel"]) continue;
    if (row["accumulate"] != 4 || row["recompute"] != "none") continue;
    ++same;
    EXPECT_EQ(row["seconds"], one.rows[0]["seconds"]);
    EXPECT_EQ(row["memory_bytes"], one.rows[0]["memory_bytes"]);
  }
  EXPECT_EQ(same, 1);
  // Part of it is given: the search decides the rest.
  const CapturedPlan some = search({"--batch", "16", "--micro-batch", "2", "--zero", "1"});
  ASSERT_TRUE(some.error.ok()) << some.error.message();
  EXPECT_GT(count_of(some, "mesh"), 2);
  for (const nlohmann::json& row : some.rows) {
    if (row["kind"] != "mesh") continue;
    EXPECT_EQ(row["micro_batch"], 2);
    EXPECT_EQ(row["zero"], 1);
  }
  // As many chunks as it says, of which the search by itself has 2 and 4.
  const CapturedPlan chunks =
      search({"--batch", "16", "--parallel", "dp=2,pp=2/breadth-first[chunks=3]", "--rows", "1"});
  ASSERT_TRUE(chunks.error.ok()) << chunks.error.message();
  EXPECT_THAT(chunks.rows[0]["parallel"].get<std::string>(), HasSubstr("chunks=3"));
}

TEST_F(PlanMesh, MeshesThatCannotBePricedAreNamed) {
  const auto parallel = [&](const std::string& text, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--batch", "16", "--parallel", text});
    return search(more).error;
  };
  EXPECT_THAT(parallel("dp=3"), fails(kBad, "--parallel dp=3", "4"));
  EXPECT_THAT(parallel("dp=2,pp=2/1f1b[stages=4+44]"),
              fails(kBad, "--parallel dp=2,pp=2/1f1b[stages=4+44]", "48 layers together"));
  EXPECT_THAT(parallel("dp=2,pp=2/1f1b[stages=1+1+2]"), fails(kBad, "stages=1+1+2", "expected 2"));
  EXPECT_THAT(parallel("dp=2,pp=2/chimera[doubling=on]"), fails(kBad, "doubling=on"));
  EXPECT_THAT(parallel("dp=2,tp=2/megatron[sequence=on]"), fails(kBad, "sequence=on"));
  EXPECT_THAT(parallel("dp=2,tp=2/hybrid"), fails(kBad, "expected tp=2/megatron"));
  EXPECT_THAT(parallel("dp=2,pp=2/2bw"), fails(kBad, "2bw", "--allow-stale"));
  EXPECT_TRUE(parallel("dp=2,pp=2/2bw", {"--allow-stale"}).ok());
  EXPECT_THAT(parallel("dp=2,zero=1", {"--zero", "1"}), fails(kBad, "zero=1 and --zero 1"));
  EXPECT_THAT(parallel("dp=4", {"--accumulate", "3"}),
              fails(kBad, "no mesh of 4 devices for 16 samples", "--parallel dp=4 --accumulate 3"));
}

// Images are divided by samples, and error feedback and rules are compressors like others.
TEST_F(PlanMesh, ModelsForImagesShareTensorsAndCompressorsHaveFeedback) {
  const CapturedPlan plan = captured_plan(
      {"--cluster", file("c.toml"), "--model", "cnn", "--image", "1x8x8", "--batch", "16", "--rows",
       "1000", "--compressors", "none;topk:ratio=0.01,ef=ef14;[*.bias=none;*=qsgd:bits=4]"});
  ASSERT_TRUE(plan.error.ok()) << plan.error.message();
  int hybrid = 0;
  int fed = 0;
  for (const nlohmann::json& row : plan.rows) {
    if (row["kind"] != "mesh") continue;
    hybrid += row["parallel"].get<std::string>().find("tp=2/hybrid") != std::string::npos ? 1 : 0;
    fed += row["compressor"] == "topk:ratio=0.01,ef=ef14" ? 1 : 0;
    EXPECT_TRUE(row["tp"] == 1 || row["pp"] == 1) << row;
  }
  EXPECT_GT(hybrid, 0);
  EXPECT_GT(fed, 0);
}

TEST_F(PlanMesh, ClustersThatCannotBeAreRefusedWithTheLine) {
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string text = kCluster;
    text.replace(text.find(from), from.size(), to);
    EXPECT_TRUE(write_whole_file(file("c.toml"), text).ok());
    return search({"--batch", "16"}).error;
  };
  EXPECT_THAT(edited("device = \"gpu\"", "device = \"tpu\""), fails(kBad, "c.toml:", "tpu"));
  EXPECT_THAT(edited("1e10", "-1e10"), fails(kBad, "c.toml:7", "bandwidth"));
  EXPECT_THAT(edited("latency", "latencies"),
              fails(kBad, "c.toml:6", "latencies", "did you mean 'latency'?"));
  EXPECT_THAT(edited("memory = \"1G\"", "memory = \"1G\"\nmemory_bandwidth = 0"),
              fails(kBad, "c.toml:4", "memory_bandwidth=0"));
}

}  // namespace
}  // namespace gradwire::plan_mesh_test
