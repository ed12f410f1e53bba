// `gradwire train` with every model: ranks as threads against micro-batches of one rank, files of
// parameters, what does not fit together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_models_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

class TrainModels : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  // 1, 2 and 4 workers' worth of one global batch: as ranks, and as micro-batches of one rank.
  void expect_ranks_equal_micro_batches(const Words& problem, const std::string& batch) {
    for (const char* workers : {"2", "4"}) {
      const auto run = [&](Words flags, const std::string& name) {
        flags.insert(flags.end(), problem.begin(), problem.end());
        flags.insert(flags.end(), {"--batch", batch, "--steps", "3", "--seed", "5", "--save-params",
                                   file(name), "--metrics", file(name + ".jsonl")});
        ASSERT_EQ(train(flags), "ok") << name;
      };
      run({"--accumulate", workers}, "accumulated");
      run({"--inproc", workers, "--algorithm", "canonical"}, "ranks");
      EXPECT_EQ(contents(file("accumulated")), contents(file("ranks"))) << problem[1];
      EXPECT_NEAR(json_lines(file("accumulated.jsonl"))[3]["test_loss"].get<double>(),
                  json_lines(file("ranks.jsonl"))[3]["test_loss"].get<double>(), 1e-8);
    }
  }
  TemporaryFolder folder_;
};

// Dropout masks, windows and statistics belong to samples, not to ranks.
TEST_F(TrainModels, GptOverRanksIsExact) {
  expect_ranks_equal_micro_batches(
      {"--model", "gpt", "--data", "grammar", "--context", "8", "--width", "16", "--heads", "2",
       "--layers", "1", "--dropout", "0.1"},
      "8");
}
// The sums of the embedding's and of the head's gradients over micro-batches are added once in a
// step, those of ranks once on each (decision 0014): the same values in another order.
TEST_F(TrainModels, TiedGptOverRanksIsItsMicroBatchesToRounding) {
  const auto losses = [&](const Words& flags) {
    Words words{"--model",  "gpt",     "--data",  "grammar",   "--context",
                "8",        "--width", "16",      "--heads",   "2",
                "--layers", "1",       "--tied",  "--dropout", "0.1",
                "--batch",  "8",       "--steps", "5",         "--seed",
                "5",        "--lr",    "0.1",     "--metrics", file("m.jsonl")};
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(train(words), "ok");
    std::vector<double> all;
    for (const nlohmann::json& line : json_lines(file("m.jsonl"))) {
      all.push_back(line["loss"].get<double>());
    }
    return all;
  };
  const std::vector<double> alone = losses({"--accumulate", "4"});
  EXPECT_LT(alone.back(), alone.front());
  EXPECT_THAT(losses({"--inproc", "4", "--algorithm", "canonical"}),
              ::testing::Pointwise(::testing::DoubleNear(1e-6), alone));
}
TEST_F(TrainModels, ResnetOverRanksIsExact) {
  expect_ranks_equal_micro_batches({"--model", "resnet8", "--data", "digits", "--width", "4"},
                                   "32");
}
TEST_F(TrainModels, ConvexModelsOverRanksAreExact) {
  expect_ranks_equal_micro_batches({"--model", "logistic", "--data", "sparse"}, "32");
  expect_ranks_equal_micro_batches({"--model", "linear", "--data", "separable"}, "32");
}

// T1: a network of three layers separates what can be separated.
TEST_F(TrainModels, T1_MlpSeparatesTheSeparable) {
  ASSERT_EQ(train({"--model", "mlp", "--hidden", "32,32", "--data", "separable", "--steps", "200",
                   "--batch", "64", "--lr", "0.05", "--metrics", file("m.jsonl")}),
            "ok");
  EXPECT_GE(json_lines(file("m.jsonl")).back()["accuracy"].get<double>(), 0.99);
}

TEST_F(TrainModels, GptLearnsTheGrammar) {
  ASSERT_EQ(
      train({"--model", "gpt",     "--data", "grammar",  "--context", "16",           "--width",
             "32",      "--heads", "2",      "--layers", "1",         "--steps",      "150",
             "--batch", "16",      "--lr",   "0.3",      "--metrics", file("m.jsonl")}),
      "ok");
  const auto lines = json_lines(file("m.jsonl"));
  // 27 characters are ln 27 = 3.3 nats of ignorance; how often each occurs alone gives 2.9.
  EXPECT_NEAR(lines[0]["loss"].get<double>(), 3.3, 0.2);
  EXPECT_LT(lines.back()["test_loss"].get<double>(), 2.5);
}

TEST_F(TrainModels, RunningStatisticsTravelWithTheParameters) {
  const Words common{"--model", "resnet8", "--data", "digits", "--width", "4", "--batch", "32"};
  const auto run = [&](Words flags) {
    flags.insert(flags.end(), common.begin(), common.end());
    EXPECT_EQ(train(flags), "ok");
    return json_lines(file("m.jsonl")).back();
  };
  const auto trained =
      run({"--steps", "12", "--save-params", file("p"), "--metrics", file("m.jsonl")});
  const auto loaded = run(
      {"--steps", "0", "--inproc", "2", "--load-params", file("p"), "--metrics", file("m.jsonl")});
  EXPECT_EQ(loaded["params_hash"], trained["params_hash"]);
  EXPECT_EQ(loaded["accuracy"], trained["accuracy"]);
  EXPECT_NEAR(loaded["test_loss"].get<double>(), trained["test_loss"].get<double>(), 1e-8);
}

TEST_F(TrainModels, WordsOfAFileWithAVocabulary) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 3 == 0 ? "to be or\n" : "not to be ,\n";
  write(file("text"), text);
  write(file("words"), "to\nbe\nor\nnot\n,\n<eos>\n");
  EXPECT_EQ(train({"--model",  "gpt",   "--data",       "text",        "--text-file", file("text"),
                   "--tokens", "words", "--vocabulary", file("words"), "--context",   "4",
                   "--width",  "8",     "--heads",      "1",           "--layers",    "1",
                   "--steps",  "2",     "--batch",      "4",           "--shuffle",   "epoch"}),
            "ok");
}

TEST_F(TrainModels, RefusesWhatDoesNotFitTogether) {
  EXPECT_THAT(refusal({"--model", "gpt"}), fails(kInvalid, "gpt", "digits", "text"));
  EXPECT_THAT(refusal({"--model", "mlp", "--data", "grammar"}),
              fails(kInvalid, "mlp", "grammar", "gpt"));
  EXPECT_THAT(refusal({"--hidden", "8", "--model", "cnn"}),
              fails(kInvalid, "--hidden", "cnn", "mlp"));
  EXPECT_THAT(refusal({"--heads", "8"}), fails(kInvalid, "--heads", "gpt"));
  EXPECT_THAT(refusal({"--width", "8"}),
              fails(kInvalid, "--width", "gpt", "alexnet", "resnet8", "resnet20"));
  EXPECT_THAT(refusal({"--data", "text"}), fails(kInvalid, "--text-file", "--data text"));
  EXPECT_THAT(refusal({"--model", "gpt", "--data", "grammar", "--width", "10", "--heads", "4"}),
              fails(kInvalid, "width 10", "4 heads"));
}

}  // namespace
}  // namespace gradwire::train_models_test
