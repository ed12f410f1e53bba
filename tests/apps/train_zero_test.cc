// `gradwire train --zero`: stages agree, go on from checkpoints, and refuse what they cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/apps/train_runs.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {
namespace {

using testing::HasSubstr;

class TrainZero : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  static std::string run(int ranks, int steps, Words more) {
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
    return train(words);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(TrainZero, StagesWriteTheSameParameters) {
  for (const int ranks : {2, 3}) {
    for (const std::string stage : {"0", "1", "2"}) {
      ASSERT_EQ(run(ranks, 12, {"--zero", stage, "--save-params", file(stage)}), "ok");
    }
    EXPECT_EQ(contents(file("0")), contents(file("1"))) << ranks;
    EXPECT_EQ(contents(file("0")), contents(file("2"))) << ranks;
  }
}

TEST_F(TrainZero, ResumedRunsAreTheUninterruptedOnes) {
  const Words spec{"--compressor", "absmax:bits=8,ef=ef14,min_elems=0", "--parameter-compressor",
                   "cast:bf16"};
  for (const std::string stage : {"1", "2"}) {
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
  for (const std::string stage : {"0", "2"}) {
    const Words go_on{"--zero", stage, "--checkpoint", file("run" + stage), "--resume"};
    ASSERT_EQ(run(4, 10, {"--zero", stage, "--checkpoint", file("run" + stage)}), "ok");
    ASSERT_EQ(run(2, 15, go_on), "ok");
    Words last = go_on;
    last.insert(last.end(), {"--save-params", file(stage)});
    ASSERT_EQ(run(3, 20, last), "ok");
  }
  EXPECT_EQ(contents(file("0")), contents(file("2")));
}

TEST_F(TrainZero, WhatCannotBeShardedIsRefused) {
  EXPECT_THAT(run(2, 1, {"--zero", "1", "--compressor", "topk:ratio=0.01"}),
              HasSubstr("sharded gradients"));
  EXPECT_THAT(run(2, 1, {"--zero", "3"}), HasSubstr("zero"));
  EXPECT_THAT(run(2, 1, {"--parameter-compressor", "cast:bf16"}), HasSubstr("--zero 1 or 2"));
  EXPECT_THAT(train({"--inproc", "2", "--steps", "1", "--optimizer", "onebit_adam", "--zero", "1"}),
              HasSubstr("--zero shards sgd"));
  EXPECT_THAT(train({"--inproc", "2", "--steps", "1", "--mode", "fedavg", "--zero", "1"}),
              HasSubstr("zero"));
  ASSERT_EQ(run(2, 2, {"--checkpoint", file("run")}), "ok");
  EXPECT_THAT(run(2, 4, {"--zero", "1", "--checkpoint", file("run"), "--resume"}),
              HasSubstr("sharded"));
}

}  // namespace
}  // namespace gradwire
