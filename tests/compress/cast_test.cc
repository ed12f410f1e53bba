#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::cast_test {
namespace {

using testing::CoderRanks;
using testing::make;

std::vector<float> mean_of(std::string_view spec, const std::vector<std::vector<float>>& grads) {
  const auto compressor = make(spec);
  auto ranks = CoderRanks<float>::open(*compressor,
                                       Shape::vector(static_cast<std::int64_t>(grads[0].size())),
                                       static_cast<int>(grads.size()));
  const auto outcome = ranks.value().step(grads, 0);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  return outcome.mean[0];
}

// 60,000 on four ranks sums to 240,000, which no fp16 holds: gradients are divided before the cast.
TEST(Cast, LargeValues) {
  const std::vector<float> grad{60000.0f, -60000.0f, 65504.0f};
  EXPECT_EQ(mean_of("cast:fp16", {grad, grad, grad, grad}), grad);
}

// The neighbour of a large offset keeps bf16's relative precision (scaling before subtracting an
// offset loses it): 1024 + 8 is representable, 1024 + 3 rounds to 1024 + 0 or + 8.
TEST(Cast, OffsetTensors) {
  EXPECT_EQ(mean_of("cast:bf16", {{1032.0f, 1027.0f, 1029.0f}}),
            (std::vector<float>{1032.0f, 1024.0f, 1032.0f}));
}

TEST(Cast, TooLargeBecomesInfinityOnEveryRank) {
  const auto compressor = make("cast:fp16");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(2), 2);
  const auto outcome = ranks.value().step({{1e6f, 1.0f}, {0.0f, -1.0f}}, 0);
  for (const auto& mean : outcome.mean) {
    EXPECT_EQ(mean[0], std::numeric_limits<float>::infinity());
    EXPECT_EQ(mean[1], 0.0f);
  }
}

TEST(Cast, PayloadBytesAreBitsNotBytes) {
  for (const char* spec : {"cast:fp16", "cast:bf16"}) {
    EXPECT_EQ(make(spec)->max_payload_bytes(Shape::vector(109386), DType::kF32, 0), 218772u);
    EXPECT_EQ(make(spec)->max_payload_bytes(Shape::vector(109386), DType::kF64, 0), 218772u);
  }
}

TEST(Cast, EncodesKnownHalves) {
  // 1/2 of each value travels on two ranks: fp16(0.5) = 3800, fp16(-1) = bc00.
  const auto compressor = make("cast:fp16");
  auto ranks = CoderRanks<double>::open(*compressor, Shape::vector(2), 2);
  const auto outcome = ranks.value().step({{1.0, -2.0}, {3.0, 5.0}}, 0);
  const std::vector<std::byte> wanted{std::byte{0x00}, std::byte{0x38}, std::byte{0x00},
                                      std::byte{0xbc}};
  EXPECT_EQ(outcome.bytes[0][0], wanted);
  EXPECT_EQ(outcome.own[0], (std::vector<double>{1.0, -2.0}));
  EXPECT_EQ(outcome.mean[1], (std::vector<double>{2.0, 1.5}));
}

// Stage 1 carries sums over ranks: four times 60,000 must come back.
TEST(Cast, SecondStageKeepsSumsInRange) {
  auto format = make("cast:fp16")->open_slices(Shape::vector(2), {.size = 4});
  std::vector<float> sum{240000.0f, -8.0f};
  std::vector<std::byte> wire(4);
  const Slice slice{.stage = 1};
  const auto packed =
      format.value()->pack(const_view_of<float>(std::span<const float>(sum)), slice, wire, {});
  ASSERT_TRUE(packed.has_value());
  std::vector<float> decoded(2);
  ASSERT_TRUE(format.value()->unpack(wire, slice, view_of(std::span<float>(decoded)), {}).ok());
  EXPECT_EQ(decoded, sum);
}

TEST(Cast, NeedsItsType) {
  for (const char* spec : {"cast", "cast:fp8", "cast:type=bf16,bits=3"}) {
    const auto made = Registry::builtin().make(spec);
    ASSERT_FALSE(made.has_value()) << spec;
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(make("cast:bf16")->spec(), "cast:type=bf16");
}

TEST(None, TheMeanIsTheMean) {
  EXPECT_EQ(mean_of("none", {{1.0f, 2.0f}, {3.0f, -4.0f}}), (std::vector<float>{2.0f, -1.0f}));
}

}  // namespace
}  // namespace gradwire::cast_test
