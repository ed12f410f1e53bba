// `gradwire train --checkpoint`: what is saved when, and what a run goes on from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "apps/train/train.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_checkpoints_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

namespace fs = std::filesystem;

using ::testing::UnorderedElementsAre;

class TrainCheckpoints : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // A run of `steps` steps in all, with more flags; "ok" or the error.
  static std::string run(int steps, const Words& more, int ranks = 2) {
    return train(flags_of(steps, more, ranks));
  }
  static Status refused(int steps, const Words& more) { return refusal(flags_of(steps, more, 2)); }
  static Words flags_of(int steps, const Words& more, int ranks) {
    Words words{"--inproc",     std::to_string(ranks),
                "--steps",      std::to_string(steps),
                "--batch",      "48",
                "--hidden",     "16",
                "--seed",       "7",
                "--compressor", "topk:ratio=0.05,ef=ef14,min_elems=0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // What rank 0 says of where it starts.
  std::string says(Words words) const {
    ::testing::internal::CaptureStdout();
    const auto outcome = train_command(words);
    const std::string text = ::testing::internal::GetCapturedStdout();
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
    return text;
  }
  std::set<std::string> saved() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(file("run"))) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(TrainCheckpoints, AreSavedEveryNStepsAndAtTheEnd) {
  ASSERT_EQ(
      run(7, {"--checkpoint", file("run"), "--checkpoint-every", "3", "--checkpoint-keep", "10"}),
      "ok");
  EXPECT_THAT(saved(),
              UnorderedElementsAre("step-0000000003", "step-0000000006", "step-0000000007"));
}

TEST_F(TrainCheckpoints, AtTheEndAloneUnlessAskedAndTheLastTwoStay) {
  ASSERT_EQ(run(7, {"--checkpoint", file("run")}), "ok");
  EXPECT_THAT(saved(), UnorderedElementsAre("step-0000000007"));
  ASSERT_EQ(run(12, {"--checkpoint", file("run"), "--checkpoint-every", "4", "--resume"}), "ok");
  EXPECT_THAT(saved(), UnorderedElementsAre("step-0000000008", "step-0000000012"));
}

TEST_F(TrainCheckpoints, TenStepsAndTenMoreAreTwenty) {
  ASSERT_EQ(run(20, {"--save-params", file("whole"), "--metrics", file("whole.jsonl")}), "ok");
  ASSERT_EQ(run(10, {"--checkpoint", file("run"), "--metrics", file("m.jsonl")}), "ok");
  ASSERT_EQ(run(20, {"--checkpoint", file("run"), "--resume", "--metrics", file("m.jsonl"),
                     "--save-params", file("resumed")}),
            "ok");
  EXPECT_FALSE(contents(file("whole")).empty());
  EXPECT_EQ(contents(file("whole")), contents(file("resumed")));
  // The metrics read as if nothing had happened: every step once, then the totals.
  const auto whole = json_lines(file("whole.jsonl"));
  const auto resumed = json_lines(file("m.jsonl"));
  ASSERT_EQ(whole.size(), 21U);
  ASSERT_EQ(resumed.size(), 21U);
  for (std::size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(resumed[i]["step"], i);
    EXPECT_EQ(resumed[i]["loss"], whole[i]["loss"]) << i;
    EXPECT_EQ(resumed[i]["payload_bytes"], whole[i]["payload_bytes"]) << i;
  }
  EXPECT_EQ(resumed[20]["steps"], 20);
  EXPECT_EQ(resumed[20]["payload_bytes"], whole[20]["payload_bytes"]);
  EXPECT_EQ(resumed[20]["params_hash"], whole[20]["params_hash"]);
}

TEST_F(TrainCheckpoints, RunningStatisticsGoOn) {
  const auto trained = [&](int steps, Words more) {
    Words words{"--model", "resnet8", "--width", "4", "--inproc", "2",
                "--batch", "48",      "--seed",  "7", "--steps",  std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    return train(words);
  };
  ASSERT_EQ(trained(20, {"--save-params", file("whole")}), "ok");
  ASSERT_EQ(trained(10, {"--checkpoint", file("run")}), "ok");
  ASSERT_EQ(
      trained(20, {"--checkpoint", file("run"), "--resume", "--save-params", file("resumed")}),
      "ok");
  EXPECT_NE(contents(file("whole")).find("running_mean"), std::string::npos);
  EXPECT_TRUE(contents(file("whole")) == contents(file("resumed")));
}

TEST_F(TrainCheckpoints, TheStartIsSaid) {
  const Words words{"--inproc", "2",  "--steps",      "6",         "--batch", "48",
                    "--hidden", "16", "--checkpoint", file("run"), "--resume"};
  EXPECT_THAT(says(words), tells(file("run"), "step 0"));
  EXPECT_THAT(says(words), tells(file("run") + "/step-0000000006", "6 of 6", "2 rank(s)"));
}

TEST_F(TrainCheckpoints, AnotherPolicyOfAccumulationIsSaid) {
  const auto words = [&](const char* steps, const char* policy) {
    return Words{"--inproc",
                 "2",
                 "--steps",
                 steps,
                 "--batch",
                 "48",
                 "--hidden",
                 "16",
                 "--accumulate",
                 "2",
                 "--accumulate-policy",
                 policy,
                 "--checkpoint",
                 file("run"),
                 "--resume"};
  };
  EXPECT_THAT(says(words("3", "sum-then-reduce")), tells("step 0"));
  EXPECT_THAT(says(words("6", "reduce-each")), tells("accumulate-policy was sum-then-reduce"));
  EXPECT_THAT(says(words("9", "reduce-each")), ::testing::Not(tells("accumulate-policy")));
}

TEST_F(TrainCheckpoints, AnotherNumberOfRanksGoesOn) {
  ASSERT_EQ(run(10, {"--checkpoint", file("run")}, 4), "ok");
  ASSERT_EQ(run(20, {"--checkpoint", file("run"), "--resume"}, 3), "ok");
  EXPECT_THAT(saved(), UnorderedElementsAre("step-0000000010", "step-0000000020"));
}

// A cosine or steps of the rate are spread over the whole run: one of another length had other
// rates from its first step on, so what is gone on with is neither run.
TEST_F(TrainCheckpoints, AnotherLengthIsRefusedWhereTheScheduleDependsOnIt) {
  for (const char* schedule : {"cosine:0.1", "warmup:2,step:0.5:0.1"}) {
    fs::remove_all(file("run"));
    ASSERT_EQ(run(6, {"--lr-schedule", schedule, "--checkpoint", file("run")}), "ok");
    EXPECT_THAT(refused(12, {"--lr-schedule", schedule, "--checkpoint", file("run"), "--resume"}),
                fails(kInvalid, "6 steps", "12 steps", schedule));
    // Another schedule is another plan for what is left.
    EXPECT_EQ(run(12, {"--lr-schedule", "constant", "--checkpoint", file("run"), "--resume"}),
              "ok");
  }
  // Modes likewise.
  const auto elastic = [&](int steps, Words more) {
    Words words{"--mode",        "eamsgd",
                "--inproc",      "2",
                "--batch",       "48",
                "--hidden",      "16",
                "--steps",       std::to_string(steps),
                "--lr-schedule", "cosine:0.1",
                "--checkpoint",  file("mode")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  ASSERT_EQ(train(elastic(6, {})), "ok");
  EXPECT_THAT(refusal(elastic(12, {"--resume"})), fails(kInvalid, "6 steps", "12 steps"));
}

TEST_F(TrainCheckpoints, ARunOfTheSameLengthGoesOnUnderItsSchedule) {
  const Words common{
      "--lr-schedule", "warmup:3,cosine:0.1", "--checkpoint-every", "5", "--checkpoint-keep", "9"};
  Words first = common;
  first.insert(first.end(), {"--checkpoint", file("run"), "--save-params", file("whole")});
  ASSERT_EQ(run(12, first), "ok");
  fs::remove_all(file("run") + "/step-0000000010");
  fs::remove_all(file("run") + "/step-0000000012");
  Words second = common;
  second.insert(second.end(),
                {"--checkpoint", file("run"), "--resume", "--save-params", file("resumed")});
  ASSERT_EQ(run(12, second), "ok");
  EXPECT_EQ(contents(file("whole")), contents(file("resumed")));
}

// Under the same names there may be other contents by now.
TEST_F(TrainCheckpoints, OtherDataOrInitsAreRefused) {
  const auto text = [&](const std::string& words) {
    std::ofstream out(file("text"));
    for (int line = 0; line < 300; ++line) out << "the cat sat on the " << words << "\n";
  };
  const auto vocabulary = [&](const char* last) {
    std::ofstream(file("words")) << "<unk>\n<eos>\nthe\ncat\nsat\non\n" << last << "\n";
  };
  const auto flags = [&](int steps, Words more) {
    Words words{"--model",      "gpt",
                "--data",       "text",
                "--text-file",  file("text"),
                "--tokens",     "words",
                "--vocabulary", file("words"),
                "--context",    "4",
                "--width",      "8",
                "--layers",     "1",
                "--heads",      "2",
                "--batch",      "4",
                "--steps",      std::to_string(steps),
                "--checkpoint", file("run")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  text("mat");
  vocabulary("mat");
  ASSERT_EQ(train(flags(2, {})), "ok");
  ASSERT_EQ(train(flags(3, {"--resume"})), "ok");
  text("hat");
  EXPECT_THAT(refusal(flags(4, {"--resume"})), fails(kInvalid, "contents"));
  text("mat");
  vocabulary("hat");
  EXPECT_THAT(refusal(flags(4, {"--resume"})), fails(kInvalid, "contents"));
  vocabulary("mat");
  EXPECT_THAT(refusal(flags(4, {"--resume", "--init", "xavier"})),
              fails(kInvalid, "init", "model", "xavier"));
  EXPECT_EQ(train(flags(4, {"--resume"})), "ok");
}

// Where every step overflows no step exchanges anything: losses are averaged with the last one, and
// what is saved before would go on without the rows of its steps.
TEST_F(TrainCheckpoints, WaitForTheLossesOfTheirSteps) {
  ASSERT_EQ(train({"--inproc",
                   "2",
                   "--steps",
                   "5",
                   "--batch",
                   "48",
                   "--hidden",
                   "16",
                   "--optimizer",
                   "diloco:inner_steps=4",
                   "--lr",
                   "0.001",
                   "--precision",
                   "fp16",
                   "--loss-scale",
                   "1e30",
                   "--checkpoint",
                   file("run"),
                   "--checkpoint-every",
                   "1",
                   "--checkpoint-keep",
                   "10",
                   "--metrics",
                   file("m.jsonl")}),
            "ok");
  const auto lines = json_lines(file("m.jsonl"));
  ASSERT_EQ(lines.size(), 6U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_TRUE(lines[i].contains("skipped")) << i;
  EXPECT_THAT(saved(), UnorderedElementsAre("step-0000000005"));
}

// Counted from the run's first step, not from where it was gone on from.
TEST_F(TrainCheckpoints, MeasurementsGoOnWhereTheyWere) {
  const Words measured{"--checkpoint", file("run"),    "--measure-every", "4",
                       "--metrics",    file("m.jsonl")};
  ASSERT_EQ(run(6, measured), "ok");
  Words more = measured;
  more.push_back("--resume");
  ASSERT_EQ(run(11, more), "ok");
  const auto lines = json_lines(file("m.jsonl"));
  ASSERT_EQ(lines.size(), 12U);
  for (std::size_t t = 0; t < 11; ++t) EXPECT_EQ(lines[t].contains("nmse"), t % 4 == 0) << t;
}

TEST_F(TrainCheckpoints, NothingIsOverwrittenUnasked) {
  ASSERT_EQ(run(4, {"--checkpoint", file("run")}), "ok");
  EXPECT_THAT(refused(4, {"--checkpoint", file("run")}),
              fails(kInvalid, file("run"), "step 4", "--resume"));
}

TEST_F(TrainCheckpoints, BadRequestsSayWhatIsWrong) {
  EXPECT_THAT(refused(4, {"--checkpoint", ""}), fails(kInvalid, "--checkpoint", "empty"));
  EXPECT_THAT(refused(4, {"--metrics", ""}), fails(kInvalid, "--metrics", "empty"));
  // Before a step is made.
  EXPECT_THAT(refused(4, {"--checkpoint", "/proc/run", "--metrics", file("m")}),
              fails(kInvalid, "--checkpoint /proc/run"));
  EXPECT_EQ(contents(file("m")), "");
  EXPECT_THAT(refused(4, {"--resume"}), fails(kInvalid, "--resume", "--checkpoint DIR"));
  EXPECT_THAT(refused(4, {"--checkpoint-every", "2"}),
              fails(kInvalid, "--checkpoint-every", "--checkpoint DIR"));
  std::ofstream(file("file")) << "x";
  EXPECT_THAT(refused(4, {"--checkpoint", file("file/run")}),
              fails(kInvalid, file("file/run"), "Not a directory"));
  ASSERT_EQ(run(4, {"--checkpoint", file("run")}), "ok");
  EXPECT_THAT(refused(3, {"--checkpoint", file("run"), "--resume"}),
              fails(kInvalid, "4 steps", "3"));
  const Words other{"--inproc", "2", "--steps",      "8",         "--hidden", "16", "--batch", "96",
                    "--seed",   "7", "--checkpoint", file("run"), "--resume"};
  EXPECT_THAT(refusal(other), fails(kInvalid, "batch", "48", "96"));
  const std::string damaged = file("run") + "/step-0000000004/rank-1.safetensors";
  fs::resize_file(damaged, fs::file_size(damaged) - 1);
  EXPECT_THAT(refused(8, {"--checkpoint", file("run"), "--resume"}),
              fails(Code::kCorruptPayload, damaged));
}

}  // namespace
}  // namespace gradwire::train_checkpoints_test
