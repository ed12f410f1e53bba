// `gradwire train --parallel pp=N`: the same parameters as on one rank, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/plan/plan.h"
#include "apps/train/parallel/unserved.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"

namespace gradwire::train_stages_test {
namespace {

class TrainStages : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // The last line of the metrics of a run.
  nlohmann::json totals(const std::string& parallel, const Words& more) const {
    Words words{"--parallel", parallel,        "--batch", "48",        "--seed",
                "5",          "--check-every", "1",       "--metrics", file("m.jsonl")};
    if (std::ranges::find(more, "--accumulate") == more.end()) {
      words.insert(words.end(), {"--accumulate", "4"});
    }
    if (std::ranges::find(more, "--steps") == more.end()) {
      words.insert(words.end(), {"--steps", "5"});
    }
    if (std::ranges::find(more, "--algorithm") == more.end()) {
      words.insert(words.end(), {"--algorithm", "canonical"});
    }
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(train(words), "ok") << parallel;
    const auto lines = json_lines(file("m.jsonl"));
    return lines.empty() ? nlohmann::json() : lines.back();
  }

  TemporaryFolder folder_;
};

const Words kMlp{"--hidden", "24,20,18,16,20,14,12,16"};

// Whatever the schedule, and whether replicas hold the stages.
TEST_F(TrainStages, HaveTheBitsOfWholeModels) {
  for (const char* dp : {"dp=1", "dp=2"}) {
    const nlohmann::json whole = totals(dp, kMlp);
    for (const char* pp :
         {"pp=2", "pp=2/gpipe", "pp=2/interleaved", "pp=3/zb-h1", "pp=2/breadth-first[chunks=3]",
          "pp=4/zb-v", "pp=3/zb-v-half", "pp=2/zb-v-min"}) {
      const nlohmann::json stages = totals(std::string(dp) + "," + pp, kMlp);
      for (const char* key : {"params_hash", "accuracy", "parameters"}) {
        ASSERT_TRUE(whole.contains(key)) << key << " in " << whole;
        EXPECT_EQ(stages[key], whole[key]) << dp << " " << pp << ": " << key;
      }
    }
  }
}

// Two ranks hold each stage, and are the replicas.
TEST_F(TrainStages, InBothDirectionsHaveTheBitsOfTwoReplicas) {
  Words halved = kMlp;
  halved.insert(halved.end(), {"--accumulate", "2"});
  for (const Words& more : {Words{}, Words{"--zero", "1", "--optimizer", "adamw"},
                            Words{"--compressor", "topk:ratio=0.1,ef=ef14"}}) {
    Words plain = halved;
    plain.insert(plain.end(), more.begin(), more.end());
    Words both = kMlp;
    both.insert(both.end(), more.begin(), more.end());
    const nlohmann::json whole = totals("dp=2", plain);
    ASSERT_TRUE(whole.contains("params_hash"));
    for (const char* pp : {"pp=4/chimera", "dp=1,pp=2/chimera[doubling=on]"}) {
      const nlohmann::json stages = totals(pp, both);
      for (const char* key : {"params_hash", "accuracy", "parameters"}) {
        EXPECT_EQ(stages[key], whole[key]) << pp << ": " << key;
      }
    }
    EXPECT_EQ(totals("dp=1,pp=4/chimera", both)["parallel"], "dp=1,pp=4/chimera");
  }
  EXPECT_THAT(refusal({"--parallel", "dp=1,pp=3/chimera", "--accumulate", "4", "--batch", "48"}),
              fails(Code::kInvalidArgument, "pp=3/chimera", "even"));
  EXPECT_THAT(refusal({"--parallel", "dp=1,pp=2/chimera", "--accumulate", "3", "--batch", "48"}),
              fails(Code::kInvalidArgument, "chimera", "3 micro-batches", "even"));
  EXPECT_THAT(refusal({"--parallel", "dp=1,pp=2/chimera", "--accumulate", "4", "--batch", "48",
                       "--zero", "2"}),
              fails(Code::kUnsupported, "--zero", "chimera", "0 or 1"));
  EXPECT_THAT(refusal({"--parallel", "dp=1,pp=2/chimera", "--batch", "48"}),
              fails(Code::kInvalidArgument, "chimera", "1 micro-batch", "even"));
  // A sample in each micro-batch of 2 replicas, 2 pipelines and 4 micro-batches.
  EXPECT_EQ(train({"--parallel", "dp=2,pp=2/chimera", "--accumulate", "8", "--batch", "16",
                   "--steps", "2"}),
            "ok");
}

// A checkpoint behind a drain is one that the run would go on from with the same bits.
TEST_F(TrainStages, WithoutAFlushGoOnFromADrain) {
  int number = 0;
  for (const auto& [pp, accumulate] :
       {std::pair("pp=3/pipedream", "1"), std::pair("pp=3/pipedream[vertical_sync=on]", "1"),
        std::pair("pp=3/2bw", "4")}) {
    Words words = kMlp;
    words.insert(words.end(), {"--accumulate", accumulate, "--checkpoint",
                               file("resumed" + std::to_string(++number)), "--checkpoint-every",
                               "4", "--steps"});
    Words first = words;
    first.emplace_back("8");
    const nlohmann::json begun = totals(pp, first);
    EXPECT_EQ(begun["schedule"], std::string(pp).substr(5)) << pp;
    EXPECT_GT(begun["bubble"], 0) << pp;
    // A row for each step, in their order, with the losses that came behind them.
    const auto rows = json_lines(file("m.jsonl"));
    ASSERT_EQ(rows.size(), 9U) << pp;
    for (std::size_t step = 0; step < 8; ++step) {
      EXPECT_EQ(rows[step]["step"], step) << pp;
      EXPECT_GT(rows[step]["loss"], 1) << pp;
    }
    Words more = words;
    more.insert(more.end(), {"14", "--resume"});
    const nlohmann::json resumed = totals(pp, more);
    Words whole = words;
    whole.emplace_back("14");
    whole[std::ranges::find(whole, "--checkpoint") - whole.begin() + 1] =
        file("whole" + std::to_string(number));
    EXPECT_EQ(totals(pp, whole)["params_hash"], resumed["params_hash"]) << pp;
    ASSERT_TRUE(resumed.contains("params_hash"));
  }
}

// Weights that are delayed by a step on one rank, too, which are those of any number of stages.
TEST_F(TrainStages, OneRankDelaysItsWeightsAsStagesDo) {
  Words words = kMlp;
  words.insert(words.end(), {"--accumulate", "4"});
  const nlohmann::json one = totals("pp=1/2bw", words);
  ASSERT_TRUE(one.contains("params_hash"));
  EXPECT_EQ(one["params_hash"], totals("dp=1,pp=3/2bw", words)["params_hash"]);
  EXPECT_NE(one["params_hash"], totals("dp=1", words)["params_hash"]);
  EXPECT_EQ(totals("dp=2,pp=1/2bw", words)["params_hash"],
            totals("dp=2,pp=2/2bw", words)["params_hash"]);
  EXPECT_THAT(refusal({"--parallel", "pp=1/2bw", "--clip", "1"}),
              fails(Code::kUnsupported, "--clip", "pp=1/2bw"));
}

// A file of a stream has no end that a step could wait for.
TEST_F(TrainStages, FilesOfStreamsAreRefusedByName) {
  std::ofstream(file("own.txt")) << "stream ranks=2 stages=2 micro-batches=1 window=2 versions=2\n";
  EXPECT_THAT(refusal({"--parallel", "pp=2/file[" + file("own.txt") + "]"}),
              fails(Code::kUnsupported, "own.txt", "stream", "pipedream"));
}

// Another mesh, and another schedule, from a copy of what a drain left.
TEST_F(TrainStages, OthersGoOnFromADrain) {
  int copies = 0;
  for (const auto& [pp, accumulate] :
       {std::pair("pp=3/pipedream", "1"), std::pair("pp=3/2bw", "4")}) {
    Words words = kMlp;
    words.insert(words.end(), {"--accumulate", accumulate, "--optimizer", "adamw", "--checkpoint"});
    Words first = words;
    const std::string left = file("left" + std::to_string(copies));
    first.insert(first.end(), {left, "--steps", "8"});
    totals(pp, first);
    const auto from_there = [&](const std::string& parallel) {
      const std::string copy = file("copy" + std::to_string(++copies));
      std::filesystem::copy(left, copy, std::filesystem::copy_options::recursive);
      Words more = words;
      more.insert(more.end(), {copy, "--resume", "--steps", "12"});
      return totals(parallel, more);
    };
    const nlohmann::json whole = from_there("dp=1");
    ASSERT_TRUE(whole.contains("params_hash")) << pp;
    for (const char* other : {"dp=1,pp=2/1f1b", "dp=1,pp=4/zb-h1", "dp=1,pp=2/interleaved"}) {
      EXPECT_EQ(from_there(other)["params_hash"], whole["params_hash"]) << pp << " to " << other;
    }
    EXPECT_NEAR(from_there("dp=2,pp=2/1f1b")["test_loss"], whole["test_loss"], 1e-4) << pp;
    // With gradients of older weights from there on.
    const std::string stream = std::string(accumulate) == "1" ? "pipedream" : "2bw";
    for (const char* other : {"dp=1,pp=4/", "dp=2,pp=2/"}) {
      const nlohmann::json streaming = from_there(other + stream);
      EXPECT_NE(streaming["params_hash"], whole["params_hash"]) << pp << " to " << other;
      EXPECT_NEAR(streaming["test_loss"], whole["test_loss"], 0.2) << pp << " to " << other;
    }
  }
}

// The sum takes micro-batches in their order, the schedule goes back in the other one.
TEST_F(TrainStages, HaveThemWhereTheLastMicroBatchGoesBackFirst) {
  std::ofstream(file("own.txt")) << "pipeline ranks=2 stages=2 micro-batches=4\n"
                                    "place 0 1\n"
                                    "rank 0: 0F0 0F1 0F2 0F3 0B3 0B2 0B1 0B0\n"
                                    "rank 1: 1F0 1F1 1F2 1F3 1B3 1B2 1B1 1B0\n";
  for (const Words& more : {Words{"--precision", "fp32"}, Words{"--precision", "bf16"},
                            Words{"--precision", "bf16", "--no-main-grads"}}) {
    Words words = kMlp;
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--memory"});
    const nlohmann::json whole = totals("dp=1", words);
    const nlohmann::json stages = totals("pp=2/file[" + file("own.txt") + "]", words);
    ASSERT_TRUE(whole.contains("params_hash")) << more.back();
    EXPECT_EQ(stages["params_hash"], whole["params_hash"]) << more.back();
    for (const auto& rank : stages["memory_bytes_by_stage"]) {
      for (const auto& [name, bytes] : rank["device"].items()) {
        EXPECT_EQ(bytes["planned"], bytes["held"]) << name << " of " << rank;
      }
    }
  }
}

// In 16 bits, with a scale, with another optimizer, with layers that are computed again.
TEST_F(TrainStages, ServeWhatOneRankDoes) {
  const std::vector<Words> all{{"--precision", "bf16"},
                               {"--precision", "fp16", "--loss-scale", "256"},
                               {"--optimizer", "adamw", "--lr", "0.002"},
                               {"--optimizer", "lamb", "--lr", "0.01"},
                               {"--precision", "bf16", "--no-main-grads"},
                               {"--precision", "fp16", "--no-main-grads"},
                               {"--momentum-at", "worker"},
                               {"--recompute", "full"},
                               {"--eval-every", "2"}};
  for (const Words& more : all) {
    Words words = kMlp;
    words.insert(words.end(), more.begin(), more.end());
    const nlohmann::json whole = totals("dp=1", words);
    ASSERT_TRUE(whole.contains("params_hash")) << more.front();
    for (const char* parallel : {"pp=2/interleaved", "pp=2/breadth-first"}) {
      const nlohmann::json stages = totals(parallel, words);
      EXPECT_EQ(stages["params_hash"], whole["params_hash"]) << more.front() << " " << more.back();
      EXPECT_EQ(stages["accuracy"], whole["accuracy"]) << more.front();
    }
  }
}

TEST_F(TrainStages, SaveTheWholeModel) {
  Words words = kMlp;
  words.insert(words.end(), {"--save-params", file("whole")});
  totals("dp=1", words);
  words.back() = file("stages");
  totals("dp=2,pp=2", words);
  words.back() = file("replicas");
  totals("dp=2", words);
  EXPECT_EQ(contents(file("stages")), contents(file("replicas")));
  EXPECT_EQ(contents(file("stages")).size(), contents(file("whole")).size());
}

// Replicas of a stage shard what is the stage's.
TEST_F(TrainStages, ShardTheirState) {
  const std::vector<Words> all{{},
                               {"--precision", "bf16"},
                               {"--precision", "fp16"},
                               {"--optimizer", "adamw", "--lr", "0.002", "--eval-every", "2"},
                               {"--parameter-compressor", "cast:bf16"}};
  for (const char* zero : {"1", "2", "3"}) {
    for (const Words& more : all) {
      Words words = kMlp;
      words.insert(words.end(), more.begin(), more.end());
      words.insert(words.end(), {"--zero", zero, "--save-params", file("whole")});
      const nlohmann::json whole = totals("dp=2", words);
      ASSERT_TRUE(whole.contains("params_hash")) << zero;
      words.back() = file("stages");
      for (const char* parallel : {"dp=2,pp=2/interleaved", "dp=2,pp=3/zb-h1"}) {
        const std::string what = std::string(parallel) + " " + zero + " " + words[2];
        const nlohmann::json stages = totals(parallel, words);
        EXPECT_EQ(stages["params_hash"], whole["params_hash"]) << what;
        EXPECT_EQ(stages["accuracy"], whole["accuracy"]) << what;
        EXPECT_TRUE(contents(file("stages")) == contents(file("whole"))) << what;
      }
    }
  }
}

// Whatever moves to the host, at every stage of sharding.
TEST_F(TrainStages, OffloadWhatAWholeModelDoes) {
  const Words adamw{"--optimizer", "adamw", "--lr", "0.002"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const char* zero : {"0", "1", "2", "3"}) {
    const bool whole_state = zero == std::string("0");
    std::vector<Words> all{with({"--offload", "optimizer"}, adamw),
                           {"--offload", "optimizer", "--precision", "bf16"},
                           with({"--offload", "optimizer", "--offload-chunk", "100"}, adamw)};
    if (whole_state) {
      all.push_back(with({"--offload", "optimizer", "--offload-overlap", "off"}, adamw));
      all.push_back({"--offload", "optimizer", "--precision", "fp16"});
    }
    if (whole_state || zero == std::string("3")) {
      all.push_back({"--offload", "parameters"});
      all.push_back(with({"--offload", "parameters", "--precision", "bf16"}, adamw));
    }
    for (const Words& more : all) {
      const Words words = with(with(kMlp, {"--zero", zero}), more);
      const nlohmann::json whole = totals("dp=2", words);
      ASSERT_TRUE(whole.contains("params_hash")) << zero;
      const char* other = whole_state ? "dp=2,pp=3/zb-h1" : "dp=2,pp=2";
      for (const char* parallel : {"dp=2,pp=2/interleaved", other}) {
        const nlohmann::json stages = totals(parallel, words);
        const std::string what = std::string(parallel) + " " + zero + " " + more[1];
        EXPECT_EQ(stages["params_hash"], whole["params_hash"]) << what;
        EXPECT_EQ(stages["accuracy"], whole["accuracy"]) << what;
      }
    }
  }
}

// At stage 3 a rank sends its half of its stages' parameters to the other replica once a step, at
// the others too; not once for each micro-batch.
TEST_F(TrainStages, SendTheirParametersOnceAStep) {
  // fc1 of 64 inputs to fc3 of 18 outputs, of which fc2 and fc3 are the second chunk.
  const Words words{"--hidden", "24,20,18", "--check-every", "0", "--steps", "3", "--zero"};
  for (const char* zero : {"1", "3"}) {
    std::vector<std::int64_t> sent;
    for (const char* micro_batches : {"4", "8"}) {
      Words all{"--parallel", "dp=2,pp=2",     "--batch",      "48",
                "--metrics",  file("m.jsonl"), "--accumulate", micro_batches};
      all.insert(all.end(), words.begin(), words.end());
      all.push_back(zero);
      ASSERT_EQ(train(all), "ok");
      sent.push_back(json_lines(file("m.jsonl"))[1]["traffic_bytes"]["parameters"]);
    }
    const std::int64_t first_stage = 64 * 24 + 24;  // dearer than all behind it
    EXPECT_THAT(sent, ::testing::Each(first_stage / 2 * 4)) << zero;
  }
}

// A file is the whole model's, on any stages.
TEST_F(TrainStages, LoadTheirPartsOfAFile) {
  const Words resnet{"--model", "resnet8", "--width", "4"};
  for (const Words& model : {kMlp, resnet}) {
    Words words = model;
    words.insert(words.end(), {"--save-params", file("first")});
    totals("dp=1", words);
    for (const char* precision : {"fp32", "bf16"}) {
      words = model;
      words.insert(words.end(),
                   {"--load-params", file("first"), "--precision", precision, "--save-params"});
      words.push_back(file("whole"));
      const nlohmann::json whole = totals("dp=2", words);
      words.back() = file("stages");
      const nlohmann::json stages = totals("dp=2,pp=2", words);
      ASSERT_TRUE(whole.contains("params_hash")) << precision;
      EXPECT_EQ(stages["params_hash"], whole["params_hash"]) << precision;
      EXPECT_EQ(stages["accuracy"], whole["accuracy"]) << precision;
      EXPECT_TRUE(contents(file("stages")) == contents(file("whole"))) << precision;
    }
  }
}

// Five steps, a checkpoint, and five more on another mesh.
TEST_F(TrainStages, GoOnOnOtherMeshes) {
  const auto run = [&](const char* parallel, const char* steps, Words more) {
    Words words{"--steps", steps};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), kMlp.begin(), kMlp.end());
    return totals(parallel, words)["params_hash"];
  };
  const auto whole = run("dp=2", "10", {});
  EXPECT_FALSE(whole.is_null());
  run("dp=2,pp=2", "5", {"--checkpoint", file("saved")});
  for (const char* parallel : {"dp=2", "dp=2,pp=4", "dp=2,pp=2/interleaved"}) {
    std::filesystem::remove_all(file("copy"));
    std::filesystem::copy(file("saved"), file("copy"), std::filesystem::copy_options::recursive);
    EXPECT_EQ(run(parallel, "10", {"--checkpoint", file("copy"), "--resume"}), whole) << parallel;
  }
}

// Samples are dealt to replicas, whatever the number of ranks that each has.
TEST_F(TrainStages, ABatchIsDividedAmongReplicas) {
  Words words{"--parallel", "pp=4", "--steps", "1", "--accumulate", "8", "--batch", "48"};
  words.insert(words.end(), kMlp.begin(), kMlp.end());
  EXPECT_EQ(train(words), "ok");
}

// Messages between stages are counted by what they carry: in a step 4 micro-batches of 12 samples,
// 16 floats of each, from the first rank; with replicas half of it, and gradients.
TEST_F(TrainStages, CountTheirMessagesByClass) {
  const Words words{"--hidden", "16,16", "--momentum", "0"};
  const auto first_step = [&](const char* parallel) {
    totals(parallel, words);
    return json_lines(file("m.jsonl")).front()["traffic_bytes"];
  };
  const nlohmann::json alone = first_step("pp=2");
  EXPECT_EQ(alone["activations"], 4 * 12 * 16 * 4);
  EXPECT_FALSE(alone.contains("gradients"));
  const nlohmann::json replicas = first_step("dp=2,pp=2");
  EXPECT_EQ(replicas["activations"], 4 * 6 * 16 * 4);
  EXPECT_GT(replicas["gradients"], 0);
}

// Of all stages together: what whole models measure, but for the order of sums.
TEST_F(TrainStages, MeasureTheErrorsOfTheWholeModel) {
  for (const char* zero : {"0", "2"}) {
    for (const char* compressor : {"qsgd:bits=4,min_elems=0", "signsgd:ef=ef14,min_elems=0"}) {
      Words words = kMlp;
      words.insert(words.end(), {"--zero", zero, "--compressor", compressor, "--momentum", "0",
                                 "--measure-every", "2", "--steps", "3"});
      std::vector<nlohmann::json> whole;
      std::vector<nlohmann::json> stages;
      totals("dp=2", words);
      for (const auto& line : json_lines(file("m.jsonl"))) whole.push_back(line);
      totals("dp=2,pp=2", words);
      for (const auto& line : json_lines(file("m.jsonl"))) stages.push_back(line);
      ASSERT_EQ(stages.size(), whole.size());
      // Of the same gradients in the first step; coders draw by their rank's tensors.
      const double norm = whole[0].at("exact_norm");
      EXPECT_NEAR(stages[0].at("exact_norm").get<double>(), norm, 1e-6 * norm) << compressor;
      for (const std::size_t step : {0U, 2U}) {
        const double nmse = whole[step].at("nmse");
        EXPECT_NEAR(stages[step].at("nmse").get<double>(), nmse, 0.5 * nmse) << compressor;
      }
      EXPECT_FALSE(stages[1].contains("nmse"));
      EXPECT_EQ(stages[0].contains("residual_norm"), whole[0].contains("residual_norm"));
    }
  }
}

// Idle over all of GPipe on two ranks, by its own recurrence: forwards one after another, then
// backwards.
double gpipe_bubble(int micro_batches, double f0, double b0, double f1, double b1) {
  double first = 0;
  double second = 0;
  std::vector<double> sent;
  for (int micro = 0; micro < micro_batches; ++micro) {
    first += f0;
    second = std::max(first, second) + f1;
  }
  for (int micro = 0; micro < micro_batches; ++micro) sent.push_back(second += b1);
  for (const double gradient : sent) first = std::max(first, gradient) + b0;
  return 1 - micro_batches * (f0 + b0 + f1 + b1) / (2 * first);
}

// 64 pixels to 16 to 10 classes: flatten, fc1 and relu1, then fc2; each costs 1 beside its
// products.
TEST_F(TrainStages, SayTheirWaitsAndTheirSimulatedBubble) {
  const nlohmann::json whole = totals("dp=1", {"--hidden", "16"});
  for (const char* key : {"parallel", "schedule", "bubble", "stage_wait_seconds"}) {
    EXPECT_FALSE(whole.contains(key)) << key;
  }
  const nlohmann::json stages = totals("pp=2/gpipe", {"--hidden", "16"});
  EXPECT_EQ(stages["parallel"], "dp=1,pp=2/gpipe");
  EXPECT_EQ(stages["schedule"], "gpipe");
  constexpr double kFirst = 64 * 16;
  constexpr double kSecond = 16 * 10;
  EXPECT_NEAR(stages["bubble"].get<double>(),
              gpipe_bubble(4, kFirst + 3, 2 * kFirst, kSecond + 1, 2 * kSecond), 1e-8);
  double waited = 0;
  auto lines = json_lines(file("m.jsonl"));
  lines.pop_back();
  for (const nlohmann::json& step : lines) {
    const double own = step["stage_wait_seconds"];
    EXPECT_GT(own, 0);  // rank 0 waits for gradients
    EXPECT_GE(step["exposed_seconds"].get<double>(), own);
    EXPECT_GE(step["step_seconds"].get<double>(),
              step["compute_seconds"].get<double>() + own - 1e-8);
    waited += own;
  }
  EXPECT_NEAR(stages["stage_wait_seconds"].get<double>(), waited, 1e-7);
}

// Every rank's layers are in the trace, and no others.
TEST_F(TrainStages, TraceTheirLayers) {
  Words words = kMlp;
  words.insert(words.end(), {"--trace", file("trace.json")});
  totals("pp=2", words);
  const std::string trace = contents(file("trace.json"));
  for (const char* layer : {"fc1", "fc9"}) EXPECT_NE(trace.find(layer), std::string::npos) << layer;
}

// Replicas of a stage compress what they exchange.
TEST_F(TrainStages, ReplicasOfStagesCompress) {
  for (const char* compressor : {"qsgd:bits=4,ef=ef14", "signsgd:ef=ef14", "topk:ratio=0.1,ef=ef14",
                                 "powersgd:rank=2,ef=ef14"}) {
    Words words = kMlp;
    words.insert(words.end(), {"--compressor", compressor, "--momentum", "0"});
    EXPECT_GT(totals("dp=2,pp=2", words)["bytes_sent"], 0) << compressor;
  }
}

// Both ends of the pipeline average the tied embedding's gradient, whatever else travels with it:
// on three replicas, whose sums depend on their order, too.
TEST_F(TrainStages, TiedEndsStayEqual) {
  const Words gpt{"--model", "gpt",     "--data", "grammar",    "--tied", "--layers",
                  "2",       "--width", "8",      "--heads",    "2",      "--context",
                  "8",       "--steps", "4",      "--momentum", "0"};
  for (const char* compressor :
       {"none", "qsgd:bits=4,ef=ef14,min_elems=0", "signsgd:ef=ef14,min_elems=0",
        "topk:ratio=0.1,ef=ef14,min_elems=0", "powersgd:rank=2,ef=ef14,min_elems=0"}) {
    Words words = gpt;
    words.insert(words.end(), {"--compressor", compressor});
    const nlohmann::json whole = totals("dp=3", words);
    words.insert(words.end(), {"--algorithm", "auto"});
    const nlohmann::json stages = totals("dp=3,pp=2", words);
    EXPECT_EQ(stages["params_hash"], whole["params_hash"]) << compressor;
  }
}

// Sums of both ends, in 16 bits too, and on the host.
TEST_F(TrainStages, TiedEndsHaveTheBitsOfOneRank) {
  const Words gpt{"--model", "gpt",     "--data", "grammar",   "--tied", "--layers", "2", "--width",
                  "8",       "--heads", "2",      "--context", "8",      "--steps",  "4"};
  const std::vector<Words> all{{"--precision", "bf16", "--no-main-grads"},
                               {"--precision", "fp16", "--no-main-grads"},
                               {"--offload", "optimizer"},
                               {"--offload", "parameters", "--precision", "bf16"}};
  for (const Words& more : all) {
    Words words = gpt;
    words.insert(words.end(), more.begin(), more.end());
    const nlohmann::json whole = totals("dp=1", words);
    ASSERT_TRUE(whole.contains("params_hash")) << more.back();
    for (const char* parallel : {"pp=2", "pp=2/interleaved"}) {
      EXPECT_EQ(totals(parallel, words)["params_hash"], whole["params_hash"])
          << parallel << " " << more.front() << " " << more[1];
    }
  }
}

// The rows of docs/parallelism.md below "does not serve".
// Axis, flag and what is expected.
using Row = std::vector<std::string>;

std::vector<Row> table_of_the_manual() {
  std::ifstream manual(GW_PARALLELISM);
  std::vector<Row> rows;
  bool inside = false;
  for (std::string line; std::getline(manual, line);) {
    inside = inside || line == "| with | not served | expected |";
    if (!inside || !line.starts_with("| `")) continue;
    Row row;
    for (std::size_t at = 0; row.size() < 3;) {
      const std::size_t begin = line.find("| ", at) + 2;
      at = line.find(" |", begin);
      row.push_back(line.substr(begin, at - begin));
      std::erase(row.back(), '`');
    }
    row[0] = row[0].substr(0, 2);                  // of pp=
    row[1] = row[1].substr(0, row[1].find(" ("));  // without what explains it
    rows.push_back(row);
  }
  return rows;
}

// Of every rank of a pipeline: what was counted is what was planned.
TEST_F(TrainStages, MemoryIsTheAccounts) {
  const std::vector<Words> all{{},
                               {"--recompute", "full"},
                               {"--precision", "bf16"},
                               {"--precision", "bf16", "--no-main-grads"},
                               {"--zero", "3"},
                               {"--offload", "optimizer"},
                               {"--offload", "parameters"},
                               {"--offload", "optimizer", "--precision", "bf16"},
                               {"--offload", "parameters", "--precision", "bf16"},
                               {"--offload", "optimizer", "--zero", "1"},
                               {"--offload", "optimizer", "--zero", "2", "--precision", "bf16"},
                               {"--offload", "parameters", "--zero", "3"}};
  for (const Words& more : all) {
    Words words = kMlp;
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--memory", "--optimizer", "adamw"});
    const auto ranks = totals("dp=2,pp=3", words)["memory_bytes_by_stage"];
    ASSERT_EQ(ranks.size(), 3U);
    for (const auto& rank : ranks) {
      for (const auto& [name, bytes] : rank["device"].items()) {
        EXPECT_EQ(bytes["planned"], bytes["held"]) << name << " of " << ranks;
      }
      const bool offloads = !more.empty() && more.front() == "--offload";
      EXPECT_EQ(rank.contains("host") && !rank["host"].empty(), offloads) << ranks;
      if (offloads) {
        EXPECT_GT(rank["host"]["moments"]["held"], 0) << ranks;
        for (const auto& [name, bytes] : rank["host"].items()) {
          EXPECT_EQ(bytes["planned"], bytes["held"]) << name << " of " << ranks;
        }
      }
      EXPECT_GT(rank["device"]["activations"]["held"], 0);
      EXPECT_GT(rank["device"]["messages"]["held"], 0);
    }
    // 1F1B: one more micro-batch is open on a rank than on the next one.
    EXPECT_GT(ranks[0]["device"]["activations"]["held"], ranks[2]["device"]["activations"]["held"]);
  }
}

// What `gradwire plan` says of a rank, as a run's classes have it.
struct PlannedClass {
  const char* key;
  std::vector<const char*> classes;
};
const std::vector<PlannedClass> kPlannedClasses{
    {"params_bytes", {"parameters"}},
    {"grads_bytes", {"gradients", "main_gradients"}},
    {"optimizer_bytes", {"master", "moments"}},
    {"gathered_bytes", {"gathered"}},
    {"activation_bytes", {"activations"}},
    {"workspace_bytes", {"workspace", "other"}},
    {"message_bytes", {"messages"}},
    {"version_bytes", {"versions"}},
};

struct PlannedRun {
  const char* parallel;
  const char* recompute;
  const char* precision;
  const char* zero;
};
const std::vector<PlannedRun> kPlannedRuns{
    {"dp=1,pp=4/1f1b", "none", "fp32", "0"},
    {"dp=1,pp=4/1f1b", "full", "fp32", "0"},
    {"dp=1,pp=2/gpipe", "selective", "fp32", "0"},
    {"dp=1,pp=2/interleaved", "none", "bf16", "0"},
    {"dp=1,pp=2/breadth-first", "full", "bf16", "0"},
    {"dp=1,pp=4/zb-h1", "none", "fp32", "0"},
    {"dp=2,pp=2/zb-h1", "none", "bf16", "1"},
    {"dp=1,pp=2/zb-v", "none", "fp32", "0"},
    {"dp=2,pp=2/zb-v-min", "none", "bf16", "1"},
    {"dp=1,pp=4/chimera", "none", "fp32", "0"},
    {"dp=1,pp=2/chimera", "full", "bf16", "1"},
    {"dp=2,pp=2/chimera", "none", "fp32", "1"},
    {"dp=1,pp=4/2bw", "none", "fp32", "0"},
    {"dp=2,pp=2/2bw", "full", "bf16", "1"},
    {"dp=1,pp=4/pipedream", "none", "fp32", "0"},
    {"dp=2,pp=3/pipedream[vertical_sync=on]", "none", "bf16", "1"},
    {"dp=2,pp=2/1f1b", "none", "fp32", "2"},
    {"dp=2,pp=4/interleaved", "none", "bf16", "2"},
    {"dp=2,pp=4/gpipe", "selective", "fp32", "1"},
    {"dp=2,pp=2/1f1b", "full", "fp32", "3"},
    {"dp=2,pp=2/interleaved", "none", "bf16", "3"}};

// Of each rank, to the byte: every schedule, computing again, 16 bits, every stage of ZeRO.
TEST_F(TrainStages, ThePlanIsWhatRanksHold) {
  DataOptions options;
  options.text.context = 16;
  const auto data = load_data_set("grammar", {}, options);
  ASSERT_TRUE(data.has_value());
  const std::string vocabulary = std::to_string(data.value().classes());
  for (const PlannedRun& one : kPlannedRuns) {
    SCOPED_TRACE(std::string(one.parallel) + " " + one.recompute + " " + one.precision + " zero " +
                 one.zero);
    const std::string parallel = one.parallel;
    const bool each = parallel.find("pipedream") != std::string::npos;
    const std::string micro_batches = each ? "1" : "4";
    Words run{"--model",     "gpt",         "--data",       "grammar",     "--context",
              "16",          "--width",     "32",           "--layers",    "4",
              "--heads",     "2",           "--optimizer",  "adamw",       "--recompute",
              one.recompute, "--precision", one.precision,  "--zero",      one.zero,
              "--steps",     "8",           "--accumulate", micro_batches, "--memory"};
    if (!each && parallel.find("2bw") == std::string::npos) run.emplace_back("--tied");
    const auto held = totals(parallel, run);
    const Words shape{
        "--layers",      "4",
        "--width",       "32",
        "--heads",       "2",
        "--sequence",    "16",
        "--vocabulary",  vocabulary,
        "--micro-batch", std::to_string((parallel.starts_with("dp=2") ? 24 : 48) / (each ? 1 : 4))};
    Words words = shape;
    words.insert(words.end(), {"--parallel", one.parallel, "--accumulate", micro_batches,
                               "--recompute", one.recompute, "--precision", one.precision, "--zero",
                               one.zero, "--memory", "--json", file("plan.jsonl")});
    ::testing::internal::CaptureStdout();
    const auto planned = plan_command(words);
    ::testing::internal::GetCapturedStdout();
    ASSERT_TRUE(planned.has_value()) << planned.error().message();
    std::size_t ranks = 0;
    for (const nlohmann::json& row : json_lines(file("plan.jsonl"))) {
      if (row["kind"] != "rank") continue;
      const auto& rank = held["memory_bytes_by_stage"][ranks++]["device"];
      double sum = 0;
      for (const PlannedClass& what : kPlannedClasses) {
        double there = 0;
        for (const char* name : what.classes) {
          if (rank.contains(name)) there += rank[name]["held"].get<double>();
        }
        EXPECT_EQ(row[what.key], there) << what.key << " of rank " << row["rank"];
        sum += there;
      }
      EXPECT_EQ(row["total_bytes"], sum);
    }
    EXPECT_EQ(ranks, held["memory_bytes_by_stage"].size());
  }
}

// Of all ranks, without training.
TEST_F(TrainStages, DryRunAddsUpTheRanks) {
  Words words = kMlp;
  words.insert(words.end(), {"--memory"});
  std::int64_t held = 0;
  const auto ranks = totals("dp=1,pp=3", words)["memory_bytes_by_stage"];
  for (const auto& rank : ranks) {
    for (const auto& [name, bytes] : rank["device"].items()) {
      if (name != "communication") held += bytes["held"].get<std::int64_t>();
    }
  }
  words.back() = "--dry-run";
  EXPECT_EQ(totals("dp=1,pp=3", words)["planned_bytes"], held);
}

// What is measured of gradients has copies of those that a rank has, not of the whole model's.
TEST_F(TrainStages, DryRunCountsWhatEachRankMeasures) {
  const auto planned = [&](const std::string& parallel, const Words& more) {
    Words words = kMlp;
    words.insert(words.end(), {"--dry-run"});
    words.insert(words.end(), more.begin(), more.end());
    return totals(parallel, words);
  };
  const auto measured = [&](const std::string& parallel, const Words& more = {}) {
    Words words{"--measure-every", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return planned(parallel, words)["planned_bytes"].get<std::int64_t>() -
           planned(parallel, more)["planned_bytes"].get<std::int64_t>();
  };
  const auto all = planned("dp=1", {})["parameters"].get<std::int64_t>();
  EXPECT_EQ(measured("dp=1"), 4 * all);
  EXPECT_EQ(measured("dp=1,pp=3"), 4 * all);
  EXPECT_EQ(measured("dp=2,pp=2"), 2 * 4 * all);
  EXPECT_EQ(measured("dp=1,pp=3", {"--precision", "bf16"}), 8 * all);
  // As many for each, since the ranks that share tensors have parts of one size here.
  ModelOptions part{"mlp", {24, 20, 18, 16, 20, 14, 12, 16}};
  part.share = {.ranks = 2, .rank = 1};
  const auto model = make_model<float>(part, {1, 8, 8}, 10);
  ASSERT_TRUE(model.has_value()) << model.error().message();
  EXPECT_EQ(measured("dp=1,tp=2"), 2 * 4 * parameter_elems(model.value().parameters()));
}

TEST_F(TrainStages, WhatIsNotServedIsRefusedByTheTableOfTheManual) {
  std::vector<Row> rows;
  for (const Unserved& one : unserved_when_divided()) {
    rows.push_back({std::string(one.axis), std::string(one.flag), std::string(one.served)});
  }
  EXPECT_THAT(table_of_the_manual(), ::testing::ElementsAreArray(rows));
  const std::vector<std::pair<std::string, Words>> asked{
      {"pp", {"--optimizer", "onebit_adam"}},           {"pp", {"--algorithm", "ring"}},
      {"pp", {"--compressor", "qsgd:intra_node=none"}}, {"pp", {"--momentum-at", "worker"}},
      {"pp", {"--accumulate-policy", "reduce-each"}},   {"pp", {"--clip-worker", "1"}},
      {"tp", {"--optimizer", "onebit_adam"}},           {"tp", {"--algorithm", "ring"}},
      {"tp", {"--compressor", "qsgd:intra_node=none"}}};
  const std::vector<Words> without_flush{
      {"--zero", "2"},         {"--optimizer", "lamb"},    {"--clip", "1"},         {"--tied"},
      {"--precision", "fp16"}, {"--offload", "optimizer"}, {"--measure-every", "2"}};
  for (const Words& flags : without_flush) {
    Words words{"--parallel", "pp=2/2bw", "--steps", "1",   "--accumulate", "2",
                "--batch",    "48",       "--model", "gpt", "--data",       "grammar"};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_THAT(refusal(words), fails(Code::kUnsupported, flags.front(), "pp=2/2bw"));
  }
  EXPECT_THAT(refusal({"--parallel", "pp=2/pipedream", "--accumulate", "2", "--batch", "48"}),
              fails(Code::kUnsupported, "--accumulate", "pp=2/pipedream"));
  // But for GPUs, and layouts for images.
  ASSERT_EQ(asked.size() + without_flush.size() + 6, rows.size());
  for (const auto& [axis, flags] : asked) {
    // By sequence more is refused than without.
    const std::string layout = axis == "tp" ? "=2/megatron[sequence=on]" : "=2";
    Words words{"--parallel", axis + layout, "--steps", "1",       "--accumulate",
                "2",          "--batch",     "48",      "--model", "gpt",
                "--data",     "grammar",     "--tied"};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_THAT(refusal(words), fails(Code::kUnsupported, flags.front(), axis + "=2"));
  }
}

TEST_F(TrainStages, TooManyStagesAreRefused) {
  EXPECT_THAT(refusal({"--parallel", "pp=4", "--steps", "1", "--hidden", "16", "--accumulate", "2",
                       "--batch", "48"}),
              fails(Code::kInvalidArgument, "4 stages", "2 layers"));
  EXPECT_THAT(refusal({"--parallel", "pp=2/zb-h1", "--steps", "1", "--hidden", "16,16",
                       "--accumulate", "2", "--batch", "48", "--recompute", "full"}),
              fails(Code::kUnsupported, "recompute", "full"));
}

}  // namespace
}  // namespace gradwire::train_stages_test
