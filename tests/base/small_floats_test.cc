#include "base/small_floats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradwire::small_floats_test {
namespace {

TEST(Fp16, KnownValues) {
  EXPECT_EQ(fp16_from_float(0.0f), 0x0000);
  EXPECT_EQ(fp16_from_float(-0.0f), 0x8000);
  EXPECT_EQ(fp16_from_float(1.0f), 0x3c00);
  EXPECT_EQ(fp16_from_float(-2.0f), 0xc000);
  EXPECT_EQ(fp16_from_float(65504.0f), 0x7bff);
  EXPECT_EQ(fp16_from_float(65519.996f), 0x7bff);
  EXPECT_EQ(fp16_from_float(65520.0f), 0x7c00);  // a tie: to even, which is infinity
  EXPECT_EQ(fp16_from_float(0x1p-14f), 0x0400);
  EXPECT_EQ(fp16_from_float(0x1p-24f), 0x0001);
  EXPECT_EQ(fp16_from_float(0x1p-25f), 0x0000);           // a tie: to even
  EXPECT_EQ(fp16_from_float(0x1.000002p-25f), 0x0001);    // just above it
  EXPECT_EQ(fp16_from_float(1.0f + 0x1p-11f), 0x3c00);    // a tie: to even
  EXPECT_EQ(fp16_from_float(1.0f + 0x1.8p-10f), 0x3c02);  // a tie: to even, upwards
  EXPECT_EQ(fp16_from_float(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_TRUE(std::isnan(float_from_fp16(fp16_from_float(std::nanf("")))));
}

TEST(Bf16, KnownValues) {
  EXPECT_EQ(bf16_from_float(1.0f), 0x3f80);
  EXPECT_EQ(bf16_from_float(1.0f + 0x1p-8f), 0x3f80);    // a tie: to even
  EXPECT_EQ(bf16_from_float(1.0f + 0x1.8p-7f), 0x3f82);  // a tie: to even, upwards
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_from_float(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::nanf("")))));
}

// Every 16-bit pattern that is no NaN survives the way out and back.
TEST(SmallFloats, EveryPatternRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float_from_fp16(half))) {
      ASSERT_EQ(fp16_from_float(float_from_fp16(half)), half);
    }
    if (!std::isnan(float_from_bf16(half))) {
      ASSERT_EQ(bf16_from_float(float_from_bf16(half)), half);
    }
  }
}

// Nearest: no neighbouring pattern is closer (compared in double, which is exact here).
TEST(SmallFloats, RoundingIsToNearest) {
  for (int i = 0; i < 20000; ++i) {
    const float x = std::ldexp(1.0f + static_cast<float>(i) * 0x1p-15f, i % 30 - 20);
    const std::uint16_t half = fp16_from_float(x);
    const double error = std::abs(static_cast<double>(float_from_fp16(half)) - x);
    const auto up = static_cast<std::uint16_t>(half + 1);
    const auto down = static_cast<std::uint16_t>(half == 0 ? 0 : half - 1);
    ASSERT_LE(error, std::abs(static_cast<double>(float_from_fp16(up)) - x));
    ASSERT_LE(error, std::abs(static_cast<double>(float_from_fp16(down)) - x));
  }
}

}  // namespace
}  // namespace gradwire::small_floats_test
