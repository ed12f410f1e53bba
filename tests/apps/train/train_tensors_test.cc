// `gradwire train --parallel tp=N`: runs of ranks that share tensors, against those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/plan/plan.h"
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

// By the norm of the whole model's gradient, in which norms and biases count once.
TEST_F(TrainTensors, ClipTheGradientsOfWorkers) {
  expect_as_replicas({"--clip-worker", "0.05"});
  expect_as_replicas({"--clip-worker", "0.05", "--precision", "fp16", "--loss-scale", "64"}, 2e-3);
}

// The bits of a run that keeps everything; layers of a part are chosen by the whole model's costs.
TEST_F(TrainTensors, ComputeTheSameLayersAgain) {
  for (const char* parallel : {"tp=2", "tp=4/megatron[sequence=on]", "tp=2,pp=2"}) {
    const auto kept = totals(parallel, "kept", {"--recompute", "none"});
    const auto again = totals(parallel, "again", {"--recompute", "selective", "--memory"});
    ASSERT_TRUE(kept.contains("params_hash")) << parallel;
    EXPECT_EQ(again["params_hash"], kept["params_hash"]) << parallel;
    for (const auto& rank : again["memory_bytes_by_stage"]) {
      for (const auto& [name, bytes] : rank["device"].items()) {
        EXPECT_EQ(bytes["planned"], bytes["held"]) << parallel << ": " << name << " of " << rank;
      }
    }
  }
}

// What several ranks have of a gradient, or keep of it, counts once: norms, biases, positions, the
// tied embedding of two stages. Coders draw by their rank's tensors.
TEST_F(TrainTensors, MeasureTheErrorsOfTheWholeModel) {
  for (const char* compressor : {"none", "signsgd:ef=ef14,min_elems=0"}) {
    const Words words{"--compressor",    compressor, "--momentum", "0",
                      "--measure-every", "2",        "--steps",    "3"};
    const auto measured = [&](const std::string& parallel) {
      totals(parallel, "measured", words);
      return json_lines(file("m.jsonl")).front();
    };
    const nlohmann::json whole = measured("dp=2");
    const double norm = whole.at("exact_norm");
    for (const char* parallel :
         {"dp=2,tp=2", "dp=2,tp=2/megatron[sequence=on]", "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
      const nlohmann::json parts = measured(parallel);
      EXPECT_NEAR(parts.at("exact_norm").get<double>(), norm, 1e-5 * norm) << parallel;
      if (compressor == std::string("none")) continue;
      const double nmse = whole.at("nmse");
      EXPECT_NEAR(parts.at("nmse").get<double>(), nmse, 0.5 * nmse) << parallel;
      const double residual = whole.at("residual_norm");
      EXPECT_NEAR(parts.at("residual_norm").get<double>(), residual, 0.3 * residual) << parallel;
    }
  }
}

// Of the rank that holds most, to the byte; all ranks are on one line of the metrics, or one is
// where none divides the model.
TEST_F(TrainTensors, ThePlanOfAModelForImagesIsWhatRanksHold) {
  struct Planned {
    const char* model;
    const char* parallel;
    const char* zero;
    const char* micro_batch;
  };
  for (const Planned& one :
       {Planned{"cnn", "dp=2", "2", "8"}, Planned{"mlp", "dp=1,tp=2", "0", "16"},
        Planned{"cnn", "dp=1,tp=2/hybrid", "0", "16"},
        Planned{"resnet8", "dp=2,tp=2/hybrid", "1", "8"},
        Planned{"resnet8", "dp=1,tp=4/spatial[2x2]", "0", "16"},
        Planned{"cnn", "dp=2,tp=2/spatial[1x2]", "3", "8"}}) {
    SCOPED_TRACE(std::string(one.model) + " " + one.parallel);
    ASSERT_EQ(train({"--model", one.model, "--parallel", one.parallel, "--zero", one.zero,
                     "--batch", "32", "--accumulate", "2", "--steps", "2", "--optimizer", "adamw",
                     "--memory", "--metrics", file("m.jsonl")}),
              "ok");
    const nlohmann::json totals = json_lines(file("m.jsonl")).back();
    nlohmann::json ranks = nlohmann::json::array({totals["memory_bytes"]});
    if (totals.contains("memory_bytes_by_stage")) ranks = totals["memory_bytes_by_stage"];
    double most = 0;
    for (const auto& rank : ranks) {
      double held = 0;
      for (const auto& [name, bytes] : rank["device"].items()) {
        if (name != "communication") held += bytes["held"].get<double>();
      }
      most = std::max(most, held);
    }
    ::testing::internal::CaptureStdout();
    const auto planned =
        plan_command({"--model", one.model, "--image", "1x8x8", "--parallel", one.parallel,
                      "--zero", one.zero, "--micro-batch", one.micro_batch, "--accumulate", "2",
                      "--precision", "fp32", "--memory", "--json", file("plan.jsonl")});
    ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(planned.has_value()) << planned.error().message();
    const nlohmann::json row = json_lines(file("plan.jsonl")).at(one.zero[0] - '0');
    EXPECT_EQ(row["total_bytes"].get<double>(), most);
  }
}

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
