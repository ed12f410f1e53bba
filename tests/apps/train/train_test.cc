// `gradwire train` with ranks as threads, end to end on the carried digits.
#include "apps/train/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "collectives/schedules/selection.h"
#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

class Train : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  TemporaryFolder folder_;
};

TEST_F(Train, MetricsHaveALinePerStepAndTotals) {
  ASSERT_EQ(train({"--inproc", "2", "--steps", "5", "--batch", "32", "--eval-every", "2",
                   "--hidden", "16", "--seed", "3", "--metrics", file("m.jsonl"), "--compressor",
                   "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false"}),
            "ok");
  const auto lines = json_lines(file("m.jsonl"));
  ASSERT_EQ(lines.size(), 6U);
  std::uint64_t sent = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const nlohmann::json& line = lines[i];
    EXPECT_EQ(line["step"], i);
    EXPECT_TRUE(line["loss"].is_number());
    // Evaluated after the 2nd and the 4th step, and after the last one.
    EXPECT_EQ(line.contains("accuracy"), i == 1 || i == 3 || i == 4) << line;
    for (const char* key : {"bytes_sent", "payload_bytes", "dense_bytes"}) {
      EXPECT_GT(line[key].get<std::uint64_t>(), 0U) << key;
    }
    for (const char* key : {"step_seconds", "compute_seconds", "encode_seconds", "wire_seconds",
                            "decode_seconds", "exposed_seconds"}) {
      EXPECT_GE(line[key].get<double>(), 0.0) << key;
    }
    // 64*16 + 16 + 16*10 + 10 fp32 parameters: a ring of two sends each element once.
    EXPECT_EQ(line["dense_bytes"], 1210 * 4);
    // ceil(0.1 n) pairs of 8 bytes per tensor: 103 + 2 + 16 + 1, and what frames them.
    EXPECT_GE(line["payload_bytes"], 122 * 8);
    EXPECT_LE(line["payload_bytes"], 122 * 8 + 4 * 16);
    sent += line["bytes_sent"].get<std::uint64_t>();
  }
  const nlohmann::json& total = lines[5];
  EXPECT_EQ(total["total"], true);
  EXPECT_EQ(total["steps"], 5);
  EXPECT_EQ(total["bytes_sent"], sent);
  EXPECT_EQ(total["ranks"], 2);
  EXPECT_EQ(total["seed"], 3);
  EXPECT_EQ(total["accuracy"], lines[4]["accuracy"]);
  EXPECT_EQ(total["compressor"], "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false");
  EXPECT_THAT(total["params_hash"].get<std::string>(), ::testing::MatchesRegex("[0-9a-f]{16}"));
  for (const char* key : {"transport", "gradwire", "commit", "model", "data", "batch"}) {
    EXPECT_TRUE(total.contains(key)) << key;
  }
}

// Rows come in order, each with the mean loss, though ranks learn it when they meet.
TEST_F(Train, StepsThatRanksMakeAloneSendNothingAndHaveTheirRows) {
  const std::vector<std::pair<const char*, std::set<std::size_t>>> methods{
      {"diloco:inner_steps=4", {0, 1, 2, 4, 5, 6, 8}},
      // Three steps together, then steps 3 and 5 meet, and the one after four more.
      {"zero_one_adam:freeze=3,local_doubles=1,local_most=4", {4, 6, 7, 8}}};
  for (const auto& [optimizer, alone] : methods) {
    ASSERT_EQ(train({"--inproc", "2", "--steps", "10", "--batch", "32", "--hidden", "16",
                     "--optimizer", optimizer, "--lr", "0.001", "--metrics", file("m.jsonl")}),
              "ok");
    const auto lines = json_lines(file("m.jsonl"));
    ASSERT_EQ(lines.size(), 11U);
    for (std::size_t t = 0; t < 10; ++t) {
      EXPECT_EQ(lines[t]["step"], t);
      EXPECT_TRUE(lines[t]["loss"].is_number()) << lines[t];
      EXPECT_EQ(lines[t]["bytes_sent"] == 0, alone.contains(t)) << lines[t];
      // What a ring would have sent of the gradients of this step: saved where nothing is sent.
      EXPECT_EQ(lines[t]["dense_bytes"], 1210 * 4) << lines[t];
    }
    EXPECT_EQ(lines[10]["dense_bytes"], 10 * 1210 * 4);
  }
}

// Shards of averages have errors as whole ones have.
TEST_F(Train, ErrorsAreMeasuredOfShardsToo) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    ASSERT_EQ(train({"--inproc", "2", "--steps", "5", "--batch", "32", "--hidden", "16", "--zero",
                     stage, "--measure-every", "2", "--metrics", file("m.jsonl"), "--compressor",
                     "qsgd:bits=4,min_elems=0"}),
              "ok");
    const auto lines = json_lines(file("m.jsonl"));
    ASSERT_EQ(lines.size(), 6U);
    for (std::size_t t = 0; t < 5; ++t) {
      ASSERT_EQ(lines[t].contains("nmse"), t % 2 == 0) << "stage " << stage << ": " << lines[t];
      if (t % 2 == 1) continue;
      EXPECT_GT(lines[t]["nmse"].get<double>(), 1e-5) << lines[t];
    }
  }
  EXPECT_THAT(refusal({"--inproc", "2", "--optimizer", "onebit_adam:3", "--measure-every", "2"}),
              fails(kInvalid, "--measure-every", "onebit_adam:3"));
}

// 1210 elements in three pieces of 404, 403 and 403: rank 0 keeps back its own piece in one half
// and rank 1's in the other, 2 x 1210 - 404 - 403. It is the same in every way of training.
TEST_F(Train, DenseBytesAreThoseOfARingInEveryWayOfTraining) {
  std::vector<Words> ways{{"--optimizer", "adamw"},
                          {"--optimizer", "demo"},
                          {"--optimizer", "onebit_adam:2"},
                          {"--mode", "sync-easgd"},
                          {"--mode", "fedavg"},
                          {"--compressor", "qsgd:bits=8,min_elems=0"}};
  for (const char* stage : {"1", "2", "3"}) ways.push_back({"--zero", stage});
  for (Words way : ways) {
    const std::string name = way[1];
    way.insert(way.end(), {"--inproc", "3", "--steps", "4", "--batch", "48", "--hidden", "16",
                           "--metrics", file("m.jsonl")});
    ASSERT_EQ(train(way), "ok") << name;
    const auto lines = json_lines(file("m.jsonl"));
    ASSERT_EQ(lines.size(), 5U) << name;
    for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(lines[t]["dense_bytes"], 4 * 1613) << name;
  }
}

TEST_F(Train, TheTotalsNameTheCompressorCanonically) {
  ASSERT_EQ(train({"--steps", "0", "--metrics", file("m.jsonl"), "--compressor",
                   "*.bias = none ; * = cast:bf16"}),
            "ok");
  EXPECT_EQ(json_lines(file("m.jsonl")).at(0)["compressor"], "*.bias=none;*=cast:type=bf16");
}

TEST_F(Train, TheLossHasNineDigitsAndTheFirstIsThatOfTheStart) {
  ASSERT_EQ(train({"--steps", "2", "--batch", "100", "--metrics", file("m.jsonl")}), "ok");
  const auto lines = json_lines(file("m.jsonl"));
  ASSERT_EQ(lines.size(), 3U);
  const std::string digits = lines[0]["loss"].dump();
  EXPECT_LE(digits.size(), 10U) << digits;                           // nine and a point
  EXPECT_NEAR(lines[0]["loss"].get<double>(), std::log(10.0), 0.2);  // ten classes, no knowledge
}

// To the last digit of the loss: momentum that is corrected but never masked is momentum on the
// worker with error feedback behind it.
TEST_F(Train, DgcWithoutMaskingIsErrorFeedbackBehindWorkerMomentum) {
  const auto run = [&](const std::string& compressor, const char* momentum) {
    EXPECT_EQ(train({"--inproc", "4", "--steps", "40", "--batch", "64", "--hidden", "32", "--seed",
                     "5", "--momentum", momentum, "--momentum-at", "worker", "--metrics",
                     file("m.jsonl"), "--compressor", compressor}),
              "ok");
    std::vector<std::string> losses;
    for (const auto& line : json_lines(file("m.jsonl"))) {
      losses.push_back((line.contains("total") ? line["params_hash"] : line["loss"]).dump());
    }
    return losses;
  };
  const auto dgc = run("dgc:ratio=0.01,masking=false,sample=1", "0");
  EXPECT_EQ(dgc.size(), 41U);
  EXPECT_EQ(dgc, run("topk:ratio=0.01,ef=ef14,min_elems=0,dense_1d=false", "0.9"));
  EXPECT_NE(dgc, run("dgc:ratio=0.01,sample=1", "0"));
}

// With a momentum of the optimizer's behind it DGC's acts twice: a loss of 16 after 30 steps.
TEST_F(Train, DgcLeavesNoMomentumToTheOptimizer) {
  const auto words = [&](const Words& more) {
    Words all{"--inproc", "2",        "--steps", "12",        "--batch",
              "32",       "--hidden", "32",      "--metrics", file("m.jsonl")};
    all.insert(all.end(), more.begin(), more.end());
    if (std::find(more.begin(), more.end(), "--compressor") != more.end()) return all;
    all.insert(all.end(), {"--compressor", "*.bias=none;*=dgc:ratio=0.05,combine=gather"});
    return all;
  };
  const auto hash = [&] { return json_lines(file("m.jsonl")).back()["params_hash"].dump(); };
  ASSERT_EQ(train(words({"--momentum", "0"})), "ok");
  const std::string without = hash();
  // Not given: 0 for this run, which its first line says.
  ::testing::internal::CaptureStdout();
  const auto ran = train_command(words({}));
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              ::testing::HasSubstr("momentum 0 (dgc keeps its own)"));
  ASSERT_TRUE(ran.has_value()) << ran.error().message();
  EXPECT_EQ(hash(), without);
  for (const Words& given :
       {Words{"--momentum", "0.9"}, Words{"--momentum", "0.5"},
        Words{"--momentum", "0.9", "--momentum-at", "worker"}, Words{"--optimizer", "nesterov"},
        Words{"--momentum", "0.9", "--mode", "ps-sync"}}) {
    EXPECT_THAT(refusal(words(given)), fails(kInvalid, "--momentum", "dgc:ratio=0.05"))
        << given.front();
  }
  // Another method keeps the momentum that it was given.
  ASSERT_EQ(train(words({"--momentum", "0.9", "--compressor", "topk:ratio=0.05"})), "ok");
}

class Replicas : public Train, public ::testing::WithParamInterface<int> {};

TEST_P(Replicas, CanonicalOrderEqualsAccumulationBitForBit) {
  const std::string n = std::to_string(GetParam());
  const Words common{"--steps", "20", "--batch", "48", "--hidden", "32,16", "--seed", "7"};
  const auto run = [&](Words flags, const std::string& name) {
    flags.insert(flags.end(), common.begin(), common.end());
    flags.insert(flags.end(), {"--save-params", file(name)});
    ASSERT_EQ(train(flags), "ok") << name;
  };
  for (const char* where : {"server", "worker"}) {
    run({"--accumulate", n, "--momentum-at", where}, "accumulated");
    run({"--inproc", n, "--momentum-at", where, "--algorithm", "canonical"}, "canonical");
    run({"--inproc", n, "--momentum-at", where, "--algorithm", "ring"}, "ring");
    EXPECT_EQ(contents(file("accumulated")), contents(file("canonical"))) << where;
    EXPECT_LE(relative_distance(file("accumulated"), file("ring")), 1e-6) << where;
  }
}

// The order of a sum changes its rounding, and nothing else; --zero 2 scatters with what it has.
TEST_P(Replicas, EveryAllReduceTrainsAlike) {
  const std::string n = std::to_string(GetParam());
  for (const std::string zero : {"0", "2"}) {
    const Words common{"--inproc", n,    "--steps", "8", "--batch", "48",
                       "--hidden", "16", "--seed",  "7", "--zero",  zero};
    const auto run = [&](const std::string& algorithm) {
      Words flags = common;
      flags.insert(flags.end(), {"--algorithm", algorithm, "--check-every", "1", "--save-params",
                                 file(algorithm), "--metrics", file("metrics")});
      ASSERT_EQ(train(flags), "ok") << algorithm;
      const nlohmann::json total = json_lines(file("metrics")).back();
      EXPECT_EQ(total["algorithm"], algorithm == "auto" ? "ring" : algorithm);
      EXPECT_GT(total["bytes_sent"], 0) << algorithm;
    };
    run("auto");
    for (const std::string_view algorithm : algorithms_of(OpKind::kAllReduce)) {
      run(std::string(algorithm));
      EXPECT_LE(relative_distance(file("auto"), file(std::string(algorithm))), 1e-6)
          << algorithm << " --zero " << zero;
    }
    EXPECT_EQ(contents(file("auto")), contents(file("ring")));
  }
}

TEST_P(Replicas, StayIdenticalAfterEveryStepUnderEveryCompressor) {
  for (const std::string& spec : all_compressors()) {
    EXPECT_EQ(
        train({"--inproc", std::to_string(GetParam()), "--steps", "6", "--batch", "48", "--hidden",
               "16", "--check-every", "1", "--allow-unsafe", "--compressor", spec, "--lr", "0.01"}),
        "ok")
        << spec;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Replicas, ::testing::Values(2, 3, 4));

TEST_F(Train, TheCnnIsExactToo) {
  const Words common{"--model", "cnn", "--steps", "4", "--batch", "32", "--save-params"};
  const auto run = [&](Words flags, const std::string& name) {
    flags.insert(flags.end(), common.begin(), common.end());
    flags.push_back(file(name));
    ASSERT_EQ(train(flags), "ok") << name;
  };
  run({"--accumulate", "2"}, "accumulated");
  run({"--inproc", "2", "--algorithm", "canonical"}, "canonical");
  EXPECT_EQ(contents(file("accumulated")), contents(file("canonical")));
}

TEST_F(Train, SavedParametersAreTheStartOfARunThatLoadsThem) {
  ASSERT_EQ(train({"--steps", "0", "--seed", "5", "--save-params", file("start")}), "ok");
  EXPECT_FALSE(contents(file("start")).empty());
  // Another seed draws another start, which the file replaces on every rank.
  ASSERT_EQ(train({"--steps", "0", "--seed", "6", "--save-params", file("other")}), "ok");
  EXPECT_NE(contents(file("start")), contents(file("other")));
  ASSERT_EQ(train({"--steps", "0", "--seed", "6", "--inproc", "3", "--batch", "48", "--load-params",
                   file("start"), "--save-params", file("again")}),
            "ok");
  EXPECT_EQ(contents(file("start")), contents(file("again")));
}

TEST_F(Train, TheSameFlagsGiveTheSameBits) {
  for (const char* name : {"a", "b"}) {
    ASSERT_EQ(train({"--inproc", "3", "--batch", "48", "--steps", "5", "--compressor",
                     "qsgd:bits=4,min_elems=0,dense_1d=false", "--save-params", file(name)}),
              "ok");
  }
  EXPECT_EQ(contents(file("a")), contents(file("b")));
}

TEST_F(Train, BadRequestsSayWhatIsWrong) {
  EXPECT_THAT(refusal({"--compressor", "nonesuch"}), fails(kInvalid, "nonesuch"));
  EXPECT_THAT(refusal({"--data", "fashion-mnist", "--data-dir", file("nowhere")}),
              fails(kInvalid, file("nowhere")));
  EXPECT_THAT(refusal({"--batch", "100000"}), fails(kInvalid, "batch 100000", "1437"));
  EXPECT_THAT(refusal({"--metrics", file("no/such/folder/m.jsonl"), "--steps", "1"}),
              fails(kInvalid, file("no/such/folder/m.jsonl"), "No such file or directory"));
  EXPECT_THAT(refusal({"--load-params", file("missing"), "--inproc", "2", "--steps", "1"}),
              fails(kInvalid, file("missing")));
}

TEST_F(Train, WhatNoDeviceServesIsRefusedByName) {
  const std::vector<std::pair<Words, Words>> all{
      {{"--offload", "optimizer", "--precision", "bf16", "--no-main-grads"},
       {"--device", "cuda:1", "--offload", "--no-main-grads"}},
      {{"--optimizer", "demo"}, {"demo", "sgd", "nesterov", "adamw", "lamb"}},
      {{"--mode", "easgd"}, {"--device"}}};
  for (const auto& [flags, named] : all) {
    Words words{"--device", "cuda:1"};
    words.insert(words.end(), flags.begin(), flags.end());
    for (const std::string& name : named) EXPECT_THAT(refusal(words), fails(kInvalid, name));
  }
  EXPECT_THAT(refusal({"--device", "gpu"}), fails(kInvalid, "device", "gpu", "cpu", "cuda:N"));
  EXPECT_THAT(refusal({"--device", "cuda:-1"}), fails(kInvalid, "device", "cuda:-1"));
  EXPECT_EQ(train({"--device", "cpu", "--steps", "1"}), "ok");
}

}  // namespace
}  // namespace gradwire::train_test
