// The matchers of messages, which must be able to fail.
#include "tests/support/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace gradwire::names_test {
namespace {

using ::testing::Not;

const std::string kSaid = "peer lost: rank 12 lost in all_reduce (deadline 1.5 s)";

TEST(Names, TextTellsWholeWords) {
  EXPECT_THAT(kSaid, tells(to_string(Code::kPeerLost), "rank 12", "all_reduce", "1.5"));
  EXPECT_THAT(kSaid, tells());
  EXPECT_THAT(kSaid, Not(tells("rank 12", "rank 1")));
  EXPECT_THAT(kSaid, Not(tells("reduce")));
  EXPECT_THAT(kSaid, Not(tells(to_string(Code::kTimedOut))));
  EXPECT_TRUE(names_all(kSaid, "rank 12", "deadline"));
  EXPECT_FALSE(names_all(kSaid, "rank 12", "rank 2"));
}

TEST(Names, AFailureIsToldWithItsCode) {
  EXPECT_EQ(code_and_message(Status(Code::kTimedOut, "no key")), "timed out: no key");
  EXPECT_EQ(code_and_message(Status()), "");
}

}  // namespace
}  // namespace gradwire::names_test
