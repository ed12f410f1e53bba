#include "apps/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/whole_file.h"
#include "tests/support/temporary_folder.h"

namespace gradwire {
namespace {

using testing::HasSubstr;

struct Outcome {
  std::string text;
  std::string error;  // empty: none
  std::vector<nlohmann::json> rows;
};

Outcome plan(std::vector<std::string> words) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/rows";
  words.insert(words.end(), {"--json", file});
  testing::internal::CaptureStdout();
  const auto ended = plan_command(words);
  Outcome outcome;
  outcome.text = testing::internal::GetCapturedStdout();
  if (!ended.has_value()) outcome.error = ended.error().message();
  const auto lines = read_whole_file(file);
  std::istringstream in(lines.has_value() ? lines.value() : "");
  for (std::string line; std::getline(in, line);) {
    outcome.rows.push_back(nlohmann::json::parse(line, nullptr, false));
  }
  return outcome;
}

// 17.2 billion parameters over 16 tensor ranks: 4 + 16/N bytes for each.
TEST(Plan, Z6_StageOneOfAModelOverTensorRanks) {
  for (const std::int64_t ranks : {2, 4, 16}) {
    const Outcome found = plan({"--params", "17.2e9", "--zero", "1", "--tensor", "16", "--data",
                                std::to_string(ranks), "--memory"});
    ASSERT_EQ(found.error, "");
    ASSERT_EQ(found.rows.size(), 4U);
    const auto& row = found.rows[1];
    EXPECT_DOUBLE_EQ(row["state_bytes_per_param"], 4 + 16.0 / static_cast<double>(ranks));
    EXPECT_DOUBLE_EQ(row["total_bytes"], 17.2e9 / 16 * (4 + 16.0 / static_cast<double>(ranks)));
    EXPECT_THAT(found.text, HasSubstr("1 *"));
  }
}

// A stage sends what its operations say: (N-1)/N of the model twice, three times with stage 3.
TEST(Plan, StagesSendTwiceOrThreeTimesTheModel) {
  const Outcome found = plan({"--params", "1048576", "--precision", "fp32", "--data", "4", "--cost",
                              "--alpha", "0", "--beta", "1e-9"});
  ASSERT_EQ(found.error, "");
  const double model = 1048576 * 4.0 * 3 / 4;
  std::map<std::string, double> bytes;
  std::map<std::string, double> seconds;
  for (const auto& row : found.rows) {
    bytes[row["zero"]] += row["wire_bytes"].get<double>();
    seconds[row["zero"]] += row["seconds"].get<double>();
  }
  for (const char* stage : {"0", "1", "2"}) EXPECT_DOUBLE_EQ(bytes[stage], 2 * model) << stage;
  EXPECT_DOUBLE_EQ(bytes["3"], 3 * model);
  EXPECT_GT(seconds["3"], 3 * model * 1e-9 * 0.999);
}

TEST(Plan, ACompressorsExchangesStandBesideTheDenseOnes) {
  const Outcome found =
      plan({"--params", "1e6", "--data", "4", "--cost", "--compressor", "qsgd:bits=4"});
  ASSERT_EQ(found.error, "");
  EXPECT_THAT(found.text, HasSubstr("qsgd:bits=4"));
  EXPECT_EQ(found.rows.back()["what"], "gradients, compressed");
  EXPECT_LT(found.rows.back()["wire_bytes"].get<double>(), 1e6 * 4 * 3);
}

TEST(Plan, ATransformersShapeIsEnough) {
  const Outcome found = plan({"--layers", "12", "--width", "768", "--heads", "12", "--sequence",
                              "1024", "--vocabulary", "50257", "--zero", "3", "--data", "8"});
  ASSERT_EQ(found.error, "");
  EXPECT_THAT(found.text, HasSubstr("1.244e+08 parameters"));
  EXPECT_GT(found.rows[3]["gathered_bytes"].get<double>(), 0);
  EXPECT_GT(found.rows[3]["activation_bytes"].get<double>(), 0);
  EXPECT_DOUBLE_EQ(found.rows[0]["gathered_bytes"], 0);
}

TEST(Plan, WhatDoesNotFitIsRefusedWithWhatDoes) {
  const Outcome tight =
      plan({"--params", "10e9", "--zero", "1", "--data", "64", "--device-mem", "30G"});
  EXPECT_THAT(tight.error, HasSubstr("--zero 1 needs 39.58 GiB"));
  EXPECT_THAT(tight.error, HasSubstr("fits at --zero 2, 3"));
  const Outcome none = plan({"--params", "1e12", "--device-mem", "30G"});
  EXPECT_THAT(none.error, HasSubstr("no stage fits"));
  EXPECT_EQ(plan({"--params", "1e9", "--device-mem", "30G"}).error, "");
}

TEST(Plan, BadQuestionsAreNamed) {
  EXPECT_THAT(plan({}).error, HasSubstr("no model"));
  EXPECT_THAT(plan({"--layers", "3"}).error, HasSubstr("half a transformer"));
  EXPECT_THAT(plan({"--layers", "2", "--width", "10", "--heads", "4", "--sequence", "8"}).error,
              HasSubstr("no multiple"));
  EXPECT_THAT(plan({"--params", "1e6", "--zero", "4"}).error, HasSubstr("zero"));
  EXPECT_THAT(plan({"--params", "1e6", "--compressor", "nothing"}).error, HasSubstr("nothing"));
}

}  // namespace
}  // namespace gradwire
