// `gradwire train --resume` on other meshes: twelve micro-batches a step over all ranks, however
// many there are. What ranks owe the model is judged by other_meshes_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/apps/train/train_runs.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_resume_test {
namespace {

namespace fs = std::filesystem;

constexpr int kMicroBatches = 12;
constexpr const char* kQsgd = "qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false";
constexpr const char* kTopk = "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false";
constexpr const char* kPowersgd = "powersgd:rank=2,ef=ef14,min_elems=0";

// How a run's ranks share the model and its steps.
struct Ranks {
  int count;
  int zero = 0;
};

struct Ended {
  std::string params_hash;
  double loss = 0;  // of the last step
};

class TrainResume : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  Ended run(const Ranks& ranks, const std::string& compressor, int steps, const Words& more) const {
    Words words{"--inproc",     std::to_string(ranks.count),
                "--accumulate", std::to_string(kMicroBatches / ranks.count),
                "--zero",       std::to_string(ranks.zero),
                "--compressor", compressor,
                "--steps",      std::to_string(steps),
                "--batch",      "48",
                "--hidden",     "12",
                "--seed",       "3",
                "--optimizer",  "adamw",
                "--lr",         "0.002",
                "--metrics",    file("m.jsonl")};
    words.insert(words.end(), more.begin(), more.end());
    fs::remove(file("m.jsonl"));
    EXPECT_EQ(train(words), "ok");
    const auto lines = json_lines(file("m.jsonl"));
    if (lines.size() < 2) return {};
    return {lines.back()["params_hash"], lines[lines.size() - 2]["loss"]};
  }

  // Twenty steps of four ranks at stage `zero`, and ten of them.
  void begin(int zero, const std::string& compressor) {
    fs::remove_all(file("saved"));
    whole_ = run({4, zero}, compressor, 20, {});
    run({4, zero}, compressor, 10, {"--checkpoint", file("saved")});
  }

  // The last ten on other ranks.
  Ended resumed(const Ranks& ranks, const std::string& compressor) const {
    fs::remove_all(file("copy"));
    fs::copy(file("saved"), file("copy"), fs::copy_options::recursive);
    return run(ranks, compressor, 20, {"--checkpoint", file("copy"), "--resume"});
  }

  // Four ranks at the stage that wrote it have its bits, others its loss.
  void expect_goes_on(const std::string& compressor, const Ranks& ranks, bool same) const {
    SCOPED_TRACE(compressor + " on " + std::to_string(ranks.count) + " ranks at stage " +
                 std::to_string(ranks.zero));
    const Ended ended = resumed(ranks, compressor);
    EXPECT_FALSE(ended.params_hash.empty());
    EXPECT_NEAR(ended.loss, whole_.loss, 0.02 * whole_.loss);
    if (same) {
      EXPECT_EQ(ended.params_hash, whole_.params_hash);
      EXPECT_EQ(ended.loss, whole_.loss);
    }
  }

  Ended whole_;

 private:
  TemporaryFolder folder_;
};

TEST_F(TrainResume, WhatFourShardedRanksWroteAnyRanksAtAnyStageResume) {
  begin(2, kQsgd);
  for (const int ranks : {4, 1, 2, 3}) {
    for (const int zero : {0, 1, 2, 3}) {
      expect_goes_on(kQsgd, {ranks, zero}, ranks == 4 && zero == 2);
    }
  }
}

TEST_F(TrainResume, MethodsThatChooseOrFactorGoOnAtStageZero) {
  for (const char* compressor : {kTopk, kPowersgd}) {
    begin(0, compressor);
    for (const int ranks : {4, 1, 2, 3}) expect_goes_on(compressor, {ranks}, ranks == 4);
  }
}

// On any number of replicas PowerSGD goes on with its factors: nothing starts anew.
TEST_F(TrainResume, FactorsGoOnWithoutAWarning) {
  begin(0, kPowersgd);
  const auto said = [&](int ranks) {
    ::testing::internal::CaptureStderr();
    resumed({ranks}, kPowersgd);
    return ::testing::internal::GetCapturedStderr();
  };
  for (const int ranks : {1, 3, 4}) {
    EXPECT_THAT(said(ranks), ::testing::Not(::testing::HasSubstr("anew"))) << ranks;
  }
}

}  // namespace
}  // namespace gradwire::train_resume_test
