// What tests on a card are skipped for, and what not.
#include "tests/gpu/card.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gradwire::gpu {
namespace {

TEST(MissingOnCard, IsWhatIsNotSupportedAndNothingElse) {
  EXPECT_EQ(missing(has_card), "");  // the device that the host plays
  EXPECT_EQ(missing(multiplies), "");
  EXPECT_EQ(missing([] { return Status(Code::kUnsupported, "no library"); }), "no library");
  EXPECT_EQ(missing([] { return Status(Code::kInternal, "it is broken"); }), "");
  EXPECT_EQ(missing([]() -> Status { std::abort(); }), "");
}

}  // namespace
}  // namespace gradwire::gpu
