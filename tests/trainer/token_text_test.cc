// Tokens as text, a vocabulary in one line, and the token that is drawn next.
#include "trainer/data/token_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "trainer/data/next_token.h"

namespace gradwire::token_text_test {
namespace {

using ::testing::ElementsAre;

constexpr Code kCorrupt = Code::kCorruptPayload;

TokenText text_of(TokenKind kind, std::vector<std::string> vocabulary) {
  auto made = TokenText::create(kind, std::move(vocabulary));
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

TEST(TokenText, AVocabularyIsOneLine) {
  const std::vector<std::string> words{"<unk>", "50%", "a b", "\xc3\xa9", std::string("\0", 1)};
  const std::string line = vocabulary_text(words);
  EXPECT_EQ(line, "<unk> 50%25 a%20b %c3%a9 %00");
  EXPECT_EQ(parse_vocabulary(line).value(), words);
  for (const char* bad : {"a%2", "a%zz", "a%2G", "a\tb"}) {
    EXPECT_THAT(parse_vocabulary(bad).error(), fails(kCorrupt, bad)) << bad;
  }
  EXPECT_THAT(parse_vocabulary("a b a").error(), fails(kCorrupt, "token 2", "twice"));
  EXPECT_THAT(parse_vocabulary("a  b").error(), fails(kCorrupt, "token 1"));
  EXPECT_THAT(parse_vocabulary("").error(), fails(kCorrupt, "empty"));
}

TEST(TokenText, IsRefusedWhereNoTextHasIt) {
  EXPECT_THAT(TokenText::create(TokenKind::kWords, {"a", "b"}).error(), fails(kCorrupt, "<unk>"));
  EXPECT_THAT(TokenText::create(TokenKind::kBytes, {"a", "bc"}).error(), fails(kCorrupt, "byte"));
  EXPECT_THAT(TokenText::create(TokenKind::kCharacters, {}).error(), fails(kCorrupt, "0 tokens"));
}

TEST(TokenText, CharactersStandAlone) {
  const TokenText text = text_of(TokenKind::kCharacters, {"\n", "a", "b"});
  EXPECT_THAT(text.numbers("ab\n").value(), ElementsAre(1, 2, 0));
  EXPECT_THAT(text.numbers("abz").error(), fails(Code::kInvalidArgument, "character 3", "'z'"));
  EXPECT_EQ(text.text(1, 2, false) + text.text(0, 1, false), "a\n");
  EXPECT_EQ(text.start(), 0u);
  EXPECT_EQ(text_of(TokenKind::kCharacters, {"b", "a"}).start(), 0u);
}

TEST(TokenText, WordsFollowABlank) {
  const TokenText text = text_of(TokenKind::kWords, {"a", "<unk>", "<eos>", "the"});
  EXPECT_THAT(text.numbers("the a\nzebra").value(), ElementsAre(3, 0, 2, 1));
  EXPECT_EQ(text.text(3, 0, true) + text.text(0, 3, false) + text.text(2, 0, false) +
                text.text(1, 2, false) + text.text(3, 1, false),
            "the a\n<unk> the");
  EXPECT_EQ(text.start(), 2u);
  EXPECT_EQ(text_of(TokenKind::kWords, {"a", "<unk>"}).start(), 1u);
}

TEST(NextToken, IsTheMostLikelyOneAtTemperatureZero) {
  const std::vector<float> logits{0.5F, 2, 1, 2};
  for (std::int64_t drawn = 0; drawn < 5; ++drawn) {
    EXPECT_EQ(next_token(logits, {.temperature = 0}, drawn).value(), 1u);
    EXPECT_EQ(next_token(logits, {.top_k = 1}, drawn).value(), 1u);
  }
}

// exp(logit / 2) are 1, 2, 3, 4: shares of 0.1 to 0.4, of the two most likely ones 3/7 and 4/7.
TEST(NextToken, IsDrawnByItsProbability) {
  std::vector<float> logits;
  for (const double share : {1.0, 2.0, 3.0, 4.0}) {
    logits.push_back(static_cast<float>(2 * std::log(share)));
  }
  constexpr int kDraws = 20000;
  const auto counts = [&](std::int64_t top_k) {
    std::vector<double> seen(4);
    for (int drawn = 0; drawn < kDraws; ++drawn) {
      const SamplingOptions options{.temperature = 2, .top_k = top_k, .seed = 3};
      seen[next_token(logits, options, drawn).value()] += 1.0 / kDraws;
    }
    return seen;
  };
  // Six standard deviations of a share are at most 6 sqrt(0.25 / 20,000) = 0.022.
  const std::vector<double> all = counts(0);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(all[i], 0.1 * static_cast<double>(i + 1), 0.022) << i;
  }
  const std::vector<double> two = counts(2);
  EXPECT_EQ(two[0] + two[1], 0);
  EXPECT_NEAR(two[2], 3.0 / 7, 0.022);
}

TEST(NextToken, IsAFunctionOfSeedAndPlace) {
  const std::vector<float> logits(64, 0);
  const auto drawn = [&](std::uint64_t seed) {
    std::vector<std::uint32_t> all;
    for (std::int64_t i = 0; i < 32; ++i) {
      all.push_back(next_token(logits, {.seed = seed}, i).value());
    }
    return all;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(NextToken, WantsFiniteLogits) {
  const std::vector<float> logits{0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(next_token(logits, {}, 0).error(), fails(Code::kInvalidArgument, "token 1"));
}

}  // namespace
}  // namespace gradwire::token_text_test
