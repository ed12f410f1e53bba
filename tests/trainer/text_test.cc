// Texts as tokens, windows and their order; sets that are made.
#include "trainer/data/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/fails.h"
#include "tests/support/temporary_folder.h"
#include "trainer/data/catalog.h"
#include "trainer/data/synthetic.h"

namespace gradwire::text_test {
namespace {

constexpr Code kCorrupt = Code::kCorruptPayload;
constexpr Code kInvalid = Code::kInvalidArgument;

using ::testing::ElementsAre;

TextOptions characters(std::int64_t context) {
  TextOptions options;
  options.context = context;
  return options;
}

DataSet text_of(const std::string& text, const TextOptions& options) {
  auto made = make_text("hand", text, options);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return std::move(made).value();
}

TEST(Text, CharactersAreThoseThatOccur) {
  const DataSet set = text_of("cab abc cab abc cab ", characters(1));
  EXPECT_EQ(set.classes(), 4);
  EXPECT_THAT(set.vocabulary(), ElementsAre(" ", "a", "b", "c"));
  EXPECT_EQ(set.train().tokens.size(), 18u);  // nine tenths of 20
  EXPECT_THAT(set.test().tokens, ElementsAre(2, 0));
  EXPECT_EQ(set.shape(), (SampleShape{1, 1, 1}));
  TextOptions bytes = characters(1);
  bytes.tokens = TokenKind::kBytes;
  EXPECT_EQ(text_of("cab abc cab abc cab ", bytes).classes(), 256);
  EXPECT_EQ(text_of("cab abc cab abc cab ", bytes).train().tokens[0], 99u);
}

TEST(Text, AWindowIsFollowedByItsLabels) {
  const DataSet set = text_of("abcdefghijabcdefghijabcdefghijabcdefghij", characters(3));
  EXPECT_EQ(set.labels_per_sample(), 3);
  EXPECT_EQ(set.train().count(), 36 - 3);
  std::vector<float> x(6);
  std::vector<std::uint32_t> labels(6);
  set.take(set.train(), std::vector<std::uint32_t>{0, 32}, x, labels);
  EXPECT_THAT(x, ElementsAre(0, 1, 2, 2, 3, 4));
  EXPECT_THAT(labels, ElementsAre(1, 2, 3, 3, 4, 5));
}

TEST(Text, OrdersCoverTheTextOrDrawFromAllOfIt) {
  const DataSet set = text_of(std::string(1000, 'a') + std::string(1000, 'b'), characters(8));
  const std::int64_t count = 1800 - 8;
  EXPECT_EQ(set.epoch_samples(), 224);
  DataOrder file = set.order(1, Shuffle::kNone);
  EXPECT_EQ(file.epoch(0)[0], 0u);
  EXPECT_EQ(file.epoch(3)[223], 223u * 8);
  DataOrder permuted = set.order(1, Shuffle::kEpoch);
  const auto some = permuted.epoch(2);
  const std::set<std::uint32_t> distinct(some.begin(), some.end());
  EXPECT_EQ(distinct.size(), 224u);
  for (const std::uint32_t start : distinct) EXPECT_EQ(start % 8, 0u);
  // Uniform starts: all of them occur in time, equally often, and none lies outside.
  DataOrder uniform = set.order(1, Shuffle::kUniform);
  std::vector<int> times(static_cast<std::size_t>(count));
  for (std::int64_t epoch = 0; epoch < 800; ++epoch) {
    for (const std::uint32_t start : uniform.epoch(epoch)) ++times.at(start);
  }
  // 224 * 800 / 1,792 = 100 each, sd 10.
  for (const int seen : times) EXPECT_NEAR(seen, 100, 6 * 10);
  EXPECT_TRUE(std::ranges::equal(uniform.epoch(5), set.order(1, Shuffle::kUniform).epoch(5)));
  EXPECT_FALSE(std::ranges::equal(uniform.epoch(5), set.order(2, Shuffle::kUniform).epoch(5)));
}

TEST(Text, IsJudgedByTheSameWindowsAlways) {
  const DataSet set = text_of(grammar_text(400), characters(16));
  EXPECT_EQ(set.evaluation().size(), 1600u);
  for (const std::uint32_t start : set.evaluation()) EXPECT_LT(start, set.test().count());
  const DataSet again = text_of(grammar_text(400), characters(16));
  EXPECT_TRUE(std::ranges::equal(set.evaluation(), again.evaluation()));
}

// 41 tokens test: 40 are predicted, by windows of 16, 16 and 8.
TEST(Text, WindowsInOrderPredictEveryTokenOnce) {
  TextOptions options = characters(16);
  options.evaluated = 0;
  std::string test;
  for (int i = 0; i < 41; ++i) test += static_cast<char>('a' + i % 7);
  auto made = make_text("hand", std::string(100, 'a') + "bcdefg", test, options);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const DataSet& set = made.value();
  EXPECT_EQ(set.train().tokens.size(), 106u);
  EXPECT_THAT(set.evaluation(), ElementsAre(0, 16, 32));
  EXPECT_EQ(set.labels_of(set.evaluation()), 40);
  EXPECT_EQ(set.labels_of(set.evaluation().first(2)), 32);
  EXPECT_EQ(set.labels_of(set.evaluation().last(1)), 8);
  EXPECT_EQ(set.labels_of({}), 0);
  std::vector<float> x(3 * 16, -1);
  std::vector<std::uint32_t> labels(3 * 16, 99);
  set.take(set.test(), set.evaluation(), x, labels);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(x[i], static_cast<float>(i % 7)) << i;
    EXPECT_EQ(labels[i], (i + 1) % 7) << i;
  }
  for (std::size_t i = 40; i < 48; ++i) {
    EXPECT_EQ(x[i], 0) << i;
    EXPECT_EQ(labels[i], 0u) << i;
  }
  options.evaluated = 2;
  const auto two = make_text("hand", std::string(100, 'a') + "bcdefg", test, options);
  EXPECT_EQ(two.value().labels_of(two.value().evaluation()), 32);
  options.evaluated = 4;
  EXPECT_THAT(make_text("hand", std::string(100, 'a') + "bcdefg", test, options).error(),
              fails(kInvalid, "4 windows of 16 tokens", "at most 3"));
}

// Characters of both texts; words are counted in the first one alone.
TEST(Text, AnotherTextTests) {
  const auto letters = make_text("hand", "abab", "cab", characters(1));
  ASSERT_TRUE(letters.has_value()) << letters.error().message();
  EXPECT_THAT(letters.value().vocabulary(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(letters.value().train().tokens, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(letters.value().test().tokens, ElementsAre(2, 0, 1));
  TextOptions options = characters(1);
  options.tokens = TokenKind::kWords;
  const auto words = make_text("hand", "x y y", "y z", options);
  ASSERT_TRUE(words.has_value()) << words.error().message();
  EXPECT_THAT(words.value().vocabulary(), ElementsAre(kUnknownWord, "y", "x"));
  EXPECT_THAT(words.value().train().tokens, ElementsAre(2, 1, 1));
  EXPECT_THAT(words.value().test().tokens, ElementsAre(1, 0));
  EXPECT_THAT(make_text("hand", "abab", "c", characters(1)).error(), fails(kInvalid, "1 to test"));
}

TEST(Text, WhatWikiTextWritesStaysWhole) {
  EXPECT_THAT(words_of("the <unk> of 1 @,@ 000 @-@ year a@b @@-@ <b> @\n"),
              ElementsAre("the", kUnknownWord, "of", "1", "@,@", "000", "@-@", "year", "a", "@",
                          "b", "@", "@-@", "<", "b", ">", "@", kLineEnd));
  EXPECT_THAT(frequent_words(words_of("<unk> a <unk> @-@ a <unk>"), 9),
              ElementsAre(kUnknownWord, "a", "@-@"));
}

TEST(Text, WordsAndMarks) {
  EXPECT_THAT(words_of("It's so,\n  so -- far.\n"),
              ElementsAre("It's", "so", ",", kLineEnd, "so", "-", "-", "far", ".", kLineEnd));
  EXPECT_THAT(frequent_words(words_of("b a b c c b d"), 4),
              ElementsAre(kUnknownWord, "b", "c", "a"));
}

TEST(Text, WordsBeyondTheVocabularyAreUnknown) {
  TextOptions options = characters(1);
  options.tokens = TokenKind::kWords;
  options.vocabulary_size = 3;
  // 20 words; the last two, which test, are not counted.
  const DataSet set = text_of("a b a b a b a c a b a b a b a b a b c c", options);
  EXPECT_THAT(set.vocabulary(), ElementsAre(kUnknownWord, "a", "b"));
  EXPECT_EQ(set.train().tokens[7], 0u);
  EXPECT_THAT(set.test().tokens, ElementsAre(0, 0));
}

class TextFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string put(const std::string& name, const std::string& text) {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  TemporaryFolder folder_;
};

TEST_F(TextFiles, VocabularyFromAFile) {
  TextOptions options = characters(1);
  options.tokens = TokenKind::kWords;
  options.vocabulary_file = put("words", "b\na\r\n");
  const DataSet set = text_of("a b c a b c a b c a b c a b c a b c a b", options);
  EXPECT_THAT(set.vocabulary(), ElementsAre(kUnknownWord, "b", "a"));
  EXPECT_THAT(set.test().tokens, ElementsAre(2, 1));
  const auto refusal = [&](const std::string& text) {
    const auto read = read_vocabulary(put("bad", text));
    return read.has_value() ? Status() : read.error();
  };
  EXPECT_THAT(refusal("a\n\nb\n"), fails(kCorrupt, path("bad"), "line 2", "empty"));
  EXPECT_THAT(refusal("a\nb\na\n"), fails(kCorrupt, path("bad"), "line 3", "a", "line 1"));
  EXPECT_THAT(refusal(""), fails(kCorrupt, path("bad"), "empty"));
  EXPECT_THAT(read_vocabulary(path("none")).error(), fails(kInvalid, path("none")));
}

TEST_F(TextFiles, AFileOfOnesOwn) {
  DataOptions options;
  options.text = characters(4);
  EXPECT_THAT(load_data_set("text", {}, options).error(), fails(kInvalid, "text", "file"));
  options.text_file = put("own", grammar_text(100));
  const auto loaded = load_data_set("text", {}, options);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  EXPECT_EQ(loaded.value().labels_per_sample(), 4);
  options.text_file = put("short", "abcdefghij");
  EXPECT_THAT(load_data_set("text", {}, options).error(),
              fails(kInvalid, "9 tokens", "1", "context of 4"));
  options.text.context = 0;
  EXPECT_THAT(load_data_set("text", {}, options).error(), fails(kInvalid, "context 0", "1"));
}

TEST(Synthetic, SparseSamplesHaveTenOnesAtMost) {
  const DataSet set = std::move(load_data_set("sparse", {})).value();
  EXPECT_EQ(set.train().count(), 4096);
  EXPECT_EQ(set.test().count(), 1024);
  EXPECT_EQ(set.classes(), 2);
  const auto features = static_cast<std::size_t>(set.shape().elems());
  std::int64_t ones = 0;
  for (std::size_t s = 0; s < 4096; ++s) {
    const auto first = set.train().pixels.begin() + static_cast<std::ptrdiff_t>(s * features);
    const auto own = std::count(first, first + static_cast<std::ptrdiff_t>(features), 1);
    EXPECT_GE(own, 1);
    EXPECT_LE(own, 10);
    ones += own;
  }
  // 1,000 (1 - (1 - 1/1,000)^10) = 9.955 different places of ten draws.
  EXPECT_NEAR(static_cast<double>(ones) / 4096, 9.955, 0.03);
  const auto positive = std::count(set.train().labels.begin(), set.train().labels.end(), 1);
  EXPECT_NEAR(static_cast<double>(positive) / 4096, 0.5, 0.1);
}

TEST(Synthetic, SeparableClassesLieAroundTheirCentres) {
  const DataSet set = std::move(load_data_set("separable", {})).value();
  EXPECT_EQ(set.classes(), 10);
  // Whoever takes the nearest mean of the training classes is right about every test sample.
  std::vector<std::vector<double>> centre(10, std::vector<double>(64));
  for (std::size_t s = 0; s < 4096; ++s) {
    for (std::size_t f = 0; f < 64; ++f) {
      centre[set.train().labels[s]][f] += set.train().pixels[s * 64 + f] / 409.6;
    }
  }
  int right = 0;
  for (std::size_t s = 0; s < 1024; ++s) {
    std::map<double, std::size_t> by_distance;
    for (std::size_t c = 0; c < 10; ++c) {
      double distance = 0;
      for (std::size_t f = 0; f < 64; ++f) {
        const double off = set.test().pixels[s * 64 + f] - centre[c][f];
        distance += off * off;
      }
      by_distance[distance] = c;
    }
    right += by_distance.begin()->second == set.test().labels[s] ? 1 : 0;
  }
  EXPECT_GE(right, 1020);
}

TEST(Synthetic, GrammarAgrees) {
  const std::string text = grammar_text(50);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 50);
  EXPECT_EQ(text, grammar_text(80).substr(0, text.size()));
  const DataSet set = std::move(load_data_set("grammar", {})).value();
  EXPECT_GT(set.train().count(), 100000);
}

}  // namespace
}  // namespace gradwire::text_test
