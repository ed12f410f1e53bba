// `gradwire train --plan`: the bits of the flags that a plan stands for, and files that are
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/plan/plan.h"
#include "apps/profile/profile.h"
#include "apps/train/train.h"
#include "apps/whole_file.h"
#include "planner/profile/profile_file.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_plan_test {
namespace {

constexpr Code kBad = Code::kInvalidArgument;

const std::string kCluster = R"([device.cpu]
memory = "1G"
macs_per_second = 1e9
[link.wire]
latency = 1e-6
bandwidth = 1e8
[[node]]
name = "node"
devices = 4
device = "cpu"
link = "wire"
)";

class TrainPlan : public ::testing::Test {
 protected:
  TrainPlan() { EXPECT_TRUE(write_whole_file(file("c.toml"), kCluster).ok()); }
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // The answer of `plan search` as plan.toml.
  void plan_search(const Words& question) const {
    Words words{"search", "--cluster", file("c.toml"), "--write", file("plan.toml")};
    words.insert(words.end(), question.begin(), question.end());
    ::testing::internal::CaptureStdout();
    const auto done = plan_command(words);
    ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(done.has_value()) << done.error().message();
  }

  // Row `row` of a search as plan.toml.
  void plan(const Words& model, int row) const {
    Words words{"--cluster", file("c.toml"),    "--why",         std::to_string(row),
                "--write",   file("plan.toml"), "--compressors", "none;qsgd:bits=4",
                "--json",    file("rows.jsonl")};
    words.insert(words.end(), model.begin(), model.end());
    ::testing::internal::CaptureStdout();
    const auto done = plan_command(words);
    ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(done.has_value()) << done.error().message();
  }

  // What a plan stands for: lines of [train] as flags.
  Words flags_of_plan() const {
    Words words;
    const std::string text = contents(file("plan.toml"));
    std::size_t at = text.find("[train]\n") + 8;
    for (std::size_t end = text.find('\n', at); end > at; end = text.find('\n', at)) {
      const std::string line = text.substr(at, end - at);
      const std::size_t equals = line.find(" = ");
      std::string value = line.substr(equals + 3);
      if (value.front() == '"') value = value.substr(1, value.size() - 2);
      at = end + 1;
      if (value == "false") continue;
      words.push_back("--" + line.substr(0, equals));
      if (value != "true") words.push_back(value);
    }
    return words;
  }

  std::string hash(Words words) const {
    words.insert(words.end(), {"--steps", "3", "--seed", "4", "--metrics", file("m.jsonl")});
    EXPECT_EQ(train(words), "ok");
    const auto lines = json_lines(file("m.jsonl"));
    return lines.empty() ? "none" : lines.back()["params_hash"].dump();
  }

  // train --plan of the plan with one text replaced.
  Status edited(const std::string& from, const std::string& to) const {
    std::string text = contents(file("plan.toml"));
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << " in " << text;
    text.replace(at, from.size(), to);
    EXPECT_TRUE(write_whole_file(file("edited.toml"), text).ok());
    return refusal({"--plan", file("edited.toml"), "--steps", "1"});
  }

  TemporaryFolder folder_;
};

const Words kMlp{"--model", "mlp", "--image", "1x8x8", "--precision", "fp32", "--batch", "32"};
const Words kGpt{"--layers",     "4",  "--width",     "16",   "--heads", "2", "--sequence", "8",
                 "--vocabulary", "13", "--precision", "fp32", "--batch", "16"};

TEST_F(TrainPlan, HasTheBitsOfTheFlagsThatItStandsFor) {
  for (const int row : {1, 4, 9, 15}) {
    plan(kMlp, row);
    const std::string planned = hash({"--plan", file("plan.toml")});
    EXPECT_EQ(planned, hash(flags_of_plan())) << contents(file("plan.toml"));
  }
  for (const int row : {1, 7}) {
    plan(kGpt, row);
    const Words data{"--data", "grammar"};
    Words with_plan{"--plan", file("plan.toml")};
    with_plan.insert(with_plan.end(), data.begin(), data.end());
    Words with_flags = flags_of_plan();
    with_flags.insert(with_flags.end(), data.begin(), data.end());
    EXPECT_EQ(hash(with_plan), hash(with_flags)) << contents(file("plan.toml"));
  }
}

TEST_F(TrainPlan, AnswersOfPlanSearchThatAreMeshesAreRun) {
  const Words mlp{"--graph", "mlp", "--image", "1x8x8", "--batch", "32"};
  Words stages = mlp;
  stages.insert(stages.end(), {"--method", "pipedream", "--micro-batches", "4"});
  plan_search(stages);
  EXPECT_THAT(contents(file("plan.toml")), ::testing::HasSubstr("dp=1,pp=3/1f1b[stages=2+2+2]"));
  EXPECT_EQ(hash({"--plan", file("plan.toml")}), hash(flags_of_plan()));
  Words placed = mlp;
  placed.insert(placed.end(), {"--method", "one-device"});
  plan_search(placed);
  EXPECT_THAT(contents(file("plan.toml")), ::testing::HasSubstr("parallel = \"dp=1\""));
  EXPECT_EQ(hash({"--plan", file("plan.toml")}), hash(flags_of_plan()));
  plan_search({"--graph",          "gpt", "--layers",   "2",      "--width",         "16",
               "--heads",          "2",   "--sequence", "8",      "--vocabulary",    "13",
               "--batch",          "16",  "--method",   "dapple", "--micro-batches", "2",
               "--gradient-ratio", "0.01"});
  Words with_plan{"--plan", file("plan.toml"), "--data", "grammar"};
  Words with_flags = flags_of_plan();
  with_flags.insert(with_flags.end(), {"--data", "grammar"});
  EXPECT_EQ(hash(with_plan), hash(with_flags)) << contents(file("plan.toml"));
}

TEST_F(TrainPlan, NonsenseIsRefusedWithItsLine) {
  plan(kMlp, 1);
  EXPECT_THAT(edited("version = 1", "version = 2"), fails(kBad, "edited.toml:2", "version"));
  EXPECT_THAT(edited("batch = 32", "batch = -3"), fails(kBad, "edited.toml:", "batch", "-3"));
  EXPECT_THAT(edited("batch = 32", "bach = 32"), fails(kBad, "edited.toml:", "unknown key 'bach'"));
  EXPECT_THAT(edited("batch = 32", "batch = [1, 2]"), fails(kBad, "edited.toml:", "batch"));
  EXPECT_THAT(edited("batch = 32\n", ""), fails(kBad, "edited.toml:", "has no batch"));
  EXPECT_THAT(edited("parallel = \"dp=", "parallel = \"dq="), fails(kBad, "edited.toml:", "dq="));
  EXPECT_THAT(edited("compressor = \"", "compressor = \"nonesuch\" #"),
              fails(kBad, "edited.toml:", "nonesuch"));
  EXPECT_THAT(edited("version = 1", "version = true"), fails(kBad, "edited.toml:2", "version"));
  EXPECT_FALSE(refusal({"--plan", ""}).ok()) << "an empty name is no plan";
  EXPECT_THAT(edited("[predicted]", "[cluster]"), fails(kBad, "edited.toml:", "cluster"));
  EXPECT_THAT(edited("step_seconds", "steps"), fails(kBad, "edited.toml:", "unknown key 'steps'"));
  EXPECT_THAT(edited("step_seconds = ", "step_seconds = -"),
              fails(kBad, "edited.toml:", "step_seconds=-", "at least 0"));
  EXPECT_THAT(edited("memory_bytes = ", "memory_bytes = \"lots\"  # "),
              fails(kBad, "edited.toml:", "memory_bytes=lots", "number"));
  EXPECT_THAT(edited("model = ", "# "), fails(kBad, "edited.toml:", "[train] has no model"));
  EXPECT_THAT(edited("[train]", "[train"), fails(kBad, "edited.toml:", "not TOML"));
  EXPECT_THAT(std::string(refusal({"--plan", file("nofile")}).message()),
              ::testing::HasSubstr("nofile"));
  EXPECT_THAT(refusal({"--plan", file("plan.toml"), "--batch", "64"}),
              fails(kBad, "plan.toml:", "--batch"));
}

// What each flag would bear alone, but not beside the others.
TEST_F(TrainPlan, ValuesThatDoNotGoTogetherAreRefusedWithTheLine) {
  const auto conflict = [&](const std::string& parallel, int batch, int accumulate,
                            const std::string& compressor) {
    const std::string text = "version = 1\n[train]\nmodel = \"mlp\"\nparallel = \"" + parallel +
                             "\"\nbatch = " + std::to_string(batch) +
                             "\naccumulate = " + std::to_string(accumulate) + "\ncompressor = \"" +
                             compressor + "\"\n";
    EXPECT_TRUE(write_whole_file(file("hand.toml"), text).ok());
    return refusal({"--plan", file("hand.toml"), "--steps", "1"});
  };
  EXPECT_THAT(conflict("dp=2", 7, 1, "none"), fails(kBad, "hand.toml:5: ", "--batch", "got 7"));
  EXPECT_THAT(conflict("dp=2", 32, 5, "none"), fails(kBad, "hand.toml:5: ", "5 micro-batches"));
  EXPECT_THAT(conflict("dp=1,pp=9", 36, 4, "none"), fails(kBad, "hand.toml:4: ", "9 stages"));
  EXPECT_THAT(conflict("dp=2,zero=2", 32, 1, "topk:ratio=0.1"),
              fails(kBad, "hand.toml:7: ", "topk", "element by element"));
  EXPECT_THAT(conflict("dp=1,pp=2/pipedream", 32, 4, "none"),
              fails(Code::kUnsupported, "hand.toml:6: ", "--accumulate"));
  EXPECT_THAT(conflict("dp=1,pp=2/zb-h1", 32, 4, "none\"\nrecompute = \"full"),
              fails(Code::kUnsupported, "hand.toml:8: ", "two halves"));
  EXPECT_THAT(conflict("dp=2", 32, 4, "none\"\noptimizer = \"adamw\"\nmomentum = \"0.5"),
              fails(kBad, "hand.toml:9: ", "--momentum"));
  EXPECT_THAT(conflict("dp=2", 32, 4, "none\"\nheads = \"4"),
              fails(kBad, "hand.toml:8: ", "--heads requires"));
  EXPECT_THAT(conflict("dp=2", 32, 4, "none\"\ntied = true\nrecompute = \"none"),
              fails(kBad, "hand.toml:8: ", "--tied requires"));
}

// What rates of profiles say holds where they were measured.
TEST_F(TrainPlan, OfAProfileOfAnotherMachineIsRefused) {
  Profile profile{.conditions = conditions_here()};
  profile.products = {{.rows = 8, .in = 64, .out = 64, .seconds = 1e-5}};
  std::string text = kCluster;
  const std::string rate = "macs_per_second = 1e9";
  text.replace(text.find(rate), rate.size(), "profile = \"p.json\"");
  ASSERT_TRUE(write_whole_file(file("c.toml"), text).ok());
  const auto planned_on = [&](const ProfileConditions& conditions) {
    profile.conditions = conditions;
    ASSERT_TRUE(write_whole_file(file("p.json"), profile_text(profile)).ok());
    plan(kMlp, 1);
  };
  const ProfileConditions here = conditions_here();
  planned_on(here);
  const std::string plan_text = contents(file("plan.toml"));
  EXPECT_THAT(plan_text, ::testing::HasSubstr("[[profile]]"));
  EXPECT_THAT(plan_text, ::testing::HasSubstr("host = \"" + here.host + "\"\n"));
  EXPECT_EQ(train({"--plan", file("plan.toml"), "--steps", "1"}), "ok");
  EXPECT_THAT(edited("cores = ", "cores = -"), fails(kBad, "edited.toml:", "cores=-", "from 1"));
  EXPECT_THAT(edited("host = ", "post = "), fails(kBad, "edited.toml:", "has no host"));
  EXPECT_THAT(edited("[[profile]]", "[profile]"), fails(kBad, "edited.toml:", "[[profile]]"));
  ProfileConditions there = here;
  there.cores += 1;
  planned_on(there);
  const auto refused = refusal({"--plan", file("plan.toml"), "--steps", "1"});
  EXPECT_THAT(refused, fails(kBad, "plan.toml:", "p.json", "another machine: cores"));
  EXPECT_THAT(refused, fails(kBad, "gradwire profile", "gradwire plan --cluster"));
  there = here;
  there.host += "2";
  planned_on(there);
  EXPECT_THAT(refusal({"--plan", file("plan.toml"), "--steps", "1"}),
              fails(kBad, "plan.toml:", "host '" + there.host + "'"));
  // Rates that a file gives are of no machine.
  ASSERT_TRUE(write_whole_file(file("c.toml"), kCluster).ok());
  plan(kMlp, 1);
  EXPECT_THAT(contents(file("plan.toml")), ::testing::Not(::testing::HasSubstr("profile")));
}

TEST_F(TrainPlan, WithoutAFlushTheFileAndTheRunSaySo) {
  const auto said = [&](const std::string& schedule) {
    std::string text = contents(file("plan.toml"));
    const std::string key = "parallel = ";
    const std::size_t at = text.find(key) + key.size();
    text.replace(at, text.find('\n', at) - at, "\"dp=2,pp=2/" + schedule + "\"");
    const std::string batch = "accumulate = ";
    const std::size_t micro = text.find(batch) + batch.size();
    text.replace(micro, text.find('\n', micro) - micro, "2");
    EXPECT_TRUE(write_whole_file(file("edited.toml"), text).ok());
    ::testing::internal::CaptureStdout();
    const auto done = train_command({"--plan", file("edited.toml"), "--steps", "1"});
    const std::string out = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return out;
  };
  plan(kMlp, 1);
  EXPECT_THAT(contents(file("plan.toml")), ::testing::Not(::testing::HasSubstr("stale")));
  EXPECT_THAT(said("2bw"), ::testing::HasSubstr("plan: stale: dp=2,pp=2/2bw has no flush"));
  EXPECT_THAT(said("1f1b"), ::testing::Not(::testing::HasSubstr("stale")));
  Words stale = kMlp;
  stale.insert(stale.end(), {"--allow-stale", "--rows", "1000"});
  int row = 0;
  plan(stale, 1);
  for (const nlohmann::json& line : json_lines(file("rows.jsonl"))) {
    if (line["kind"] != "mesh") continue;
    ++row;
    if (line["stale"].get<bool>()) break;
  }
  plan(stale, row);
  EXPECT_THAT(contents(file("plan.toml")), ::testing::HasSubstr("\nstale = true"));
  EXPECT_THAT(edited("stale = true", "stale = 1"), fails(kBad, "edited.toml:", "stale=1"));
}

// What exchanges keep is foretold to the byte.
TEST_F(TrainPlan, WhatExchangesHoldIsForetold) {
  int compared = 0;
  for (const int row : {1, 4, 9, 15}) {
    plan(kMlp, row);
    const auto rows = json_lines(file("rows.jsonl"));
    Words words{"--plan", file("plan.toml"), "--memory"};
    (void)hash(words);
    const auto last = json_lines(file("m.jsonl")).back();
    const auto held = last.contains("memory_bytes_by_stage")
                          ? last["memory_bytes_by_stage"]
                          : nlohmann::json::array({last["memory_bytes"]});
    std::size_t rank = 0;
    for (const nlohmann::json& line : rows) {
      if (line["kind"] != "rank") continue;
      const auto& device = held[rank++]["device"];
      const double kept =
          device.contains("communication") ? device["communication"]["held"].get<double>() : 0.0;
      const std::string parallel = contents(file("plan.toml"));
      EXPECT_EQ(line["communication_bytes"].get<double>(), kept) << parallel;
      ++compared;
    }
  }
  EXPECT_GE(compared, 4);
}

// What the file says for people may have any names.
TEST_F(TrainPlan, NamesOfDevicesDoNotBreakTheFile) {
  std::string text = kCluster;
  const std::string name = "\"a \\\"b\\\"\\n\"";
  text.replace(text.find("cpu"), 3, name);
  text.replace(text.find("\"cpu\""), 5, name);
  ASSERT_TRUE(write_whole_file(file("c.toml"), text).ok());
  plan(kMlp, 1);
  EXPECT_THAT(contents(file("plan.toml")), ::testing::HasSubstr("a \\\"b\\\"\\u000A"));
  EXPECT_EQ(train({"--plan", file("plan.toml"), "--steps", "1"}), "ok");
}

}  // namespace
}  // namespace gradwire::train_plan_test
