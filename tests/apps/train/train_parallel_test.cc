// `gradwire train --parallel`: the same runs as by the flags that it stands for, and what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_parallel_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

class TrainParallel : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // The last line of the metrics of a run, without its times.
  nlohmann::json totals(Words words) const {
    words.insert(words.end(), {"--steps", "6", "--batch", "48", "--hidden", "24", "--seed", "5",
                               "--check-every", "1", "--metrics", file("m.jsonl")});
    EXPECT_EQ(train(words), "ok") << words[1];
    const auto lines = json_lines(file("m.jsonl"));
    return lines.empty() ? nlohmann::json() : lines.back();
  }

  static Status refused(const Words& more) {
    Words words{"--steps", "2", "--batch", "48", "--hidden", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words);
  }

  TemporaryFolder folder_;
};

// Bytes, bits and all that a run says of itself.
TEST_F(TrainParallel, IsBitForBitWhatItStandsFor) {
  const std::vector<std::pair<Words, Words>> all{
      {{"--parallel", "dp=4"}, {"--inproc", "4"}},
      {{"--parallel", "dp=4", "--inproc", "4"}, {"--inproc", "4"}},
      {{"--parallel", "zero=0", "--inproc", "3"}, {"--inproc", "3"}},
      {{"--parallel", "dp=1"}, {"--inproc", "1"}},
      {{"--parallel", "pp=1/gpipe,dp=3,tp=1,zero=2"}, {"--inproc", "3", "--zero", "2"}},
      {{"--parallel", "zero=3", "--inproc", "2"}, {"--inproc", "2", "--zero", "3"}},
      {{"--parallel", "dp=4", "--compressor", "qsgd:bits=4,ef=ef14"},
       {"--inproc", "4", "--compressor", "qsgd:bits=4,ef=ef14"}}};
  for (const auto& [parallel, flags] : all) {
    const nlohmann::json one = totals(parallel);
    const nlohmann::json other = totals(flags);
    for (const char* key : {"params_hash", "ranks", "transport", "accuracy", "bytes_sent"}) {
      ASSERT_TRUE(one.contains(key)) << key << " in " << one;
      EXPECT_EQ(one[key], other[key]) << parallel[1] << ": " << key;
    }
  }
}

TEST_F(TrainParallel, AFileSaysItLikeAnyFlag) {
  std::ofstream(file("run.toml")) << "parallel = \"dp=2,zero=1\"\n";
  const nlohmann::json one = totals({"--config", file("run.toml")});
  EXPECT_EQ(one["ranks"], 2);
  EXPECT_EQ(one["params_hash"], totals({"--inproc", "2", "--zero", "1"})["params_hash"]);
}

// The same micro-batches, added in the same order: four ranks with one each, or one with four. Two
// with two add in pairs first, which is the same sum but for its rounding.
TEST_F(TrainParallel, AStepsMicroBatchesDoNotDependOnTheirRanks) {
  const auto run = [&](const std::string& ranks, const std::string& micro_batches) {
    const std::string out = file(ranks + "x" + micro_batches);
    EXPECT_EQ(train({"--parallel", "dp=" + ranks, "--accumulate", micro_batches, "--steps", "10",
                     "--batch", "48", "--hidden", "24", "--seed", "5", "--algorithm", "canonical",
                     "--save-params", out}),
              "ok");
    return out;
  };
  const std::string four = run("4", "1");
  EXPECT_EQ(contents(four), contents(run("1", "4")));
  EXPECT_LE(relative_distance(four, run("2", "2")), 1e-6);
}

// Every stage reduces the sum of a rank's micro-batches once, so all of them have the same bits.
TEST_F(TrainParallel, EveryStageOfZeroAccumulates) {
  for (const auto& [ranks, micro_batches] : {std::pair("2", "2"), std::pair("3", "4")}) {
    const auto run = [&](const std::string& stage, const Words& more) {
      Words words{"--parallel",    std::string("dp=") + ranks + ",zero=" + stage,
                  "--accumulate",  micro_batches,
                  "--steps",       "6",
                  "--batch",       "48",
                  "--hidden",      "24",
                  "--algorithm",   "canonical",
                  "--optimizer",   "adamw",
                  "--lr",          "0.002",
                  "--check-every", "1",
                  "--save-params", file(stage)};
      words.insert(words.end(), more.begin(), more.end());
      EXPECT_EQ(train(words), "ok") << ranks << " ranks, stage " << stage;
      return contents(file(stage));
    };
    const std::string plain = run("0", {});
    for (const std::string stage : {"1", "2", "3"}) EXPECT_EQ(run(stage, {}), plain) << stage;
    for (const std::string stage : {"0", "1", "2", "3"}) {
      run(stage, {"--compressor", "qsgd:bits=4,ef=ef14", "--memory"});
      run(stage, {"--precision", "fp16", "--clip", "1"});
    }
  }
}

TEST_F(TrainParallel, WhatDoesNotFitIsRefused) {
  EXPECT_THAT(refused({"--parallel", "dp=3", "--inproc", "4"}),
              fails(kInvalid, "--parallel dp=3", "pp=1 x dp=3 x tp=1 = 3 ranks", "the job has 4"));
  EXPECT_THAT(refused({"--parallel", "dp=65"}),
              fails(kInvalid, "--parallel dp=65", "at most 64", "gradwire run -n 65"));
  EXPECT_THAT(refused({"--parallel", "dp=3,zero=1", "--inproc", "4"}),
              fails(kInvalid, "--parallel dp=3,zero=1", "= 3 ranks", "the job has 4"));
  EXPECT_THAT(refused({"--parallel", "tp=2/hybrid"}),
              fails(Code::kUnsupported, "--parallel tp=2/hybrid", "model mlp", "cnn, resnet8"));
  EXPECT_THAT(refusal({"--parallel", "tp=2", "--model", "cnn"}),
              fails(Code::kUnsupported, "--parallel tp=2", "cnn", "mlp or gpt"));
  EXPECT_THAT(refusal({"--parallel", "tp=3", "--model", "gpt", "--data", "grammar"}),
              fails(kInvalid, "--parallel tp=3", "4 heads", "3 ranks"));
  EXPECT_THAT(refused({"--parallel", "dp=9,pp=8"}),
              fails(kInvalid, "--parallel dp=9,pp=8", "at most 64", "gradwire run -n 72"));
  EXPECT_THAT(refused({"--parallel", "dp=2/ring"}), fails(kInvalid, "--parallel", "'2/ring'"));
  EXPECT_THAT(refused({"--parallel", "dp=5"}), fails(kInvalid, "--batch", "multiple of 5", "48"));
}

TEST_F(TrainParallel, ImagesThatDoNotDivideAreRefusedByLayer) {
  const auto image = [](const std::string& model, const std::string& layout, const Words& more) {
    Words words{"--model", model, "--parallel", layout, "--steps", "2", "--batch", "48"};
    words.insert(words.end(), more.begin(), more.end());
    return refusal(words);
  };
  EXPECT_THAT(image("cnn", "tp=2/spatial[1x2],pp=2/zb-h1", {}),
              fails(Code::kUnsupported, "pp=", "tp=2/spatial[1x2],pp=2/zb-h1", "pp=1"));
  EXPECT_THAT(image("cnn", "tp=5/hybrid", {}),
              fails(kInvalid, "--parallel tp=5/hybrid", "48 samples", "5 ranks of tp"));
  EXPECT_THAT(image("cnn", "dp=2,tp=4/hybrid", {"--accumulate", "4"}),
              fails(kInvalid, "dp=2,tp=4/hybrid", "6 samples", "--accumulate 4", "4 ranks of tp"));
  EXPECT_THAT(image("cnn", "tp=3/spatial[3x1]", {}),
              fails(kInvalid, "--parallel tp=3/spatial[3x1]", "cnn", "images of 8x8"));
  EXPECT_THAT(image("cnn", "tp=8/spatial[1x8]", {}), fails(kInvalid, "'pool1'", "tiles of 8x1"));
  EXPECT_THAT(image("resnet8", "tp=4/spatial[4x1]", {}),
              fails(kInvalid, "resnet8", "'block3.conv1'", "height of 4", "got 1"));
}

// Every step's loss, and what is measured at the end, over 20 steps; what --memory counts is what
// it planned. A rate at which resnet8 does not make more of roundings: at 0.05 one rank's own
// losses change by 1e-3 where its gradients bear a scale of 3.
TEST_F(TrainParallel, ImagesTrainAsOneRank) {
  const auto lines = [&](const std::string& model, const std::string& layout) {
    Words words{"--model", model,  "--parallel", layout,      "--steps",      "20",
                "--batch", "32",   "--seed",     "5",         "--accumulate", "2",
                "--lr",    "0.02", "--memory",   "--metrics", file("m.jsonl")};
    if (model == "resnet8") words.insert(words.end(), {"--width", "4"});
    EXPECT_EQ(train(words), "ok") << model << " " << layout;
    return json_lines(file("m.jsonl"));
  };
  const auto held_activations = [](const nlohmann::json& rank) {
    return rank["device"]["activations"]["held"].get<std::int64_t>();
  };
  for (const std::string model : {"cnn", "resnet8"}) {
    const auto alone = lines(model, "tp=1");
    for (const std::string layout :
         {"tp=2/hybrid", "tp=4/hybrid", "tp=2/spatial[2x1]", "tp=4/spatial[2x2]"}) {
      SCOPED_TRACE(model + " " + layout);
      const auto shared = lines(model, layout);
      ASSERT_EQ(shared.size(), alone.size());
      ASSERT_GT(alone.size(), 20U);
      for (std::size_t i = 0; i + 1 < alone.size(); ++i) {
        if (!alone[i].contains("loss")) continue;
        EXPECT_NEAR(shared[i]["loss"].get<double>(), alone[i]["loss"].get<double>(), 1e-4) << i;
      }
      EXPECT_NEAR(shared.back()["test_loss"].get<double>(), alone.back()["test_loss"].get<double>(),
                  1e-4);
      EXPECT_GT(shared.back()["traffic_bytes"]["activations"].get<double>(), 0);
      for (const auto& rank : shared.back()["memory_bytes_by_stage"]) {
        for (const auto& [name, bytes] : rank["device"].items()) {
          EXPECT_EQ(bytes["planned"], bytes["held"]) << name;
        }
        EXPECT_LT(held_activations(rank), held_activations(alone.back()["memory_bytes"]));
      }
      EXPECT_GE(shared.back()["memory_bytes_by_stage"].size(), 2U);
    }
  }
}

TEST_F(TrainParallel, MicroBatchesExchangedOneByOneAreRefusedByFlag) {
  const Words each{"--inproc", "2", "--accumulate", "2", "--accumulate-policy", "reduce-each"};
  const auto said = [&](const Words& more) {
    Words words = each;
    words.insert(words.end(), more.begin(), more.end());
    return refused(words);
  };
  // Feedback, a method's own too, in any rule.
  const std::vector<std::pair<std::string, std::string>> all{
      {"topk:ratio=0.1,ef=ef14", "ef=ef14"},
      {"qsgd:bits=4,ef=ef21", "ef=ef21"},
      {"dgc:ratio=0.1", "dgc:ratio=0.1"},
      {"*.bias=none;*=qsgd:bits=4,ef=loco", "ef=loco"}};
  for (const auto& [spec, named] : all) {
    EXPECT_THAT(said({"--compressor", spec, "--momentum", "0"}),
                fails(kInvalid, "--accumulate-policy reduce-each", "--accumulate 2", named,
                      "expected a compressor without error feedback, or sum-then-reduce"));
  }
  EXPECT_THAT(said({"--zero", "2", "--traffic", "gradients=qsgd:bits=4,ef=ef14"}),
              fails(kInvalid, "--accumulate-policy reduce-each", "qsgd:bits=4,ef=ef14"));
  EXPECT_THAT(said({"--measure-every", "3"}),
              fails(kInvalid, "--accumulate-policy reduce-each", "got --measure-every 3",
                    "expected --measure-every 0", "sum-then-reduce"));
  EXPECT_THAT(
      said({"--precision", "bf16", "--no-main-grads"}),
      fails(kInvalid, "--accumulate-policy reduce-each", "got --no-main-grads", "sum-then-reduce"));
  EXPECT_THAT(said({"--optimizer", "demo"}),
              fails(kInvalid, "--accumulate-policy reduce-each", "got --optimizer demo", "adamw"));
  // What is no compressor is told as ever.
  EXPECT_THAT(said({"--compressor", "topkk:ratio=0.1"}), fails(kInvalid, "topkk", "topk"));
  EXPECT_EQ(train({"--inproc", "2", "--steps", "1", "--batch", "48", "--hidden", "16",
                   "--accumulate-policy", "reduce-each", "--compressor", "topk:ratio=0.1,ef=ef14"}),
            "ok");  // one micro-batch is the sum
}

// No mode but sync has micro-batches, or ranks on a mesh.
TEST_F(TrainParallel, ModesRefuseMeshesAndPoliciesByFlag) {
  for (const std::string mode :
       {"ps-sync", "ps-async", "hogwild", "easgd", "sync-easgd", "eamsgd", "fedavg"}) {
    EXPECT_THAT(refused({"--parallel", "dp=4", "--mode", mode}),
                fails(kInvalid, "--parallel", "--mode sync", "got --mode " + mode));
    EXPECT_THAT(refused({"--inproc", "4", "--accumulate-policy", "reduce-each", "--mode", mode}),
                fails(kInvalid, "--accumulate-policy", "--mode sync", "got --mode " + mode));
  }
}

TEST_F(TrainParallel, MisspeltLayoutsAndSchedulesAreAnswered) {
  EXPECT_THAT(refused({"--parallel", "tp=2/megatorn"}),
              fails(kInvalid, "--parallel", "megatorn", "did you mean 'megatron'"));
  EXPECT_THAT(refused({"--parallel", "pp=2/1f1d"}),
              fails(kInvalid, "--parallel", "1f1d", "did you mean '1f1b'"));
  EXPECT_THAT(refused({"--parallel", "ddp=2"}),
              fails(kInvalid, "--parallel", "ddp", "did you mean 'dp'"));
}

// Ranks as threads have no transport to choose.
TEST_F(TrainParallel, ThreadsAreNoTransport) {
  EXPECT_THAT(refused({"--transport", "inproc"}),
              fails(kInvalid, "--transport", "inproc", "threads", "--inproc N"));
}

TEST_F(TrainParallel, TwoWaysForOneThingAreRefused) {
  EXPECT_THAT(refused({"--parallel", "dp=2,zero=1", "--zero", "1"}),
              fails(kInvalid, "zero=1", "--zero 1", "exclude"));
  EXPECT_THAT(refused({"--parallel", "dp=4", "--mode", "ps-sync"}),
              fails(kInvalid, "--parallel", "--mode sync", "ps-sync"));
  EXPECT_THAT(refused({"--parallel", "dp=4", "--transport", "tcp"}),
              fails(kInvalid, "--transport tcp", "threads"));
}

}  // namespace
}  // namespace gradwire::train_parallel_test
