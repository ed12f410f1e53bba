#include "base/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace gradwire::text_test {
namespace {

TEST(Text, WholeStringsOnly) {
  EXPECT_EQ(to_int("42"), 42);
  EXPECT_EQ(to_int("-7"), -7);
  for (const char* bad : {"", " 1", "1 ", "1x", "0x10", "99999999999999999999"})
    EXPECT_EQ(to_int(bad), std::nullopt) << bad;
  EXPECT_EQ(to_double("0.01"), 0.01);
  EXPECT_EQ(to_double("1e-3"), 1e-3);
  for (const char* bad : {"", "nan", "inf", "1e999", "0.1f", " 1"})
    EXPECT_EQ(to_double(bad), std::nullopt) << bad;
}

TEST(Text, ShortestReadsBack) {
  EXPECT_EQ(shortest(0.01), "0.01");
  EXPECT_EQ(shortest(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(to_double(shortest(std::numeric_limits<double>::min())),
            std::numeric_limits<double>::min());
}

TEST(Text, FormatHandlesLongText) {
  const std::string long_text(5000, 'x');
  EXPECT_EQ(format("<%s>", long_text.c_str()), "<" + long_text + ">");
}

}  // namespace
}  // namespace gradwire::text_test
