// What the matcher of failures takes for a word.
#include "tests/support/fails.h"

#include <gtest/gtest.h>

namespace gradwire::fails_test {
namespace {

TEST(Fails, AWordIsNamedWhereNothingContinuesIt) {
  EXPECT_TRUE(names("got 9, expected 8", "9"));
  EXPECT_TRUE(names("--bits=9", "9"));
  EXPECT_FALSE(names("got 19", "9"));
  EXPECT_FALSE(names("got 9th", "9"));
  EXPECT_FALSE(names("bits_9", "9"));
  EXPECT_TRUE(names("19 and 9", "9"));  // the second one
}

TEST(Fails, ANumberGoesOnBehindItsPoint) {
  EXPECT_FALSE(names("momentum 0.9 seen", "9"));
  EXPECT_FALSE(names("momentum 0.9 seen", "0"));
  EXPECT_FALSE(names("10.95", "0.9"));
  EXPECT_TRUE(names("momentum 0.9 seen", "0.9"));
  EXPECT_FALSE(names("127.0.0.1", "0.0"));
  // A sentence's end is none of it.
  EXPECT_TRUE(names("expected 8. Got 9.", "9"));
  EXPECT_TRUE(names("expected 8. Got 9.", "8"));
  EXPECT_TRUE(names("seen: .5", "5"));
}

TEST(Fails, CodeAndAllWordsAreWanted) {
  const Status status(Code::kInvalidArgument, "bits: got 0.9, expected 4");
  EXPECT_THAT(status, fails(Code::kInvalidArgument, "bits", "0.9", "4"));
  EXPECT_THAT(status, ::testing::Not(fails(Code::kInvalidArgument, "9")));
  EXPECT_THAT(status, ::testing::Not(fails(Code::kUnsupported, "bits")));
}

}  // namespace
}  // namespace gradwire::fails_test
