// `gradwire train --traffic`: the same runs as by the flags that are short for it, what is refused,
// and the bytes of each class.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/apps/train_runs.h"
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
