// `gradwire train` and `gradwire bench` whose ranks share one device: on a card, and on the one
// that the host plays, whose streams run later than they are told. What wants several devices is in
// programs_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <string>

#include "tests/gpu/program_runs.h"

namespace gradwire {
namespace {

struct TrainCase {
  std::string name;
  Words words;
  double from_host;  // the parameters' distance, of their length
};

void PrintTo(const TrainCase& one, std::ostream* out) { *out << one.name; }

class TrainOnOneDevice : public gpu::ProgramRuns, public testing::WithParamInterface<TrainCase> {};

// Two ranks on the device, twice, and the same job on the host.
TEST_P(TrainOnOneDevice, GivesTheSameBitsTwiceAndAboutTheHosts) {
  const auto run = [&](const std::string& device) {
    Words words{"--inproc", "2", "--device", device};
    words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
    return words;
  };
  ASSERT_EQ(train_briefly(run("cuda:0"), "there"), "ok");
  ASSERT_EQ(train_briefly(run("cuda:0"), "again"), "ok");
  ASSERT_EQ(train_briefly(run("cpu"), "here"), "ok");
  EXPECT_EQ(contents(file("there")), contents(file("again")));
  const double distance = relative_distance(file("here"), file("there"));
  RecordProperty("distance_from_host", std::to_string(distance));
  EXPECT_LE(distance, GetParam().from_host);
}

// A quantiser's rounding and topk's choice may fall to the other side; what is rounded to 16 bits
// may, too.
INSTANTIATE_TEST_SUITE_P(
    Jobs, TrainOnOneDevice,
    testing::Values(
        TrainCase{"plain", {}, 1e-5}, TrainCase{"clip", {"--clip", "0.2"}, 1e-5},
        TrainCase{"adamw", {"--optimizer", "adamw", "--lr", "0.01"}, 1e-3},
        TrainCase{"zero_1", {"--zero", "1"}, 1e-5}, TrainCase{"zero_2", {"--zero", "2"}, 1e-5},
        TrainCase{"zero_3", {"--zero", "3"}, 1e-5},
        TrainCase{"offload", {"--offload", "optimizer"}, 1e-5},
        TrainCase{"stages", {"--parallel", "pp=2", "--accumulate", "4"}, 1e-5},
        TrainCase{"stages_bf16",
                  {"--parallel", "pp=2/zb-h1", "--accumulate", "4", "--precision", "bf16"},
                  1e-2},
        TrainCase{"tensors", {"--parallel", "tp=2"}, 1e-5},
        TrainCase{"tensors_bf16", {"--parallel", "tp=2", "--precision", "bf16"}, 1e-2},
        TrainCase{"bf16", {"--precision", "bf16"}, 1e-2},
        TrainCase{"qsgd", {"--compressor", "qsgd:bits=4,min_elems=0"}, 1e-2},
        TrainCase{"topk", {"--compressor", "topk:ratio=0.1,ef=ef14,min_elems=0"}, 1e-2},
        TrainCase{"powersgd", {"--compressor", "powersgd:rank=2,ef=ef14,min_elems=0"}, 1e-2}),
    [](const auto& info) { return info.param.name; });

using StagesOnOneDevice = gpu::ProgramRuns;

// Replicas of stages; the host's parameters, about, whatever they shard.
TEST_F(StagesOnOneDevice, ShardTheirStateAboutAsOnTheHost) {
  for (const char* zero : {"0", "1", "2", "3"}) {
    const auto run = [&](const std::string& device) {
      return Words{"--inproc",     "4", "--device", device, "--parallel", "dp=2,pp=2",
                   "--accumulate", "3", "--zero",   zero};
    };
    ASSERT_EQ(train_briefly(run("cuda:0"), "there"), "ok") << zero;
    ASSERT_EQ(train_briefly(run("cpu"), "here"), "ok") << zero;
    EXPECT_LE(relative_distance(file("here"), file("there")), 1e-5) << zero;
  }
}

using TensorsOnOneDevice = gpu::ProgramRuns;

// A text's model, with replicas and stages beside: a file of its parameters is the host's, about,
// and is read again; what was held is what was planned.
TEST_F(TensorsOnOneDevice, TrainAGptAboutAsOnTheHost) {
  const auto trained = [&](const std::string& device, const std::string& parallel,
                           const std::string& saved, const Words& more) {
    Words words{"--device",     device,    "--parallel",    parallel,   "--model",   "gpt",
                "--data",       "grammar", "--eval",        "4",        "--context", "8",
                "--width",      "8",       "--layers",      "1",        "--heads",   "2",
                "--accumulate", "2",       "--batch",       "8",        "--steps",   "2",
                "--seed",       "11",      "--save-params", file(saved)};
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  };
  for (const char* parallel : {"dp=2,tp=2", "pp=2,tp=2", "tp=2/megatron[sequence=on]"}) {
    ASSERT_EQ(trained("cuda:0", parallel, "there", {}), "ok") << parallel;
    ASSERT_EQ(trained("cpu", parallel, "here", {}), "ok") << parallel;
    EXPECT_LE(relative_distance(file("here"), file("there")), 1e-5) << parallel;
  }
  const Words more{"--load-params", file("there"), "--memory", "--metrics", file("rows")};
  ASSERT_EQ(trained("cuda:0", "tp=2", "further", more), "ok");
  const auto rows = json_lines(file("rows"));
  ASSERT_FALSE(rows.empty());
  ASSERT_EQ(rows.back()["memory_bytes_by_stage"].size(), 2U);
  for (const auto& rank : rows.back()["memory_bytes_by_stage"]) {
    for (const auto& [what, bytes] : rank["device"].items()) {
      EXPECT_EQ(bytes["held"], bytes["planned"]) << what;
    }
  }
}

using ReportsOnOneDevice = gpu::ProgramRuns;

TEST_F(ReportsOnOneDevice, SayWhatIsHeldThereAndHowFarAveragesAreOff) {
  ASSERT_EQ(train_briefly(
                {"--inproc", "2", "--device", "cuda:0", "--memory", "--measure-every", "2",
                 "--metrics", file("rows"), "--compressor", "topk:ratio=0.1,ef=ef14,min_elems=0"},
                "reported"),
            "ok");
  const auto rows = json_lines(file("rows"));
  ASSERT_FALSE(rows.empty());
  const auto held = rows.back()["memory_bytes"]["device"];
  ASSERT_TRUE(held.contains("parameters")) << rows.back();
  for (const auto& [what, bytes] : held.items()) {
    EXPECT_EQ(bytes["held"], bytes["planned"]) << what;
  }
  EXPECT_GT(held["parameters"]["held"], 0);
  int measured = 0;
  for (const auto& row : rows) {
    if (!row.contains("nmse") || row["nmse"].is_null()) continue;
    ++measured;
    EXPECT_GT(row["nmse"], 0);
    EXPECT_LT(row["nmse"], 1);
  }
  EXPECT_EQ(measured, 2);  // steps 0 and 2
}

class BenchOnOneDevice : public gpu::ProgramRuns,
                         public testing::WithParamInterface<const char*> {};

TEST_P(BenchOnOneDevice, IsRightForRanksThatShareIt) {
  testing::internal::CaptureStdout();
  const std::string said = bench("2", {"--device", "cuda:0", "--compressor", GetParam()});
  const std::string table = testing::internal::GetCapturedStdout();
  ASSERT_EQ(said, "ok");
  EXPECT_THAT(table, testing::HasSubstr("cuda:0 buffers"));
  const auto rows = json_lines(file("rows"));
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) {
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["ranks"], 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, BenchOnOneDevice,
                         testing::Values("none", "qsgd:bits=4", "topk:ratio=0.1,ef=ef14"),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : std::string(info.param)) {
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace gradwire
