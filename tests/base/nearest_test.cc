#include "base/nearest.h"

#include <gtest/gtest.h>

namespace gradwire::nearest_test {
namespace {

const std::vector<std::string> kKeys{"ratio", "ef", "ef_storage", "k", "warmup_steps"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("raito", kKeys), "ratio") << "two letters swapped";
  EXPECT_EQ(nearest("rato", kKeys), "ratio") << "one missing";
  EXPECT_EQ(nearest("rattio", kKeys), "ratio") << "one surplus";
  EXPECT_EQ(nearest("radio", kKeys), "ratio") << "one wrong";
  EXPECT_EQ(nearest("RATIO", kKeys), "ratio") << "capitals";
  EXPECT_EQ(nearest("ef-storage", kKeys), "ef_storage") << "- for _";
  EXPECT_EQ(nearest("warmup", kKeys), "warmup_steps") << "a beginning of one word alone";
}

TEST(Nearest, KnowsWhatOtherProgramsCallAFlag) {
  const std::vector<std::string> flags{"moving-rate", "lr", "batch"};
  EXPECT_EQ(nearest("learning_rate", flags), "lr");
  EXPECT_EQ(nearest("lerning-rate", flags), "lr") << "and misspelt";
  EXPECT_EQ(nearest("batch-size", flags), "batch");
  EXPECT_EQ(nearest("learning-rate", {"batch"}), "") << "not known here";
}

TEST(Nearest, FindsNothingThatIsFar) {
  EXPECT_EQ(nearest("colour", kKeys), "");
  EXPECT_EQ(nearest("x", kKeys), "") << "a single letter is near to everything short";
  EXPECT_EQ(nearest("", kKeys), "");
  EXPECT_EQ(nearest("ratio", {}), "");
  EXPECT_EQ(nearest("cha", {"channel", "chapter"}), "") << "a beginning of two words";
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), {std::string(1 << 20, 'a')}), "") << "not a name";
}

TEST(Nearest, TheFirstOfTwoThatAreAsNear) { EXPECT_EQ(nearest("bird", {"bard", "bind"}), "bard"); }

TEST(DidYouMean, AsksOrIsSilent) {
  EXPECT_EQ(did_you_mean("stepz", {"steps", "seed"}, "--"), "; did you mean '--steps'?");
  EXPECT_EQ(did_you_mean("zzzzzz", {"steps", "seed"}, "--"), "");
}

}  // namespace
}  // namespace gradwire::nearest_test
