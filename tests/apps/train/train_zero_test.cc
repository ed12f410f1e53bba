// `gradwire train --zero`: stages agree, go on from checkpoints, and refuse what they cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "apps/plan/plan.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_zero_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

class TrainZero : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  static std::string run(int ranks, int steps, const Words& more) {
    return train(flags_of(ranks, steps, more));
  }
  static Status refused(int ranks, const Words& more) { return refusal(flags_of(ranks, 4, more)); }

 private:
  static Words flags_of(int ranks, int steps, const Words& more) {
    Words words{"--inproc",      std::to_string(ranks),
                "--steps",       std::to_string(steps),
                "--batch",       "48",
                "--hidden",      "24",
                "--seed",        "5",
                "--algorithm",   "canonical",
                "--lr",          "0.002",
                "--optimizer",   "adamw",
                "--check-every", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  TemporaryFolder folder_;
};

TEST_F(TrainZero, Z7_StagesWriteTheSameParameters) {
  for (const int ranks : {2, 3}) {
    for (const std::string stage : {"0", "1", "2", "3"}) {
      ASSERT_EQ(run(ranks, 12, {"--zero", stage, "--save-params", file(stage)}), "ok");
    }
    EXPECT_EQ(contents(file("0")), contents(file("1"))) << ranks;
    EXPECT_EQ(contents(file("0")), contents(file("2"))) << ranks;
    EXPECT_EQ(contents(file("0")), contents(file("3"))) << ranks;
  }
}

// Parameters away, and layers computed twice, change nothing of what is trained.
TEST_F(TrainZero, Z9_Z10_RecomputedAndOffloadedRunsWriteTheSameParameters) {
  ASSERT_EQ(run(2, 8, {"--save-params", file("plain")}), "ok");
  const std::vector<Words> ways{
      {"--recompute", "full"},
      {"--recompute", "sqrt", "--zero", "3"},
      {"--offload", "optimizer", "--offload-chunk", "99"},
      {"--offload", "parameters", "--recompute", "2"},
      {"--offload", "optimizer", "--zero", "2"},
      {"--offload", "parameters", "--zero", "3"},
  };
  for (Words words : ways) {
    words.insert(words.end(), {"--save-params", file("other")});
    ASSERT_EQ(run(2, 8, words), "ok") << words[1];
    EXPECT_EQ(contents(file("other")), contents(file("plain"))) << words[1];
  }
}

// The table of --memory: what was held is what was planned, within 1 %.
TEST_F(TrainZero, Z1_TheTableOfMemoryHoldsWhatWasPlanned) {
  for (const std::string stage : {"0", "1", "2", "3"}) {
    for (const std::string offload : {"none", "optimizer"}) {
      ASSERT_EQ(
          run(2, 3,
              {"--zero", stage, "--offload", offload, "--memory", "--metrics", file("m.jsonl")}),
          "ok");
      const auto memory = json_lines(file("m.jsonl")).back()["memory_bytes"];
      for (const std::string place : {"device", "host"}) {
        if (!memory.contains(place)) continue;
        for (const auto& [what, line] : memory[place].items()) {
          const auto planned = line["planned"].get<double>();
          EXPECT_NEAR(line["held"].get<double>(), planned, 0.01 * planned)
              << stage << " " << place << " " << what;
        }
      }
      EXPECT_EQ(memory.contains("host"), offload != "none");
      EXPECT_EQ(memory["copied_out"].get<std::int64_t>() > 0, offload != "none");
      EXPECT_GT(memory["device_peak"].get<std::int64_t>(), 0);
    }
  }
}

// `gradwire plan` against what the transport counted, for a step between the first and the last.
class TrainZeroTraffic : public TrainZero, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TrainZeroTraffic, ::testing::Values("fp32", "bf16"));

TEST_P(TrainZeroTraffic, Z5_ThePlansTrafficIsWhatIsSent) {
  // 64 inputs, 24 hidden units, 10 classes: 64 * 24 + 24 + 24 * 10 + 10.
  ASSERT_TRUE(plan_command({"--params", "1810", "--precision", GetParam(), "--data", "2", "--cost",
                            "--json", file("plan.jsonl")})
                  .has_value());
  std::map<std::string, double> planned;
  for (const auto& row : json_lines(file("plan.jsonl"))) {
    planned[row["zero"]] += row["wire_bytes"].get<double>();
  }
  for (const std::string stage : {"0", "1", "2", "3"}) {
    ASSERT_EQ(
        train({"--inproc", "2", "--steps", "4", "--batch", "48", "--hidden", "24", "--precision",
               GetParam(), "--check-every", "0", "--zero", stage, "--metrics", file("m.jsonl")}),
        "ok");
    // A step also averages its loss, 8 bytes.
    const auto sent = json_lines(file("m.jsonl"))[2]["bytes_sent"].get<double>();
    EXPECT_NEAR(sent - 8, planned[stage], 0.01 * planned[stage]) << stage;
  }
  EXPECT_NEAR(planned["3"], 1.5 * planned["0"], 16);
}

// And against what the arena counted, on a rank that owns exactly half of every tensor.
class TrainZeroState : public TrainZero, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Precisions, TrainZeroState, ::testing::Values("fp32", "bf16", "fp16"));

TEST_P(TrainZeroState, Z3_Z4_Z5_ThePlansStateIsWhatIsHeld) {
  ASSERT_TRUE(plan_command({"--params", "1810", "--precision", GetParam(), "--data", "2",
                            "--memory", "--json", file("plan.jsonl")})
                  .has_value());
  const auto planned = json_lines(file("plan.jsonl"));
  ASSERT_EQ(planned.size(), 4U);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    ASSERT_EQ(run(2, 3,
                  {"--precision", GetParam(), "--zero", std::to_string(stage), "--memory",
                   "--metrics", file("m.jsonl")}),
              "ok");
    const auto device = json_lines(file("m.jsonl")).back()["memory_bytes"]["device"];
    double held = 0;
    for (const char* what : {"parameters", "gradients", "main_gradients", "master", "moments"}) {
      if (device.contains(what)) held += device[what]["held"].get<double>();
    }
    EXPECT_DOUBLE_EQ(planned[stage]["state_bytes_per_param"].get<double>() * 1810, held) << stage;
  }
}

// What is whole, or wide, for a layer's turn: of a decoder whose MLP has most, and of one whose
// embedding has.
TEST_P(TrainZeroState, Z5_ThePlanKnowsWhatIsGathered) {
  for (const std::string width : {"64", "2"}) {
    const Words shape{"--layers", "2", "--width", width, "--heads", "2"};
    Words question{"--sequence", "16", "--vocabulary", "25",     "--precision",     GetParam(),
                   "--data",     "2",  "--memory",     "--json", file("plan.jsonl")};
    question.insert(question.end(), shape.begin(), shape.end());
    ASSERT_TRUE(plan_command(question).has_value());
    const auto planned = json_lines(file("plan.jsonl"));
    ASSERT_EQ(planned.size(), 4U);
    for (std::size_t stage = 0; stage < 4; ++stage) {
      Words words{"--inproc",
                  "2",
                  "--model",
                  "gpt",
                  "--data",
                  "grammar",
                  "--context",
                  "16",
                  "--tied",
                  "--batch",
                  "64",
                  "--steps",
                  "2",
                  "--precision",
                  GetParam(),
                  "--zero",
                  std::to_string(stage),
                  "--memory",
                  "--metrics",
                  file("m.jsonl")};
      words.insert(words.end(), shape.begin(), shape.end());
      ASSERT_EQ(train(words), "ok");
      const auto device = json_lines(file("m.jsonl")).back()["memory_bytes"]["device"];
      const double held =
          device.contains("gathered") ? device["gathered"]["peak"].get<double>() : 0;
      EXPECT_DOUBLE_EQ(planned[stage]["gathered_bytes"].get<double>(), held)
          << "stage " << stage << ", width " << width;
    }
  }
}

TEST_F(TrainZero, ResumedRunsAreTheUninterruptedOnes) {
  const Words spec{"--compressor", "absmax:bits=8,ef=ef14,min_elems=0", "--parameter-compressor",
                   "cast:bf16"};
  for (const std::string stage : {"1", "2", "3"}) {
    Words whole{"--zero", stage, "--save-params", file("whole")};
    whole.insert(whole.end(), spec.begin(), spec.end());
    ASSERT_EQ(run(3, 20, whole), "ok");
    Words first{"--zero", stage, "--checkpoint", file("run" + stage)};
    first.insert(first.end(), spec.begin(), spec.end());
    ASSERT_EQ(run(3, 10, first), "ok");
    Words second = first;
    second.insert(second.end(), {"--resume", "--save-params", file("resumed")});
    ASSERT_EQ(run(3, 20, second), "ok");
    EXPECT_EQ(contents(file("whole")), contents(file("resumed"))) << stage;
  }
}

// Slices find their new owners: what stage 0 comes to on the same ranks.
TEST_F(TrainZero, FewerAndMoreRanksGoOn) {
  for (const std::string stage : {"0", "2", "3"}) {
    const Words go_on{"--zero", stage, "--checkpoint", file("run" + stage), "--resume"};
    ASSERT_EQ(run(4, 10, {"--zero", stage, "--checkpoint", file("run" + stage)}), "ok");
    ASSERT_EQ(run(2, 15, go_on), "ok");
    Words last = go_on;
    last.insert(last.end(), {"--save-params", file(stage)});
    ASSERT_EQ(run(3, 20, last), "ok");
  }
  EXPECT_EQ(contents(file("0")), contents(file("2")));
  EXPECT_EQ(contents(file("0")), contents(file("3")));
}

TEST_F(TrainZero, WhatCannotBeShardedIsRefused) {
  EXPECT_THAT(refused(2, {"--zero", "1", "--compressor", "topk:ratio=0.01"}),
              fails(kInvalid, "topk:ratio=0.01", "sharded"));
  EXPECT_THAT(refused(2, {"--zero", "4"}), fails(kInvalid, "--zero", "4", "3"));
  EXPECT_THAT(refused(2, {"--zero", "3", "--parameter-compressor", "qsgd:bits=8"}),
              fails(kInvalid, "qsgd:bits=8", "none", "cast"));
  EXPECT_THAT(refused(2, {"--zero", "2", "--offload", "parameters"}),
              fails(kInvalid, "--offload", "--zero 0", "3"));
  EXPECT_THAT(refused(2, {"--recompute", "half"}), fails(kInvalid, "recompute", "half"));
  EXPECT_THAT(refused(2, {"--parameter-compressor", "cast:bf16"}),
              fails(kInvalid, "--parameter-compressor", "--zero 1"));
  EXPECT_THAT(
      refusal({"--inproc", "2", "--steps", "1", "--optimizer", "onebit_adam", "--zero", "1"}),
      fails(kInvalid, "--zero", "onebit_adam", "sgd"));
  EXPECT_THAT(refusal({"--inproc", "2", "--steps", "1", "--mode", "fedavg", "--zero", "1"}),
              fails(kInvalid, "--zero", "fedavg"));
}

// The stage need not be the one that wrote the checkpoint; what a run says of it is a note.
TEST_F(TrainZero, AnyStageGoesOnFromAnyOther) {
  for (const std::string before : {"0", "2"}) {
    ASSERT_EQ(run(2, 5, {"--zero", before, "--checkpoint", file("run" + before)}), "ok");
    for (const std::string after : {"0", "1", "2", "3"}) {
      const std::string copy = file("copy");
      std::filesystem::remove_all(copy);
      std::filesystem::copy(file("run" + before), copy, std::filesystem::copy_options::recursive);
      EXPECT_EQ(run(3, 8, {"--zero", after, "--checkpoint", copy, "--resume"}), "ok")
          << before << " to " << after;
    }
  }
}

}  // namespace
}  // namespace gradwire::train_zero_test
