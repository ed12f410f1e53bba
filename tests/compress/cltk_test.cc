#include "compress/cltk/cltk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/philox.h"
#include "compress/little_endian.h"
#include "tests/reference/topk_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::cltk_test {
namespace {

using testing::CoderRanks;
using testing::make;

TEST(Cltk, TheLeaderChoosesForAllInTurn) {
  const auto method = make("cltk:k=2");
  auto ranks = CoderRanks<float>::open(*method, Shape::vector(4), 2);
  const std::vector<std::vector<float>> x{{5, 1, -6, 2}, {1, 8, 3, 9}};
  const auto zero = ranks.value().step(x, 0);  // rank 0 leads
  ASSERT_TRUE(zero.status.ok()) << zero.status.message();
  EXPECT_EQ(zero.own[1], (std::vector<float>{1, 0, 3, 0}));
  EXPECT_EQ(zero.mean[0], (std::vector<float>{3, 0, -1.5F, 0}));
  EXPECT_EQ(zero.bytes[0][0].size(), 8u);  // two indices from the leader,
  EXPECT_EQ(zero.bytes[0][1].size(), 0u);  // none from the other
  EXPECT_EQ(zero.bytes[1][1].size(), 8u);
  const auto one = ranks.value().step(x, 1);  // rank 1 leads
  EXPECT_EQ(one.own[0], (std::vector<float>{0, 1, 0, 2}));
  EXPECT_EQ(one.bytes[0][0].size(), 0u);
  EXPECT_EQ(one.mean[1], (std::vector<float>{0, 4.5F, 0, 5.5F}));
  EXPECT_EQ(ranks.value().step(x, 2).mean[0], zero.mean[0]);
}

TEST(Cltk, MatchesTheReferenceOnEveryRank) {
  constexpr std::size_t kElems = 3000;
  for (const char* spec : {"cltk:ratio=0.02", "cltk:ratio=0.02,index=gaps",
                           "cltk:k=60,index=bitmap", "cltk:k=60,index=auto"}) {
    const auto method = make(spec);
    auto ranks = CoderRanks<double>::open(*method, Shape::vector(kElems), 3);
    for (std::uint64_t step = 0; step < 4; ++step) {
      std::vector<std::vector<double>> x(3, std::vector<double>(kElems));
      for (std::uint64_t r = 0; r < 3; ++r) {
        const RandomStream stream(2, RandomUse::kTest, 3 * step + r, 0, 0, 0);
        for (std::size_t i = 0; i < kElems; ++i) x[r][i] = stream.normal(i);
      }
      const auto outcome = ranks.value().step(x, step);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      const auto places = testing::topk_reference<double>(x[step % 3], 60);
      for (std::size_t r = 0; r < 3; ++r) {
        std::vector<double> wanted(kElems);
        for (const std::size_t i : places) wanted[i] = x[r][i];
        EXPECT_EQ(outcome.own[r], wanted) << spec << " step " << step << " rank " << r;
      }
    }
  }
}

TEST(Cltk, ValuesAddUpUnlessTheyAreCoded) {
  const auto plain = make("cltk:k=50");
  EXPECT_EQ(plain->traits().exchange, Exchange::kAllReduceSum);
  EXPECT_FALSE(plain->round_kind(0, DType::kF64, 3).reduces());
  EXPECT_EQ(plain->round_kind(1, DType::kF64, 3).payload, DType::kF64);
  const auto coded = make("cltk:k=50|qsgd:bits=4");
  EXPECT_EQ(coded->traits().exchange, Exchange::kAllGather);
  EXPECT_EQ(coded->max_payload_bytes(Shape::vector(1000), DType::kF32, 0), 200u);
  EXPECT_EQ(coded->max_payload_bytes(Shape::vector(1000), DType::kF32, 1), 4u + 25u);
}

TEST(Cltk, OnlyTheLeaderIsHeard) {
  const auto method = make("cltk:k=2");
  auto coder = std::move(method->open(Shape::vector(9), {.rank = 0, .size = 2})).value();
  const std::vector<float> x(9, 1.0F);
  ASSERT_TRUE(coder->begin(const_view_of(std::span(x)), 1, {}).ok());  // rank 1 leads
  std::vector<std::byte> payload(100);
  EXPECT_EQ(coder->encode(0, payload, {}).value(), 0u);
  EXPECT_THAT(coder->encode(1, payload, {}).error(), fails(Code::kInvalidArgument, "absorb(0)"));
  const auto refusal = [&](std::size_t mine, std::size_t leaders, std::uint32_t second) {
    std::vector<std::byte> bytes(16);
    store_le<std::uint32_t>(bytes.data(), 3);
    store_le<std::uint32_t>(bytes.data(), second, 1);
    const std::vector<ConstByteSpan> both{ConstByteSpan(bytes).first(mine),
                                          ConstByteSpan(bytes).first(leaders)};
    return coder->absorb(0, both, {});
  };
  constexpr Code kCorrupt = Code::kCorruptPayload;
  EXPECT_TRUE(refusal(0, 8, 4).ok());
  EXPECT_THAT(refusal(8, 8, 4), fails(kCorrupt, "rank 0", "rank 1"));
  EXPECT_THAT(refusal(0, 0, 4), fails(kCorrupt, "rank 1", "0 bytes"));
  EXPECT_THAT(refusal(0, 12, 4), fails(kCorrupt, "rank 1", "12 bytes"));
  EXPECT_THAT(refusal(0, 8, 3), fails(kCorrupt, "rank 1", "index 3", "place 1"));
  EXPECT_THAT(refusal(0, 8, 9), fails(kCorrupt, "rank 1", "index 9", "place 1"));
}

TEST(Cltk, ElementsThatAreNotSentMustBeFiniteToo) {
  const auto method = make("cltk:k=1");
  for (const std::size_t rank : {0, 1}) {
    auto ranks = CoderRanks<float>::open(*method, Shape::vector(5), 2);
    std::vector<std::vector<float>> x(2, std::vector<float>{1, 2, 3, 4, 5});
    x[rank][1] = std::numeric_limits<float>::quiet_NaN();
    const auto outcome = ranks.value().step(x, 0);
    EXPECT_THAT(outcome.status, fails(Code::kInvalidArgument, "cltk", "element 1", "(5)", "nan"));
  }
}

TEST(Cltk, SpecsAreCanonical) {
  EXPECT_EQ(make("cltk:ratio=0.010,index=u32")->spec(), "cltk:ratio=0.01");
  EXPECT_EQ(make("cltk:k=5,index=auto|cast:bf16")->spec(), "cltk:k=5,index=auto|cast:type=bf16");
  EXPECT_FALSE(Registry::builtin().make("cltk").has_value());
}

}  // namespace
}  // namespace gradwire::cltk_test
