// `gradwire train --mode` with ranks as threads, end to end on the carried digits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_modes_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

class Modes : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  TemporaryFolder folder_;
};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(Modes, EveryModeLearnsAndReportsEveryStep) {
  const Words common{"--steps", "60",     "--batch", "60",           "--hidden",
                     "32",      "--seed", "3",       "--eval-every", "20"};
  for (const Words& mode : std::vector<Words>{
           {"sync", "--inproc", "3"},
           {"ps-sync", "--inproc", "4"},
           {"ps-async", "--inproc", "4", "--staleness", "2", "--lr", "0.02", "--momentum", "0.5"},
           {"hogwild", "--inproc", "2", "--lr", "0.02"},
           {"easgd", "--inproc", "4", "--lr", "0.2"},
           {"sync-easgd", "--inproc", "3", "--lr", "0.2"},
           {"eamsgd", "--inproc", "3", "--period", "4"},
           {"eamsgd", "--asynchronous", "--inproc", "4", "--period", "4", "--lr", "0.02"},
           {"fedavg", "--inproc", "3", "--local-steps", "7"},
           {"fedavg", "--inproc", "4", "--local-steps", "5", "--participation", "0.5"}}) {
    ASSERT_EQ(train(with(with({"--mode"}, mode), with(common, {"--metrics", file("m")}))), "ok")
        << mode[0];
    const auto lines = json_lines(file("m"));
    ASSERT_EQ(lines.size(), 61U) << mode[0];
    int evaluated = 0;
    for (std::size_t i = 0; i < 60; ++i) {
      EXPECT_EQ(lines[i]["step"], i) << mode[0];
      EXPECT_TRUE(lines[i]["loss"].is_number()) << mode[0];
      evaluated += lines[i].contains("accuracy") ? 1 : 0;
    }
    EXPECT_GE(evaluated, 3) << mode[0];
    EXPECT_LT(lines[59]["loss"].get<double>(), lines[0]["loss"].get<double>()) << mode[0];
    EXPECT_EQ(lines[60]["mode"], mode[0]);
    EXPECT_GT(lines[60]["accuracy"].get<double>(), 0.5) << mode[0];
    EXPECT_EQ(lines[60].contains("staleness_mean"), mode[0] == "ps-async");
  }
}

// What is fragile about a spec is told in every mode that takes one, once; of blocks it is what
// their coders use.
TEST_F(Modes, WarningsOfTheCompressorAreTold) {
  const auto told = [](const Words& mode, const std::string& compressor, const Words& more) {
    const Words common{"--steps", "4",           "--batch", "12",           "--hidden",
                       "32",      "--log-level", "off",     "--compressor", compressor};
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(train(with(with(with({"--mode"}, mode), common), more)), "ok") << mode[0];
    return ::testing::internal::GetCapturedStderr();
  };
  const auto times = [](const std::string& text, const std::string& words) {
    int count = 0;
    for (auto at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++count;
    return count;
  };
  // One level over buckets of 512: sqrt(512) / 2 times the energy, and the message itself.
  const std::string coarse = "*.bias=none;*=qsgd:bits=2,ef=ef14";
  for (const Words& mode : std::vector<Words>{{"ps-sync", "--inproc", "3"},
                                              {"ps-async", "--inproc", "3", "--lr", "0.02"},
                                              {"sync-easgd", "--inproc", "2"},
                                              {"eamsgd", "--inproc", "2"},
                                              {"eamsgd", "--asynchronous", "--inproc", "3"},
                                              {"fedavg", "--inproc", "2"}}) {
    const std::string text = told(mode, coarse, {});
    EXPECT_EQ(times(text, "divided by 12.31"), 1) << mode[0] << ": " << text;
    EXPECT_EQ(times(text, "11.3 gradients"), 1) << mode[0] << ": " << text;
  }
  // Momentum behind error feedback over signs, where there is one.
  const std::string signs = "*.bias=none;*=signsgd:ef=ef14";
  const Words servers{"ps-sync", "--inproc", "3"};
  EXPECT_EQ(times(told(servers, signs, {"--momentum", "0.9"}), "fragile with momentum"), 1);
  EXPECT_EQ(times(told(servers, signs, {"--momentum", "0"}), "fragile with momentum"), 0);
  const Words worker{"--momentum", "0.9", "--momentum-at", "worker"};
  EXPECT_EQ(times(told(servers, signs, worker), "fragile with momentum"), 0);
  // Three ranks' payloads, gathered, are more than a ring's: known once they have been sent.
  EXPECT_EQ(times(told({"fedavg", "--inproc", "3", "--local-steps", "1"}, "lossless", {}),
                  "more than uncompressed"),
            1);
}

// lr rho is alpha for as long as the rate stays; then rho's pull goes with it.
TEST_F(Modes, AlphaStaysWhereRhoFollowsTheRate) {
  const auto run = [&](const Words& pull, const Words& rate, const std::string& name) {
    ASSERT_EQ(
        train(with(with({"--mode", "eamsgd", "--inproc", "3", "--steps", "30", "--batch", "48",
                         "--hidden", "16", "--lr", "0.125", "--save-params", file(name)},
                        pull),
                   rate)),
        "ok");
  };
  const Words cosine{"--lr-schedule", "cosine:0.1"};
  run({"--rho", "2"}, {}, "rho");
  run({"--alpha", "0.25"}, {}, "alpha");
  run({"--moving-rate", "0.75"}, {}, "beta");  // 3 x 0.25
  EXPECT_LE(relative_distance(file("rho"), file("alpha")), 1e-5);
  EXPECT_EQ(contents(file("rho")), contents(file("beta")));
  run({"--rho", "2"}, cosine, "rho");
  run({"--alpha", "0.25"}, cosine, "alpha");
  run({"--moving-rate", "0.75"}, cosine, "beta");
  EXPECT_GE(relative_distance(file("rho"), file("alpha")), 1e-3);
  EXPECT_EQ(contents(file("rho")), contents(file("beta")));
}

TEST_F(Modes, P1_SyncServersEqualAccumulationBitForBit) {
  const Words common{"--steps", "20", "--batch", "48", "--hidden", "32,16", "--seed", "7"};
  for (const char* where : {"server", "worker"}) {
    const Words momentum{"--momentum-at", where};
    ASSERT_EQ(
        train(with(common, with(momentum, {"--accumulate", "3", "--save-params", file("one")}))),
        "ok");
    for (const char* servers : {"1", "2"}) {
      const std::string ranks = std::to_string(3 + servers[0] - '0');
      ASSERT_EQ(
          train(with(common, with(momentum, {"--mode", "ps-sync", "--servers", servers, "--inproc",
                                             ranks, "--save-params", file("many")}))),
          "ok");
      EXPECT_EQ(contents(file("one")), contents(file("many"))) << where << ", " << servers;
    }
  }
}

TEST_F(Modes, ServersStepWithAnyOptimizer) {
  for (const char* optimizer : {"nesterov", "adamw", "lamb"}) {
    const Words common{"--steps",        "20",   "--batch",     "48",     "--hidden",
                       "32,16",          "--lr", "0.01",        "--seed", "7",
                       "--weight-decay", "0.01", "--optimizer", optimizer};
    ASSERT_EQ(train(with(common, {"--accumulate", "3", "--save-params", file("one")})), "ok");
    const Words servers{"--mode", "ps-sync", "--inproc", "4", "--save-params", file("many")};
    ASSERT_EQ(train(with(common, servers)), "ok") << optimizer;
    EXPECT_EQ(contents(file("one")), contents(file("many"))) << optimizer;
    EXPECT_EQ(train(with(common, {"--mode", "ps-async", "--inproc", "4"})), "ok") << optimizer;
  }
  const Words demo{"--mode", "ps-sync", "--inproc", "3", "--optimizer", "demo", "--steps", "1"};
  EXPECT_THAT(refusal(demo), fails(kInvalid, "demo"));
  EXPECT_THAT(refusal({"--mode", "fedavg", "--optimizer", "adamw"}),
              fails(kInvalid, "--optimizer", "fedavg", "--momentum"));
}

// Modes with flags that make a few steps of each go well.
std::vector<Words> every_mode() {
  return {{"ps-sync", "--inproc", "4"},
          {"ps-async", "--inproc", "4", "--lr", "0.01", "--momentum", "0.5"},
          {"hogwild", "--inproc", "3", "--lr", "0.01"},
          {"easgd", "--inproc", "4"},
          {"sync-easgd", "--inproc", "3"},
          {"eamsgd", "--inproc", "3", "--period", "2"},
          {"eamsgd", "--asynchronous", "--inproc", "4", "--period", "2", "--lr", "0.01"},
          {"fedavg", "--inproc", "3", "--local-steps", "3"}};
}

// The statistics that a mode leaves are those that its accuracy was judged by.
TEST_F(Modes, EveryModeTrainsModelsWithRunningStatistics) {
  const Words model{"--model", "resnet8", "--width", "4", "--batch", "48", "--seed", "3"};
  ASSERT_EQ(train(with(model, {"--steps", "0", "--save-params", file("start")})), "ok");
  for (const Words& mode : every_mode()) {
    ASSERT_EQ(
        train(with(with({"--mode"}, mode), with(model, {"--steps", "40", "--metrics", file("m"),
                                                        "--save-params", file("end")}))),
        "ok")
        << mode[0];
    EXPECT_NE(contents(file("end")).find("running_mean"), std::string::npos) << mode[0];
    EXPECT_GT(relative_distance(file("start"), file("end")), 0) << mode[0];
    const double accuracy = json_lines(file("m")).back()["accuracy"];
    ASSERT_EQ(train(with(model, {"--steps", "0", "--load-params", file("end"), "--metrics",
                                 file("again")})),
              "ok");
    EXPECT_EQ(json_lines(file("again")).back()["accuracy"].get<double>(), accuracy) << mode[0];
    EXPECT_GT(accuracy, 0.15) << mode[0];  // a tenth is chance
  }
}

TEST_F(Modes, P1_SyncServersFollowTheStatisticsOfAllWorkers) {
  const Words common{"--model", "resnet8", "--width", "4", "--batch",   "48",
                     "--steps", "5",       "--seed",  "3", "--metrics", file("m")};
  ASSERT_EQ(train(with(common, {"--accumulate", "3", "--save-params", file("one")})), "ok");
  const auto hash = json_lines(file("m")).back()["params_hash"];
  const Words servers{"--mode",   "ps-sync", "--servers",     "2",
                      "--inproc", "5",       "--save-params", file("many")};
  ASSERT_EQ(train(with(common, servers)), "ok");
  EXPECT_EQ(json_lines(file("m")).back()["params_hash"], hash);
  EXPECT_LE(relative_distance(file("one"), file("many")), 1e-7);  // buffers: sums in another order
}

// Modes whose runs repeat: 10 steps, a checkpoint and 10 more are 20.
TEST_F(Modes, GoOnFromTheirCheckpoints) {
  const Words common{"--model", "resnet8", "--width", "4",    "--batch",
                     "24",      "--seed",  "3",       "--lr", "0.02"};
  for (const Words& mode : std::vector<Words>{
           {"ps-sync", "--inproc", "3", "--compressor", "topk:ratio=0.1,ef=ef14",
            "--pull-compressor", "topk:ratio=0.3"},
           {"ps-async", "--inproc", "2"},
           {"hogwild", "--inproc", "1"},
           {"easgd", "--inproc", "3"},
           {"sync-easgd", "--inproc", "2"},
           {"eamsgd", "--inproc", "2", "--period", "3"},
           {"eamsgd", "--asynchronous", "--inproc", "2", "--period", "5"},
           {"fedavg", "--inproc", "4", "--local-steps", "5", "--participation", "0.5"}}) {
    const Words run = with(with({"--mode"}, mode), common);
    const std::string folder = file("run-" + mode[0] + std::to_string(mode.size()));
    const Words saving = with(run, {"--checkpoint", folder, "--checkpoint-every", "5"});
    ASSERT_EQ(train(with(run, {"--steps", "20", "--checkpoint", folder + "-whole",
                               "--checkpoint-every", "5", "--save-params", file("whole")})),
              "ok");
    ASSERT_EQ(train(with(saving, {"--steps", "10", "--metrics", file("m")})), "ok") << mode[0];
    ASSERT_EQ(train(with(saving, {"--steps", "20", "--resume", "--metrics", file("m"),
                                  "--save-params", file("end")})),
              "ok")
        << mode[0];
    EXPECT_TRUE(contents(file("whole")) == contents(file("end"))) << mode[0] << " " << mode.size();
    const auto lines = json_lines(file("m"));
    ASSERT_EQ(lines.size(), 21U) << mode[0];
    for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(lines[i]["step"], i) << mode[0];
    EXPECT_EQ(lines[20]["steps"], 20) << mode[0];
  }
}

TEST_F(Modes, CheckpointsOfOtherModesAreRefused) {
  const Words common{"--inproc", "3",       "--batch", "24",           "--hidden",
                     "16",       "--steps", "2",       "--checkpoint", file("run")};
  ASSERT_EQ(train(with({"--mode", "fedavg"}, common)), "ok");
  EXPECT_THAT(refusal(with({"--mode", "eamsgd", "--resume"}, common)),
              fails(kInvalid, "mode", "fedavg", "eamsgd"));
  EXPECT_THAT(refusal(with({"--mode", "fedavg"}, common)),
              fails(kInvalid, file("run"), "step 2", "--resume"));
  const Words fewer{"--mode",   "fedavg",       "--inproc", "2",       "--batch",
                    "24",       "--hidden",     "16",       "--steps", "2",
                    "--resume", "--checkpoint", file("run")};
  EXPECT_THAT(refusal(fewer), fails(kInvalid, "3 ranks", "2"));
  EXPECT_NE(train(with({"--resume"}, common)), "ok");
}

TEST_F(Modes, StartFromAFileAndDoNothingInNoSteps) {
  ASSERT_EQ(train({"--steps", "3", "--hidden", "16", "--save-params", file("start")}), "ok");
  for (const char* mode : {"ps-sync", "ps-async", "easgd", "sync-easgd", "fedavg"}) {
    ASSERT_EQ(train({"--mode", mode, "--inproc", "3", "--hidden", "16", "--steps", "0", "--batch",
                     "48", "--load-params", file("start"), "--save-params", file("end")}),
              "ok")
        << mode;
    EXPECT_EQ(contents(file("start")), contents(file("end"))) << mode;
  }
}

TEST_F(Modes, CompressedExchangesLearn) {
  const Words common{"--steps", "80", "--batch", "60", "--hidden", "32", "--inproc", "4"};
  for (const Words& mode :
       std::vector<Words>{{"ps-sync", "--compressor", "topk:ratio=0.1,ef=ef14", "--pull-compressor",
                           "topk:ratio=0.2"},
                          {"ps-async", "--compressor", "powersgd:rank=4,ef=ef14", "--lr", "0.02",
                           "--momentum", "0.5", "--staleness", "1"},
                          {"sync-easgd", "--compressor", "qsgd:bits=8", "--lr", "0.2"},
                          {"fedavg", "--compressor", "signsgd:ef=ef14", "--local-steps", "4"}}) {
    ASSERT_EQ(train(with(with({"--mode"}, mode), with(common, {"--metrics", file("m")}))), "ok")
        << mode[0];
    EXPECT_GT(json_lines(file("m")).back()["accuracy"].get<double>(), 0.5) << mode[0];
  }
}

TEST_F(Modes, IllegalPairsAreRefusedWithARemedy) {
  const auto refused = [](const Words& words) { return refusal(with({"--steps", "1"}, words)); };
  EXPECT_THAT(refused({"--staleness", "3"}),
              fails(kInvalid, "--staleness", "--mode ps-async", "--mode sync"));
  EXPECT_THAT(refused({"--mode", "fedavg", "--period", "3"}),
              fails(kInvalid, "--period", "fedavg", "--local-steps"));
  EXPECT_THAT(refused({"--mode", "hogwild", "--compressor", "topk:ratio=0.1"}),
              fails(kInvalid, "hogwild", "--compressor"));
  EXPECT_THAT(refused({"--mode", "hogwild", "--inproc", "2", "--transport", "nccl"}),
              ::testing::AnyOf(fails(kInvalid, "--transport"), fails(Code::kUnsupported, "NCCL")));
  EXPECT_THAT(refused({"--mode", "easgd", "--inproc", "2", "--compressor", "cast:bf16"}),
              fails(kInvalid, "easgd", "sync-easgd"));
  EXPECT_THAT(refused({"--mode", "sync-easgd", "--momentum", "0.9"}),
              fails(kInvalid, "--momentum", "--mode eamsgd"));
  EXPECT_THAT(refused({"--mode", "ps-sync", "--accumulate", "2"}),
              fails(kInvalid, "--accumulate", "ps-sync"));
  EXPECT_THAT(refused({"--mode", "ps-sync", "--inproc", "2", "--servers", "2"}),
              fails(kInvalid, "ps-sync", "2 rank(s)", "2"));
  EXPECT_THAT(refused({"--mode", "easgd"}), fails(kInvalid, "easgd", "1 rank(s)", "1"));
  EXPECT_THAT(refused({"--mode", "ps-sync", "--inproc", "4", "--batch", "64"}),
              fails(kInvalid, "--batch", "64", "3"));
  EXPECT_THAT(refused({"--mode", "eamsgd", "--asynchronous"}),
              fails(kInvalid, "eamsgd", "1 rank(s)", "--inproc 3"));
  EXPECT_THAT(refused({"--mode", "easgd", "--inproc", "2", "--asynchronous"}),
              fails(kInvalid, "--asynchronous", "--mode eamsgd"));
  EXPECT_THAT(refused({"--mode", "fedavg", "--participation", "0"}),
              fails(kInvalid, "--participation", "0"));
  EXPECT_THAT(refused({"--mode", "easgd", "--rho", "1", "--moving-rate", "0.5"}),
              fails(kInvalid, "--rho", "--moving-rate"));
  EXPECT_THAT(refused({"--mode", "eamsgd", "--rho", "1", "--alpha", "0.5"}),
              fails(kInvalid, "--rho", "--alpha"));
  EXPECT_THAT(refused({"--mode", "eamsgd", "--alpha", "0.5", "--moving-rate", "0.5"}),
              fails(kInvalid, "--alpha", "--moving-rate"));
  EXPECT_THAT(refused({"--mode", "eamsgd", "--alpha", "0"}), fails(kInvalid, "--alpha 0"));
  EXPECT_THAT(refused({"--mode", "easgd", "--moving-rate", "0"}),
              fails(kInvalid, "--moving-rate 0"));
  EXPECT_THAT(refused({"--mode", "fedavg", "--alpha", "0.1"}),
              fails(kInvalid, "--alpha", "fedavg", "eamsgd"));
  EXPECT_THAT(
      refused({"--mode", "ps-sync", "--inproc", "3", "--compressor", "topk:ratio=0.1,ef=ef21"}),
      fails(kInvalid, "ef21", "ef14", "loco"));
}

}  // namespace
}  // namespace gradwire::train_modes_test
