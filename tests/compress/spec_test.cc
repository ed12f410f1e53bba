// Rules by name pattern and size: what their text means, and what is answered to a wrong one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/registry.h"
#include "tests/support/fails.h"

namespace gradwire::spec_test {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::vector<SpecRule> rules(std::string_view text) {
  const auto parsed = parse_spec_rules(text);
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
  return parsed.has_value() ? parsed.value() : std::vector<SpecRule>();
}

Status refusal(std::string_view text) { return parse_spec_rules(text).error(); }

SizeRange sizes(const std::string& text) { return rules("*@" + text + "=none").front().sizes; }

TEST(SpecRules, NamesAndSizesStandBeforeTheSpec) {
  const auto parsed = rules("*.bias=none; embed.*@1M..=qsgd:bits=8 ;@..4096B=none;topk:ratio=0.01");
  ASSERT_EQ(parsed.size(), 4u);
  EXPECT_EQ(parsed[0].glob, "*.bias");
  EXPECT_EQ(parsed[0].sizes, SizeRange());
  EXPECT_EQ(parsed[1].glob, "embed.*");
  EXPECT_EQ(parsed[1].sizes, (SizeRange{.least = 1048576}));
  EXPECT_EQ(to_string(parsed[1].spec), "qsgd:bits=8");
  EXPECT_EQ(parsed[2].glob, "*");
  EXPECT_EQ(parsed[2].sizes, (SizeRange{.below = 4096, .in_bytes = true}));
  EXPECT_EQ(parsed[3].glob, "*");
  EXPECT_EQ(to_string(parsed[3].spec), "topk:ratio=0.01");
}

TEST(SpecRules, SizesAreElementsOrBytesInPowersOf1024) {
  EXPECT_EQ(sizes("64K.."), (SizeRange{.least = 65536}));
  EXPECT_EQ(sizes("..3"), (SizeRange{.below = 3}));
  EXPECT_EQ(sizes("5..2G"), (SizeRange{.least = 5, .below = 2147483648}));
  EXPECT_EQ(sizes("10B..1MB"), (SizeRange{.least = 10, .below = 1048576, .in_bytes = true}));
}

TEST(SpecRules, ARangeHoldsItsFirstSizeAndNotItsLast) {
  const SizeRange elements{.least = 10, .below = 20};
  EXPECT_FALSE(elements.holds(9, 4));
  EXPECT_TRUE(elements.holds(10, 8));
  EXPECT_TRUE(elements.holds(19, 4));
  EXPECT_FALSE(elements.holds(20, 4));
  const SizeRange bytes{.least = 40, .below = 80, .in_bytes = true};
  EXPECT_TRUE(bytes.holds(10, 4));
  EXPECT_FALSE(bytes.holds(10, 8));
  EXPECT_TRUE(bytes.holds(5, 8));
  EXPECT_TRUE(SizeRange().holds(0, 4));
}

TEST(SpecRules, ARangeCoversWhatLiesWithinInTheSameUnit) {
  const SizeRange elements{.least = 10, .below = 20};
  EXPECT_TRUE(SizeRange().covers(elements));
  EXPECT_TRUE(elements.covers({.least = 10, .below = 15}));
  EXPECT_FALSE(elements.covers({.least = 9, .below = 15}));
  EXPECT_FALSE(elements.covers(SizeRange()));
  EXPECT_FALSE(elements.covers({.least = 12, .below = 15, .in_bytes = true}));
  EXPECT_TRUE((SizeRange{.least = 0, .below = kMost, .in_bytes = true}.covers(elements)));
}

TEST(SpecRules, TextsReadBackAsTheSame) {
  for (const std::string text : {"*.bias=none", "*@64K..=cast:bf16", "fc?.*@..1MB=topk:k=3,ef=ef14",
                                 "*@10B..4097B=none", "*@1000..2G=none"}) {
    EXPECT_EQ(to_string(rules(text).front()), text);
  }
}

TEST(SpecRules, WrongSizesAreShownWithWhatIsWanted) {
  const auto no_size = [](const auto&... words) {
    return fails(Code::kInvalidArgument, "LEAST..BELOW", words...);
  };
  EXPECT_THAT(refusal("*@64K=none"), no_size("'64K'"));
  EXPECT_THAT(refusal("*@..=none"), no_size("'..'"));
  EXPECT_THAT(refusal("*@=none"), no_size("''"));
  EXPECT_THAT(refusal("*@1T..=none"), no_size("'1T..'", "'1T'"));
  EXPECT_THAT(refusal("*@-1..=none"), no_size("'-1..'", "'-1'"));
  EXPECT_THAT(refusal("*@9999999999G..=none"), no_size("'9999999999G'"));
  EXPECT_THAT(refusal("*@1K..1MB=none"), no_size("'1K..1MB'", "mixes"));
  EXPECT_THAT(refusal("*@20..20=none"), no_size("'20..20'", "holds"));
  EXPECT_THAT(refusal("=none"), fails(Code::kInvalidArgument, "pattern", "'='"));
  EXPECT_THAT(refusal("a+b@1..=none"), fails(Code::kInvalidArgument, "pattern", "letters"));
  // Where: under the text, a mark at the place.
  const std::string text(refusal("*.bias=none; *@64K=topk:k=3").message());
  EXPECT_TRUE(text.ends_with("\n  *.bias=none; *@64K=topk:k=3\n                 ^")) << text;
}

// dgc named clip=0 as its default and refused it. Keys without a default are given here.
TEST(SpecList, CommasAndSemicolonsThatWereMistakenAreExplained) {
  const auto list = parse_spec_list("none;topk:ratio=0.1,ef=ef14;[*.bias=none;*=qsgd:bits=4]");
  ASSERT_TRUE(list.has_value()) << list.error().message();
  EXPECT_EQ(list.value().size(), 3u);
  EXPECT_THAT(parse_spec_list("none,topk:ratio=0.1").error(),
              fails(Code::kInvalidArgument, "'none,topk'", "';' separates compressors"));
  EXPECT_THAT(parse_spec_list("topk:ratio=0.1;ef=ef14").error(),
              fails(Code::kInvalidArgument, "'ef=ef14'", "topk:ratio=0.01,ef=ef14"));
  EXPECT_TRUE(parse_spec_list("[ef=none]").has_value()) << "a rule for the parameter of that name";
}

TEST(SpecList, ABareValueWithoutAMeaningIsAnsweredWithTheKeys) {
  EXPECT_THAT(Registry::builtin().make("topk:0.01").error(),
              fails(Code::kInvalidArgument, "'0.01'", "keys: ratio, k, index"));
}

TEST(SpecDefaults, MayBeWrittenOut) {
  const std::map<std::string, std::string> given{{"cast", "type=bf16"},  {"topk", "ratio=0.1"},
                                                 {"threshold", "tau=1"}, {"randomk", "ratio=0.1"},
                                                 {"cltk", "ratio=0.1"},  {"qsgd", "bits=4"}};
  const Registry registry = Registry::builtin();
  for (const Registry::Method& method : registry.methods()) {
    const auto wanted = given.find(method.name);
    const std::string plain = method.name + (wanted == given.end() ? "" : ":" + wanted->second);
    const auto usual = registry.make(std::string_view(plain));
    ASSERT_TRUE(usual.has_value()) << usual.error().message();
    for (const SpecKey& key : method.keys) {
      if (key.default_value.empty()) continue;
      const std::string text =
          plain + (wanted == given.end() ? ":" : ",") + key.name + "=" + key.default_value;
      const auto made = registry.make(std::string_view(text));
      ASSERT_TRUE(made.has_value()) << made.error().message();
      EXPECT_EQ(made.value()->spec(), usual.value()->spec()) << text;
    }
  }
}

}  // namespace
}  // namespace gradwire::spec_test
