// Specs of two stages: what the registry lets pass, and what the whole then claims and does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "compress/error_feedback/legality.h"
#include "gradwire/registry.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::composition_test {
namespace {

using testing::make;
using Kind = ErrorBound::Kind;

Status refusal(std::string_view spec) { return Registry::builtin().make(spec).error(); }

TEST(Composition, RefusalsSayWhyAndWhatToWrite) {
  constexpr Code kInvalid = Code::kInvalidArgument;
  EXPECT_THAT(refusal("qsgd:bits=4|cast:bf16"), fails(kInvalid, "qsgd", "cast", "topk"));
  EXPECT_THAT(refusal("topk:k=3|topk:k=2"), fails(kInvalid, "topk", "element", "cast", "qsgd"));
  EXPECT_THAT(refusal("topk:k=3|powersgd:rank=2"),
              fails(kInvalid, "powersgd", "element", "cast", "qsgd"));
  EXPECT_THAT(refusal("topk:k=3|signsgd:vote=majority"),
              fails(kInvalid, "signsgd", "votes", "cast", "qsgd"));
  EXPECT_THAT(refusal("topk:k=3|cast:bf16|cast:bf16"), fails(Code::kUnsupported, "3 stages"));
  EXPECT_THAT(refusal("topk:k=3|colour"), fails(kInvalid, "unknown method 'colour'"));
  EXPECT_THAT(refusal("topk:k=3|qsgd:bits=4,colour=7"),
              fails(kInvalid, "'qsgd'", "unknown key 'colour'"));
  EXPECT_THAT(refusal("topk:k=3|qsgd"), fails(kInvalid, "'qsgd'", "'bits'", "'levels'"));
}

TEST(Composition, SpecsAreCanonical) {
  EXPECT_EQ(make("topk:k=3 | cast:bf16")->spec(), "topk:k=3|cast:type=bf16");
  EXPECT_EQ(make("topk:ratio=0.5,index=gaps|qsgd:4")->spec(),
            "topk:ratio=0.5,index=gaps|qsgd:bits=4");
  EXPECT_EQ(make("topk:ratio=0.5,index=u32")->spec(), "topk:ratio=0.5");
}

TEST(Composition, BytesAreIndicesAndPackedValues) {
  const Shape shape = Shape::vector(100'000);  // k = 1000: two norms of 512
  const auto bytes = [&shape](std::string_view spec) {
    return make(spec)->max_payload_bytes(shape, DType::kF32, 0);
  };
  EXPECT_EQ(bytes("topk:ratio=0.01"), 8000u);
  EXPECT_EQ(bytes("topk:ratio=0.01|cast:bf16"), 4000u + 2000u);
  EXPECT_EQ(bytes("topk:ratio=0.01|qsgd:bits=4"), 4000u + 8u + 500u);
  EXPECT_EQ(bytes("topk:ratio=0.01,index=bitmap|qsgd:bits=4"), 12500u + 8u + 500u);
  EXPECT_FALSE(make("topk:ratio=0.01,index=gaps")->traits().fixed_payload);
}

TEST(Composition, BoundsMultiply) {
  const Shape shape = Shape::vector(1000);
  const ErrorBound cast = make("topk:k=100|cast:bf16")->bound(shape);
  EXPECT_EQ(cast.kind, Kind::kContraction);
  EXPECT_NEAR(cast.value, 0.1 * (1 - 0x1p-16), 1e-12);
  EXPECT_EQ(cast.scale, 1);
  // omega = sqrt(100) / (2 * 127) = 0.039
  const ErrorBound fine = make("topk:k=100|qsgd:bits=8")->bound(shape);
  EXPECT_NEAR(fine.value, 0.1 * (1 - 10.0 / 254), 1e-12);
  EXPECT_EQ(fine.scale, 1);
  // omega = sqrt(100) / 2 = 5
  const ErrorBound coarse = make("topk:k=100|qsgd:levels=1")->bound(shape);
  EXPECT_NEAR(coarse.value, 0.1 / 6, 1e-12);
  EXPECT_NEAR(coarse.scale, 1.0 / 6, 1e-12);
  EXPECT_EQ(make("topk:k=100|none")->bound(shape).value, 0.1);
}

TEST(Composition, ErrorFeedbackScalesACoarseSecondStage) {
  const auto coarse = make("topk:k=100|qsgd:levels=1");
  const Shape shape = Shape::vector(1000);
  const auto scaled = check_pair(*coarse, shape, {.error_feedback = true});
  ASSERT_TRUE(scaled.has_value());
  EXPECT_NEAR(scaled.value().scale, 1.0 / 6, 1e-12);
  const auto refused = check_pair(*coarse, shape, {.error_feedback = true, .ef_scale_auto = false});
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error(), fails(Code::kInvalidArgument, "ef_scale=auto"));
}

// Chosen values are rounded, the others stay 0; ranks whose choices overlap add up.
TEST(Composition, DecodesByHand) {
  const auto method = make("topk:k=2,index=auto|cast:bf16");
  auto ranks = testing::CoderRanks<float>::open(*method, Shape::vector(4), 2);
  const auto outcome = ranks.value().step({{1, 1.00390625F, 8, 0}, {0, 0, 2, -4}}, 0);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  EXPECT_EQ(outcome.own[0], (std::vector<float>{0, 1, 8, 0}));  // to nearest even
  EXPECT_EQ(outcome.mean[0], (std::vector<float>{0, 0.5F, 5, -2}));
}

}  // namespace
}  // namespace gradwire::composition_test
