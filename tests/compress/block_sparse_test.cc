#include "compress/block_sparse/block_sparse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"
#include "base/text.h"
#include "compress/little_endian.h"
#include "tests/reference/sparse_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::block_sparse_test {
namespace {

using testing::CoderRanks;
using testing::make;
using testing::step_of;

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

TEST(BlockSparse, HandComputed) {
  const auto outcome = step_of<float>("block_sparse:block=2", {{0, 0, 1, 0, 5}, {0, 0, 3, 4, 0}});
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
  // Blocks 1 and 2, of two elements and one.
  EXPECT_EQ(outcome.bytes[0][0].size(), 4u + 2 * 4 + 3 * 4);
  EXPECT_EQ(outcome.bytes[0][1].size(), 4u + 1 * 4 + 2 * 4);
  EXPECT_EQ(outcome.mean[0], (std::vector<float>{0, 0, 2, 2, 2.5F}));
}

TEST(BlockSparse, ZerosCostNothingAndAreTheSameEverywhere) {
  const auto outcome = step_of<double>("block_sparse", {std::vector<double>(70'000)});
  EXPECT_EQ(outcome.bytes[0][0].size(), 4u);
  EXPECT_EQ(outcome.own[0], (std::vector<double>(70'000)));
}

// -0 has a bit set, so that it comes back.
TEST(BlockSparse, EveryBitComesBack) {
  std::vector<float> x(1000);
  x[300] = -0.0F;
  x[600] = std::nanf("");
  x[999] = std::numeric_limits<float>::denorm_min();
  for (const char* spec :
       {"block_sparse", "block_sparse:block=7", "block_sparse:block=1", "block_sparse:block=4096",
        "block_sparse:index=bitmap", "block_sparse:block=64,index=auto"}) {
    const auto outcome = step_of<float>(spec, {x});
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_TRUE(same_bits(outcome.own[0], x)) << spec;
    EXPECT_TRUE(same_bits(outcome.mean[0], x)) << spec;
  }
  EXPECT_EQ(step_of<float>("block_sparse", {x}).bytes[0][0].size(),
            4u + 3 * 4 + (256 * 2 + 232) * 4);
  EXPECT_EQ(step_of<float>("block_sparse:block=1", {x}).bytes[0][0].size(), 4u + 3 * 8);
}

template <typename T>
void compare_with_reference() {
  constexpr std::size_t kElems = 20'011;
  for (const std::size_t block : {1, 3, 64, 256, 1000, 30'000}) {
    for (const std::uint32_t share : {1, 30, 100'000}) {  // one element of so many is not zero
      const RandomStream stream(5, RandomUse::kTest, share, 0, 0, 0);
      std::vector<std::vector<T>> x(3, std::vector<T>(kElems));
      for (std::size_t r = 0; r < 3; ++r) {
        for (std::size_t i = 0; i < kElems; ++i) {
          if (stream.word(4 * (i + r * kElems)) % share == 0) {
            x[r][i] = static_cast<T>(stream.normal(i + r * kElems));
          }
        }
      }
      const auto outcome = step_of<T>(format("block_sparse:block=%zu", block), x);
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.message();
      for (std::size_t r = 0; r < 3; ++r) {
        const auto wanted = testing::block_sparse_reference<T>(x[r], block);
        std::vector<std::uint32_t> numbers;
        for (std::size_t j = 0; j < load_le<std::uint32_t>(outcome.bytes[0][r].data()); ++j) {
          numbers.push_back(load_le<std::uint32_t>(outcome.bytes[0][r].data() + 4, j));
        }
        EXPECT_EQ(numbers, wanted) << block << " " << share;
        EXPECT_TRUE(same_bits(outcome.own[r], x[r])) << block << " " << share;
      }
      for (std::size_t i = 0; i < kElems; ++i) {
        EXPECT_NEAR(outcome.mean[2][i], (x[0][i] + x[1][i] + x[2][i]) / 3, 1e-6) << i;
      }
    }
  }
}
TEST(BlockSparse, MatchesTheReferenceForFloats) { compare_with_reference<float>(); }
TEST(BlockSparse, MatchesTheReferenceForDoubles) { compare_with_reference<double>(); }

TEST(BlockSparse, ASecondStageCodesTheBlocks) {
  std::vector<float> x(10);
  x[5] = 7;
  x[6] = 3;
  const auto outcome = step_of<float>("block_sparse:block=4|cast:bf16", {x});
  EXPECT_EQ(outcome.bytes[0][0].size(), 4u + 4u + 4 * 2);
  EXPECT_EQ(outcome.own[0], x);
  EXPECT_FALSE(make("block_sparse|qsgd:bits=4")->traits().lossless);
  EXPECT_TRUE(make("block_sparse|qsgd:bits=4")->traits().unbiased);
  EXPECT_TRUE(make("block_sparse")->traits().lossless);
}

TEST(BlockSparse, RefusesBlocksThatAreNotThere) {
  const auto method = make("block_sparse:block=2");
  auto coder = std::move(method->open(Shape::vector(5), {})).value();
  const std::vector<float> x{1, 2, 3, 4, 5};
  ASSERT_TRUE(coder->begin(const_view_of(std::span(x)), 0, {}).ok());
  std::vector<std::byte> payload(100);
  ASSERT_EQ(coder->encode(0, payload, {}).value(), 4u + 12u + 20u);
  const auto refusal = [&](std::uint32_t count, std::uint32_t last, std::size_t bytes) {
    store_le(payload.data(), count);
    store_le(payload.data() + 4, last, 2);
    const ConstByteSpan one = ConstByteSpan(payload).first(bytes);
    return coder->absorb(0, std::span(&one, 1), {});
  };
  constexpr Code kCorrupt = Code::kCorruptPayload;
  EXPECT_TRUE(refusal(3, 2, 36).ok());
  EXPECT_THAT(refusal(4, 2, 36), fails(kCorrupt, "rank 0", "4 blocks", "3"));
  EXPECT_THAT(refusal(0xffffffffu, 2, 36), fails(kCorrupt, "4294967295 blocks"));
  EXPECT_THAT(refusal(3, 3, 36), fails(kCorrupt, "index 3", "place 2"));
  EXPECT_THAT(refusal(3, 2, 35), fails(kCorrupt, "19 bytes", "20"));
  EXPECT_THAT(refusal(3, 2, 3), fails(kCorrupt, "3 bytes", "4"));
}

TEST(BlockSparse, SpecsAreCanonical) {
  EXPECT_EQ(make("block_sparse:256")->spec(), "block_sparse");
  EXPECT_EQ(make("block_sparse:index=gaps")->spec(), "block_sparse:block=256,index=gaps");
  EXPECT_EQ(make("block_sparse:64|qsgd:4")->spec(), "block_sparse:block=64|qsgd:bits=4");
  EXPECT_EQ(make("block_sparse|cast:bf16")->spec(), "block_sparse|cast:type=bf16");
  EXPECT_FALSE(Registry::builtin().make("block_sparse:block=0").has_value());
}

}  // namespace
}  // namespace gradwire::block_sparse_test
