#include "apps/inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/whole_file.h"
#include "gradwire/registry.h"
#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::inspect_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Code kInvalid = Code::kInvalidArgument;
// What the command printed; fails the test when it was refused.
std::string printed(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const auto outcome = inspect_command(words);
  std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
  return text;
}
Status refusal(const std::vector<std::string>& words) {
  ::testing::internal::CaptureStdout();
  const auto outcome = inspect_command(words);
  (void)::testing::internal::GetCapturedStdout();
  return outcome.has_value() ? Status() : outcome.error();
}

TEST(InspectCompressors, EveryMethodHasARowWithItsClaims) {
  std::map<std::string, nlohmann::json> rows;
  std::istringstream lines(printed({"compressors", "--json"}));
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << line;
    rows[row["name"]] = row;
  }
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    ASSERT_TRUE(rows.contains(method.name)) << method.name;
    EXPECT_EQ(rows[method.name]["kind"], "compressor") << method.name;
    EXPECT_TRUE(rows[method.name].contains("claims")) << method.name;
    EXPECT_TRUE(rows[method.name]["bits_per_element"].is_number()) << method.name;
    EXPECT_EQ(rows[method.name]["keys"].size(), method.keys.size()) << method.name;
  }
  for (const char* feedback : {"ef14", "ef21", "ef21_sgdm", "loco"}) {
    ASSERT_TRUE(rows.contains(feedback)) << feedback;
    EXPECT_EQ(rows[feedback]["kind"], "feedback");
    EXPECT_TRUE(rows[feedback].contains("claims")) << feedback;
  }
  // On 1000 x 1000: 16 bits; 1 % of pairs of 32 bits; 4 (1000 + 1000) factors of 32 bits.
  EXPECT_EQ(rows["none"]["bits_per_element"], 32.0);
  EXPECT_EQ(rows["cast"]["bits_per_element"], 16.0);
  EXPECT_EQ(rows["topk"]["bits_per_element"], 0.64);
  EXPECT_EQ(rows["powersgd"]["bits_per_element"], 0.256);
  EXPECT_EQ(rows["topk"]["claims"]["bound"], "contraction");
  EXPECT_EQ(rows["topk"]["claims"]["bound_value"], 0.01);
  EXPECT_EQ(rows["qsgd"]["claims"]["unbiased"], true);
}

TEST(InspectCompressors, OneByNameAndHowItIsCombinedByDefault) {
  const std::string text = printed({"compressors", "qsgd"});
  EXPECT_THAT(text, HasSubstr("combine=sra, the default"));
  EXPECT_THAT(text, HasSubstr(", 1 round, element-wise"));
  EXPECT_THAT(text, Not(HasSubstr("topk")));
  EXPECT_THAT(printed({"compressors", "topk"}), Not(HasSubstr("combine=sra")));
  EXPECT_THAT(printed({"compressors", "signum"}), HasSubstr("as 'signum': all-gather"));
  EXPECT_THAT(refusal({"compressors", "qsdg"}),
              fails(Code::kInvalidArgument, "'qsdg'", "did you mean 'qsgd'"));
}

// What a cast loses is little, but not nothing, and a payload that varies may be shorter.
TEST(InspectCompressors, TheTextRoundsNoErrorAwayAndSaysWhatIsAtMost) {
  const std::string text = printed({"compressors"});
  // bf16 has seven bits of mantissa: half of 2^-7 of an element at most, squared.
  EXPECT_THAT(text, HasSubstr("<= 1.53e-05 |x|^2; 16 bits per element"));
  EXPECT_THAT(text, HasSubstr("<= 0 |x|^2; 32 bits per element"));
  EXPECT_THAT(text, HasSubstr("<= (1 - 0.01) |x|^2; 0.64 bits per element"));
  // atomo: 1000 atoms of 2001 values, where 3 are drawn on average.
  EXPECT_THAT(text, HasSubstr("|x|^2; at most 64.03 bits per element"));
}

std::string recipe_file(const TemporaryFolder& folder, const std::string& text) {
  const std::string path = folder.path() + "/recipe.json";
  EXPECT_TRUE(write_whole_file(path, text).ok());
  return path;
}

TEST(InspectNmse, RowsOfARecipeAndTheVerdict) {
  const TemporaryFolder folder;
  const std::string path = recipe_file(folder, R"({"elements": 4096, "seeds": 2, "rows": [
    {"spec": "none", "nmse": 0, "bits": 32},
    {"spec": "minmax:bits=4", "combine": "sra", "ranks": 4, "bits": 4.125, "nmse": 0.018, "factor": 2},
    {"spec": "natural", "data": "lognormal", "judged": "any seed", "nmse": 100}]})");
  std::istringstream lines(printed({"nmse", "--recipe", path, "--json"}));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(nlohmann::json::parse(line, nullptr, false));
    ASSERT_TRUE(rows.back().is_object()) << line;
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["nmse"], 0.0);
  EXPECT_EQ(rows[1]["bits_per_element"], 4.125);
  EXPECT_EQ(rows[1]["pass"], true);
  EXPECT_EQ(rows[2]["judged"], "any seed");
  EXPECT_EQ(rows[2]["pass"], false);
  EXPECT_THAT(printed({"nmse", "--recipe", path}), HasSubstr("1 of 3 rows missed"));
}

TEST(InspectNmse, BadRecipesAreNamed) {
  const TemporaryFolder folder;
  const auto error_of = [&folder](const std::string& text) {
    return refusal({"nmse", "--recipe", recipe_file(folder, text)});
  };
  EXPECT_THAT(error_of("[]"), fails(kInvalid, "JSON"));
  EXPECT_THAT(error_of(R"({"rows": []})"), fails(kInvalid, "rows", "[]"));
  EXPECT_THAT(error_of(R"({"rows": [{}]})"), fails(kInvalid, "row 0", "spec"));
  EXPECT_THAT(error_of(R"({"rows": [{"spec": "none", "ranks": "4"}]})"),
              fails(kInvalid, "row 0", "ranks", "\"4\""));
  EXPECT_THAT(error_of(R"({"rows": [{"spec": "none", "colour": 1}]})"),
              fails(kInvalid, "row 0", "colour"));
  EXPECT_THAT(error_of(R"({"rows": [{"spec": "none", "combine": "tree"}]})"),
              fails(kInvalid, "combine", "tree"));
  EXPECT_THAT(error_of(R"({"elements": 0, "rows": [{"spec": "none"}]})"),
              fails(kInvalid, "elements", "0"));
  EXPECT_THAT(refusal({"nmse", "--recipe", "/nowhere.json"}), fails(kInvalid, "/nowhere.json"));
}

TEST(InspectSchedule, ShowsEveryRankAndTheVerdict) {
  const std::string text = printed({"schedule", "ring", "4", "--elements", "8"});
  for (const char* rank : {"rank 0 of 4", "rank 1 of 4", "rank 2 of 4", "rank 3 of 4"}) {
    EXPECT_THAT(text, HasSubstr(rank));
  }
  EXPECT_THAT(text, HasSubstr("checked: all ranks finish"));
  // 2 (p - 1) rounds, 2 (p - 1)/p n elements sent and received.
  EXPECT_THAT(
      text, ::testing::ContainsRegex("     3        6          6              12              12"));
}

TEST(InspectSchedule, EveryAlgorithmIsKnownByItsName) {
  for (const char* name : {"ring",
                           "canonical",
                           "direct",
                           "recursive_doubling",
                           "halving_doubling",
                           "double_tree",
                           "tree",
                           "knomial",
                           "parameter_server",
                           "two_level",
                           "blueconnect",
                           "recursive_halving",
                           "pairwise",
                           "bruck",
                           "binomial",
                           "scatter_all_gather",
                           "chain",
                           "scatter_gather",
                           "linear",
                           "dissemination"}) {
    EXPECT_THAT(printed({"schedule", name, "3"}), HasSubstr("checked: ")) << name;
  }
  EXPECT_THAT(printed({"schedule", "canonical", "3", "--op", "reduce_scatter"}),
              HasSubstr("reduce_scatter by canonical"));
  EXPECT_THAT(printed({"schedule", "two_level", "5", "--nodes", "2"}), HasSubstr("checked: "));
  EXPECT_THAT(printed({"schedule", "binomial", "5", "--op", "gather", "--root", "3"}),
              HasSubstr("checked: "));
}

TEST(InspectSchedule, BadWordsSayWhatIsWanted) {
  EXPECT_THAT(refusal({"schedule", "star", "4"}),
              fails(kInvalid, "algorithm", "star", "ring", "canonical"));
  EXPECT_THAT(refusal({"schedule", "ring", "0"}), fails(kInvalid, "0", "1", "256"));
  EXPECT_THAT(refusal({"schedule", "ring", "4", "--op", "gossip"}),
              fails(kInvalid, "--op", "gossip"));
  EXPECT_THAT(refusal({"schedule", "binomial", "4", "--root", "4"}),
              fails(kInvalid, "--root", "4", "0", "3"));
  EXPECT_THAT(refusal({"schedule", "ring"}), fails(kInvalid, "RANKS"));
  EXPECT_THAT(refusal({"nonesuch"}), fails(kInvalid, "topic", "nonesuch", "schedule"));
}

TEST(InspectPayload, WhatEncodeWroteIsShown) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/payload";
  EXPECT_THAT(printed({"encode", "topk:k=3", "--elements", "100", "--out", file}),
              HasSubstr("(10, 10), f32: 100 elements"));
  const std::string text = printed({"payload", file});
  EXPECT_THAT(text, HasSubstr("topk:k=3"));
  EXPECT_THAT(text, HasSubstr("3 of 100 elements are not 0"));
  EXPECT_THAT(refusal({"payload", folder.path() + "/none"}),
              fails(kInvalid, folder.path() + "/none"));
  EXPECT_THAT(refusal({"encode", "topk:k=3"}), fails(kInvalid, "--out"));
}

TEST(InspectData, CountsTheCarriedDigits) {
  const std::string text = printed({"data", "digits"});
  EXPECT_THAT(text, HasSubstr("train  1437 samples, per class"));
  EXPECT_THAT(text, HasSubstr("test   360 samples, per class"));
  EXPECT_THAT(text, HasSubstr("(v / 16 - mean) / deviation"));
  EXPECT_THAT(refusal({"data", "imagenet"}), fails(kInvalid, "imagenet"));
}

}  // namespace
}  // namespace gradwire::inspect_test
