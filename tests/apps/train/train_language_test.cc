// `gradwire train` of a language model: what is evaluated, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/train/train_runs.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::train_language_test {
namespace {

constexpr int kContext = 8;

class TrainLanguage : public ::testing::Test {
 protected:
  void SetUp() override {
    write("train", 600);
    write("valid", 204);
  }
  std::string file(const std::string& name) const { return folder_.path() + "/" + name; }
  void write(const std::string& name, int characters) const {
    std::ofstream text(file(name));
    for (int i = 0; i < characters; ++i) text << "abcde fgh\n"[(i * i + i / 3) % 10];
  }

  // The lines of the metrics of a short run.
  std::vector<nlohmann::json> lines(const Words& more) const {
    Words words{"--model",     "gpt",
                "--data",      "text",
                "--text-file", file("train"),
                "--context",   "8",
                "--width",     "16",
                "--layers",    "2",
                "--heads",     "2",
                "--batch",     "8",
                "--steps",     "6",
                "--lr",        "0.3",
                "--metrics",   file("m.jsonl")};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(train(words), "ok");
    return json_lines(file("m.jsonl"));
  }

  TemporaryFolder folder_;
};

// 203 tokens are predicted by 26 windows, the last one of 3 tokens, on any ranks.
TEST_F(TrainLanguage, EvaluatesEveryTokenOnce) {
  const Words full{"--text-valid", file("valid"), "--eval", "full"};
  const nlohmann::json whole = lines(full).back();
  EXPECT_EQ(whole["test_samples"], 203);
  for (const char* parallel : {"dp=2", "dp=4", "pp=2", "dp=2,pp=2/gpipe"}) {
    Words words = full;
    words.insert(words.end(), {"--parallel", parallel, "--algorithm", "canonical"});
    const nlohmann::json divided = lines(words).back();
    EXPECT_EQ(divided["test_samples"], 203) << parallel;
    // Parameters differ by the order of sums alone.
    EXPECT_NEAR(divided["test_loss"].get<double>(), whole["test_loss"].get<double>(), 1e-5)
        << parallel;
  }
  Words some = full;
  some.back() = "5";
  EXPECT_EQ(lines(some).back()["test_samples"], 5 * kContext);
}

TEST_F(TrainLanguage, SaysPerplexityAndTokens) {
  const auto all = lines({"--text-valid", file("valid"), "--eval", "4", "--eval-every", "3"});
  ASSERT_EQ(all.size(), 7u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(all[i]["tokens"], 8 * kContext);
    EXPECT_NEAR(all[i]["tokens_per_second"].get<double>() * all[i]["step_seconds"].get<double>(),
                8 * kContext, 0.01);
    EXPECT_EQ(all[i].contains("perplexity"), i == 2 || i == 5);
  }
  EXPECT_NEAR(all[5]["perplexity"].get<double>(), std::exp(all[5]["test_loss"].get<double>()),
              1e-6);
  EXPECT_EQ(all[6]["perplexity"], all[5]["perplexity"]);
  EXPECT_EQ(all[6]["tokens"], 6 * 8 * kContext);
}

TEST_F(TrainLanguage, RefusesWhatIsNoText) {
  EXPECT_THAT(refusal({"--data", "digits", "--eval", "full"}),
              fails(Code::kInvalidArgument, "--eval", "digits"));
  EXPECT_THAT(refusal({"--data", "digits", "--text-valid", "x"}),
              fails(Code::kInvalidArgument, "--text-valid", "--data text"));
  EXPECT_THAT(refusal({"--eval", "0"}), fails(Code::kInvalidArgument, "eval", "'0'", "full"));
  EXPECT_THAT(refusal({"--model", "gpt", "--data", "text", "--text-file", file("train"),
                       "--context", "8", "--eval", "9"}),
              fails(Code::kInvalidArgument, "9 windows of 8 tokens", "at most 8"));
}

}  // namespace
}  // namespace gradwire::train_language_test
