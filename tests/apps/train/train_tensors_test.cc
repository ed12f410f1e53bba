// `gradwire train --parallel tp=N`: runs of ranks that share tensors, against those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/apps/train/train_runs.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_tensors_test {
namespace {

class TrainTensors : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // The last line of the metrics of a run of a gpt, whose parameters are in file(`saved`).
  nlohmann::json totals(const std::string& parallel, const std::string& saved,
                        const Words& more) const {
    Words words{"--parallel",
                parallel,
                "--model",
                "gpt",
                "--data",
                "grammar",
                "--context",
                "8",
                "--width",
                "16",
                "--heads",
                "4",
                "--tied",
                "--seed",
                "5",
                "--batch",
                "16",
                "--accumulate",
                "2",
                "--lr",
                "0.05",
                "--algorithm",
                "canonical",
                "--check-every",
                "1",
                "--eval",
                "8",
                "--metrics",
                file("m.jsonl"),
                "--save-params",
                file(saved)};
    if (std::ranges::find(more, "--steps") == more.end()) {
      words.insert(words.end(), {"--steps", "4"});
    }
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(train(words), "ok") << parallel;
    const auto lines = json_lines(file("m.jsonl"));
    return lines.empty() ? nlohmann::json() : lines.back();
  }

  // The same parameters as without tp, but for rounding.
  void expect_as_replicas(const Words& more, double within = 1e-5) const {
    totals("dp=2", "whole", more);
    for (const std::string layout : {"", "/megatron[sequence=on]"}) {
      totals("dp=2,tp=2" + layout, "shared", more);
      EXPECT_LE(relative_distance(file("whole"), file("shared")), within)
          << more.front() << " " << layout;
    }
  }

  TemporaryFolder folder_;
};

// Parts of a gradient are added up in each micro-batch, before it is exchanged.
TEST_F(TrainTensors, ReduceEachMicroBatch) {
  expect_as_replicas({"--accumulate-policy", "reduce-each"});
  expect_as_replicas({"--accumulate-policy", "reduce-each", "--precision", "bf16"}, 2e-3);
}

TEST_F(TrainTensors, KeepMomentaOfWorkers) { expect_as_replicas({"--momentum-at", "worker"}); }

// Of every rank that holds a part, what was counted is what was planned.
TEST_F(TrainTensors, TellTheMemoryOfEveryRank) {
  const auto tables_of = [&](const std::string& parallel) {
    return totals(parallel, "held", {"--memory", "--optimizer", "adamw"})["memory_bytes_by_stage"];
  };
  const auto two = tables_of("dp=2,tp=2");
  ASSERT_EQ(two.size(), 2U);
  const auto four = tables_of("tp=2,pp=2");
  ASSERT_EQ(four.size(), 4U);
  for (const auto& tables : {two, four}) {
    for (const auto& rank : tables) {
      for (const auto& [name, bytes] : rank["device"].items()) {
        EXPECT_EQ(bytes["planned"], bytes["held"]) << name << " of " << rank;
      }
    }
  }
  // Of an odd vocabulary the second rank has a token more than the first: of each stage's two.
  const auto parameters = [](const nlohmann::json& rank) {
    return rank["device"]["parameters"]["held"].get<std::int64_t>();
  };
  EXPECT_EQ(parameters(two[1]) - parameters(two[0]), 16 * 4);
  EXPECT_EQ(parameters(four[1]) - parameters(four[0]), 16 * 4);
}

}  // namespace
}  // namespace gradwire::train_tensors_test
