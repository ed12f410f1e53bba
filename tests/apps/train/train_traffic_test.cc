// `gradwire train --traffic`: the same runs as by the flags that are short for it, what is refused,
// and the bytes of each class.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_traffic_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

class TrainTraffic : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }

  // The lines of a run's metrics.
  std::vector<nlohmann::json> lines(Words words) const {
    words.insert(words.end(), {"--inproc", "2", "--steps", "5", "--batch", "48", "--hidden", "24",
                               "--check-every", "1", "--metrics", file("m.jsonl")});
    EXPECT_EQ(train(words), "ok") << words[1];
    return json_lines(file("m.jsonl"));
  }

  static Status refused(Words words) {
    words.insert(words.end(), {"--inproc", "2", "--steps", "2", "--batch", "48", "--hidden", "16"});
    return refusal(words);
  }

  TemporaryFolder folder_;
};

TEST_F(TrainTraffic, IsBitForBitWhatTheShortFlagsSay) {
  const std::string topk = "topk:ratio=0.1,ef=ef14,min_elems=0";
  const std::vector<std::pair<Words, Words>> all{
      {{"--traffic", "gradients=" + topk}, {"--compressor", topk}},
      {{"--traffic", "gradients=[*.bias=none;*=qsgd:bits=8]; statistics=none"},
       {"--compressor", "*.bias=none;*=qsgd:bits=8"}},
      {{"--traffic", "gradients/canonical=none"}, {"--algorithm", "canonical"}},
      {{"--traffic", "parameters=cast:bf16;gradients=qsgd:bits=8", "--zero", "2"},
       {"--compressor", "qsgd:bits=8", "--parameter-compressor", "cast:bf16", "--zero", "2"}},
      {{"--traffic", "optimizer=signsgd:ef=ef14", "--optimizer", "onebit_adam:freeze=2", "--lr",
        "0.002"},
       {"--optimizer-compressor", "signsgd:ef=ef14", "--optimizer", "onebit_adam:freeze=2", "--lr",
        "0.002"}},
      {{"--traffic", "statistics=none", "--optimizer", "onebit_adam:freeze=2", "--lr", "0.002"},
       {"--optimizer", "onebit_adam:freeze=2", "--lr", "0.002"}}};
  for (const auto& [traffic, flags] : all) {
    const nlohmann::json one = lines(traffic).back();
    const nlohmann::json other = lines(flags).back();
    for (const char* key :
         {"params_hash", "bytes_sent", "payload_bytes", "compressor", "algorithm"}) {
      ASSERT_TRUE(one.contains(key)) << key;
      EXPECT_EQ(one[key], other[key]) << traffic[1] << ": " << key;
    }
  }
}

// Of every step, and in all: classes add up to what was sent.
TEST_F(TrainTraffic, BytesAreCountedByClass) {
  const std::vector<std::pair<Words, std::vector<std::string>>> all{
      {{"--compressor", "none"}, {"gradients", "statistics"}},
      {{"--compressor", "topk:ratio=0.1,ef=ef14", "--measure-every", "2"},
       {"gradients", "statistics"}},
      {{"--zero", "1"}, {"gradients", "parameters", "statistics"}},
      {{"--zero", "3"}, {"gradients", "parameters", "statistics"}},
      {{"--optimizer", "onebit_adam:freeze=2", "--lr", "0.002"},
       {"gradients", "optimizer", "statistics"}},
      {{"--optimizer", "demo", "--lr", "0.002"}, {"optimizer", "statistics"}}};
  for (const auto& [words, classes] : all) {
    const auto rows = lines(words);
    ASSERT_EQ(rows.size(), 6U);
    std::map<std::string, std::uint64_t> sums;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::uint64_t of_row = 0;
      for (const auto& [name, bytes] : rows[i]["traffic_bytes"].items()) {
        of_row += bytes.get<std::uint64_t>();
        if (i < 5) sums[name] += bytes.get<std::uint64_t>();
        EXPECT_THAT(classes, ::testing::Contains(name)) << words[1];
      }
      EXPECT_EQ(of_row, rows[i]["bytes_sent"].get<std::uint64_t>()) << words[1] << ", line " << i;
    }
    for (const std::string& name : classes) {
      EXPECT_GT(sums[name], 0U) << words[1] << ": " << name;
      EXPECT_EQ(rows[5]["traffic_bytes"][name], sums[name]) << words[1] << ": " << name;
    }
  }
}

// What two ranks send of gradients is the model's bytes, or half of them in 16 bits; losses and
// comparisons of replicas are far less.
TEST_F(TrainTraffic, ACompressorChangesItsClassAlone) {
  const auto totals = [&](const Words& words) { return lines(words).back()["traffic_bytes"]; };
  const nlohmann::json plain = totals({"--zero", "2"});
  const nlohmann::json cast = totals({"--zero", "2", "--traffic", "parameters=cast:bf16"});
  EXPECT_EQ(cast["gradients"], plain["gradients"]);
  EXPECT_EQ(cast["statistics"], plain["statistics"]);
  EXPECT_LT(cast["parameters"].get<double>(), 0.6 * plain["parameters"].get<double>());
}

TEST_F(TrainTraffic, AClassWithoutACoderTakesNoneAlone) {
  EXPECT_THAT(refused({"--traffic", "activations=cast:bf16"}),
              fails(kInvalid, "--traffic", "activations", "not supported yet", "cast:bf16",
                    "expected none"));
  EXPECT_THAT(refused({"--traffic", "activation_gradients=fp8"}),
              fails(kInvalid, "activation_gradients", "not supported yet"));
  EXPECT_THAT(refused({"--traffic", "statistics=lossless"}),
              fails(kInvalid, "statistics", "not supported yet", "lossless"));
  EXPECT_THAT(refused({"--traffic", "parameters/ring=none"}),
              fails(kInvalid, "parameters", "algorithm ring", "gradients/ring"));
}

TEST_F(TrainTraffic, TwoWaysForOneThingAreRefused) {
  EXPECT_THAT(refused({"--traffic", "gradients=none", "--compressor", "none"}),
              fails(kInvalid, "--traffic", "--compressor", "got both"));
  EXPECT_THAT(refused({"--traffic", "gradients=none", "--zero", "1", "--parameter-compressor",
                       "cast:bf16"}),
              fails(kInvalid, "--traffic", "--parameter-compressor", "got both"));
  EXPECT_THAT(refused({"--traffic", "gradients/ring=none", "--algorithm", "canonical"}),
              fails(kInvalid, "gradients/ring", "--algorithm canonical", "got both"));
  EXPECT_THAT(refused({"--traffic", "gradients=none", "--mode", "ps-sync"}),
              fails(kInvalid, "--traffic", "--mode sync"));
}

TEST_F(TrainTraffic, TrafficThatARunDoesNotHaveIsRefused) {
  EXPECT_THAT(refused({"--traffic", "parameters=cast:bf16"}),
              fails(kInvalid, "parameters=cast:bf16", "--zero 0", "--zero 1, 2 or 3"));
  EXPECT_THAT(refused({"--traffic", "optimizer=signsgd:ef=ef14"}),
              fails(kInvalid, "optimizer=signsgd:ef=ef14", "--optimizer sgd"));
  EXPECT_THAT(refused({"--traffic", "gradients=qsgd:bits=4", "--optimizer", "demo"}),
              fails(kInvalid, "gradients=qsgd:bits=4", "--optimizer demo", "optimizer=SPEC"));
  EXPECT_THAT(refused({"--traffic", "parameters=topk:ratio=0.1", "--zero", "1"}),
              fails(kInvalid, "--traffic", "parameters"));
  EXPECT_THAT(refused({"--traffic", "gradient=none"}), fails(kInvalid, "gradient", "gradients"));
}

}  // namespace
}  // namespace gradwire::train_traffic_test
