#include "compress/natural/natural_kernels.h"

#include "tests/compress/small_codes.h"
#include "tests/reference/small_codes_reference.h"

namespace gradwire::natural_test {
namespace {

using namespace testing;

template <typename T>
void compare_with_reference() {
  for (const std::size_t count : {1u, 7u, 8u, 1000u, 1500u}) {
    const auto x = mixed_values<T>(count);
    expect_bytes<T>(NaturalKernel{}, x, natural_reference<T>(kSomeKey, 9, x), "9 bits");
    expect_bytes<T>(NaturalWindowKernel{}, x, natural_reference<T>(kSomeKey, 8, x), "8 bits");
  }
}
TEST(Natural, MatchesReferenceForFloats) { compare_with_reference<float>(); }
TEST(Natural, MatchesReferenceForDoubles) { compare_with_reference<double>(); }

TEST(Natural, PowersOfTwoStay) {
  const std::vector<float> x{1.0f, -2.0f, 0.0f, 0x1p-126f, -0x1p127f, 0x1p-60f, 0.0f, 4.0f, 8.0f};
  EXPECT_EQ(round_trip("natural", x), x);
  const std::vector<float> window{1.0f, -2.0f, 0.0f, 0x1p-94f, -0x1p31f};
  EXPECT_EQ(round_trip("natural:bits=8", window), window);
}

// 2.5 is a quarter of the way from 2 to 4.
TEST(Natural, RoundsUpWithTheFraction) {
  for (const char* spec : {"natural", "natural:bits=8"}) {
    const int n = 100000;
    const auto y = round_trip(spec, std::vector<float>(n, -2.5f));
    int up = 0;
    for (const float v : y) {
      ASSERT_TRUE(v == -2.0f || v == -4.0f) << v;
      up += v == -4.0f ? 1 : 0;
    }
    EXPECT_NEAR(up / static_cast<double>(n), 0.25, 4 * std::sqrt(0.25 * 0.75 / n)) << spec;
  }
}

// A quarter of the least power of two: that power, one time in four.
TEST(Natural, BelowTheWindowNothingIsFlushed) {
  for (const auto& [spec, least] :
       {std::pair{"natural", 0x1p-126f}, {"natural:bits=8", 0x1p-94f}}) {
    const int n = 100000;
    const auto y = round_trip(spec, std::vector<float>(n, least / 4));
    int up = 0;
    for (const float v : y) {
      ASSERT_TRUE(v == 0.0f || v == least) << v;
      up += v == least ? 1 : 0;
    }
    EXPECT_NEAR(up / static_cast<double>(n), 0.25, 4 * std::sqrt(0.25 * 0.75 / n)) << spec;
  }
}

TEST(Natural, EndsOfTheWindow) {
  EXPECT_EQ(round_trip<float>("natural", {3.4e38f, -3.4e38f}),
            (std::vector<float>{0x1p127f, -0x1p127f}));
  EXPECT_EQ(round_trip<float>("natural:bits=8", {1e30f, -3e9f}),
            (std::vector<float>{0x1p31f, -0x1p31f}));
  for (const char* spec : {"natural", "natural:bits=8"}) {
    EXPECT_TRUE(std::isnan(round_trip<float>(spec, {std::numeric_limits<float>::infinity()})[0]));
    EXPECT_TRUE(std::isnan(round_trip<double>(spec, {1e300})[0]));
  }
}

TEST(Natural, NineBitsAndEight) {
  EXPECT_EQ(make("natural")->max_payload_bytes(Shape::vector(1000), DType::kF32, 0), 1125u);
  EXPECT_EQ(make("natural:8")->max_payload_bytes(Shape::vector(1000), DType::kF64, 0), 1000u);
  EXPECT_EQ(make("natural:bits=9")->spec(), "natural");
  EXPECT_EQ(make("natural:8")->spec(), "natural:bits=8");
  expect_refused({"natural:bits=7", "natural:bits=10", "natural:window=8"});
  std::vector<float> x(1);
  const std::vector<std::byte> wire{std::byte{3}, std::byte{127}};  // a sign of no element
  EXPECT_EQ(NaturalKernel{}.decode<float>({}, wire, false, x).code(), Code::kCorruptPayload);
}

}  // namespace
}  // namespace gradwire::natural_test
