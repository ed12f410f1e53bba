// What a checkpoint says of its language model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "apps/generate/saved_language_model.h"
#include "tests/support/fails.h"

namespace gradwire::generate_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

CheckpointManifest of(std::map<std::string, std::string> settings) {
  CheckpointManifest manifest;
  manifest.written_by = "gradwire 0.0.9";
  manifest.settings = std::move(settings);
  return manifest;
}

const std::map<std::string, std::string> kWhole{
    {"model", "gpt"},  {"tokens", "words"}, {"precision", "bf16"},
    {"context", "32"}, {"heads", "2"},      {"layers", "3"},
    {"width", "24"},   {"tied", "yes"},     {"vocabulary", "<unk> a%20b"}};

TEST(SavedLanguageModel, IsWhatTheSettingsSay) {
  const SavedLanguageModel saved = saved_language_model(of(kWhole)).value();
  EXPECT_EQ(saved.context, 32);
  EXPECT_EQ(saved.tokens, TokenKind::kWords);
  EXPECT_EQ(saved.precision, Precision::kBF16);
  EXPECT_THAT(saved.vocabulary, ::testing::ElementsAre("<unk>", "a b"));
  EXPECT_EQ(saved.model.heads, 2);
  EXPECT_EQ(saved.model.layers, 3);
  EXPECT_EQ(saved.model.width, 24);
  EXPECT_TRUE(saved.model.tied);
}

TEST(SavedLanguageModel, NamesWhatIsMissing) {
  const auto without = [](const std::string& name, const std::string& instead = "") {
    auto settings = kWhole;
    settings.erase(name);
    if (!instead.empty()) settings[name] = instead;
    return saved_language_model(of(settings)).error();
  };
  // As older versions wrote them.
  EXPECT_THAT(without("vocabulary"), fails(kInvalid, "gradwire 0.0.9", "--resume"));
  EXPECT_THAT(without("model", "mlp"), fails(kInvalid, "'mlp'", "gpt"));
  EXPECT_THAT(without("width"), fails(kInvalid, "'width'", "missing"));
  EXPECT_THAT(without("layers", "two"), fails(kInvalid, "'layers'", "'two'"));
  EXPECT_THAT(without("tokens", "runes"), fails(kInvalid, "'runes'", "characters"));
  EXPECT_THAT(without("vocabulary", "<unk> a%"), fails(Code::kCorruptPayload, "'a%'"));
}

}  // namespace
}  // namespace gradwire::generate_test
