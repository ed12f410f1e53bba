#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace gradwire::philox_test {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers of Random123's kat_vectors for philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryPartOfTheKeyMatters) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed : {0, 1}) {
    for (std::uint64_t tensor : {0, 1}) {
      for (int rank : {kSharedRank, 0, 1}) {
        for (int stage : {0, 1}) {
          keys.insert(RandomStream(seed, RandomUse::kDither, tensor, rank, stage, 0).key());
          keys.insert(RandomStream(seed, RandomUse::kInit, tensor, rank, stage, 0).key());
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), 2u * 2 * 3 * 2 * 2);
  const RandomStream now(1, RandomUse::kDither, 2, 3, 0, 4);
  const RandomStream later(1, RandomUse::kDither, 2, 3, 0, 5);
  EXPECT_NE(now.word(0), later.word(0));
}

TEST(Philox, ManyWordsAreTheSingleWords) {
  const RandomStream draws(9, RandomUse::kDither, 2, 3, 1, 0x123456789abcull);
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{64}, (std::uint64_t{1} << 34) - 70}) {
    for (const std::size_t count : {0u, 1u, 5u, 63u, 64u, 65u, 200u}) {
      std::vector<std::uint32_t> many(count);
      draws.words(first, many);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(many[i], draws.word(first + i)) << i;
    }
  }
}

TEST(Philox, UniformAndNormalHaveTheirMoments) {
  const RandomStream draws(7, RandomUse::kTest, 0, 0, 0, 0);
  constexpr int kCount = 100000;
  double sum = 0;
  double square = 0;
  double normal_sum = 0;
  double normal_square = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = draws.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    square += u * u;
    const double z = draws.normal(static_cast<std::uint64_t>(i));
    normal_sum += z;
    normal_square += z * z;
  }
  // Four standard errors each.
  EXPECT_NEAR(sum / kCount, 0.5, 4 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(square / kCount, 1.0 / 3, 4 * std::sqrt(4.0 / 45 / kCount));
  EXPECT_NEAR(normal_sum / kCount, 0.0, 4 / std::sqrt(kCount));
  EXPECT_NEAR(normal_square / kCount, 1.0, 4 * std::sqrt(2.0 / kCount));
}

}  // namespace
}  // namespace gradwire::philox_test
