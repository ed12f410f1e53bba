#include "compress/topk/topk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/philox.h"
#include "compress/little_endian.h"
#include "compress/topk/topk_kernels.h"
#include "tests/reference/topk_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::topk_test {
namespace {

using testing::CoderRanks;
using testing::make;

template <typename T>
std::vector<std::size_t> selected(std::span<const T> x, std::size_t k) {
  TopkScratch<T> scratch;
  std::vector<std::byte> payload(k * (kTopkIndexBytes + sizeof(T)) + 1);
  // One byte off: payloads need not be aligned.
  cpu::topk_encode<T>(Corrected<T>(x), nullptr, T{1}, k, scratch, ByteSpan(payload).subspan(1));
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < k; ++i) {
    indices.push_back(load_le<std::uint32_t>(payload.data() + 1, i));
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    EXPECT_EQ(load_le<Bits>(payload.data() + 1 + k * kTopkIndexBytes, i),
              std::bit_cast<Bits>(x[indices.back()]));
  }
  return indices;
}

TEST(Topk, HandComputed) {
  const std::vector<float> x{1.0f, -5.0f, 3.0f, 0.0f, 5.0f, -2.0f};
  EXPECT_EQ(selected<float>(x, 1), (std::vector<std::size_t>{1}));
  EXPECT_EQ(selected<float>(x, 3), (std::vector<std::size_t>{1, 2, 4}));
  EXPECT_EQ(selected<float>(x, 6), (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Topk, TiesGoToTheLowestIndex) {
  const std::vector<double> x{2.0, -2.0, 2.0, 1.0, -2.0};
  EXPECT_EQ(selected<double>(x, 2), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(selected<double>(x, 3), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(Topk, AllNegativeTensorComparesMagnitudes) {
  const std::vector<float> x{-1.0f, -4.0f, -2.0f, -3.0f};
  EXPECT_EQ(selected<float>(x, 2), (std::vector<std::size_t>{1, 3}));
}

TEST(Topk, ZerosFillUpToKInOrder) {
  std::vector<float> x(5000, 0.0f);
  x[4000] = 1.0f;
  EXPECT_EQ(selected<float>(x, 4), (std::vector<std::size_t>{0, 1, 2, 4000}));
  x[4000] = 0.0f;
  EXPECT_EQ(selected<float>(x, 2), (std::vector<std::size_t>{0, 1}));
}

TEST(Topk, NaNIsLargestAndShowsInTheMeanOfEveryRank) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(selected<float>(std::vector<float>{1e30f, nan, -inf, 2.0f}, 2),
            (std::vector<std::size_t>{1, 2}));
  const auto compressor = make("topk:k=1");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(3), 2);
  const auto outcome = ranks.value().step({{1.0f, nan, 3.0f}, {1.0f, 2.0f, 4.0f}}, 0);
  for (const auto& mean : outcome.mean) {
    EXPECT_TRUE(std::isnan(mean[1]));
    EXPECT_EQ(mean[0], 0.0f);
    EXPECT_EQ(mean[2], 2.0f);
  }
}

// Light tails, heavy tails, many ties, mostly zeros, a layered tensor, an adversarial order.
template <typename T>
std::vector<std::function<T(const RandomStream&, std::uint64_t)>> shapes_of_data() {
  return {
      [](const RandomStream& s, std::uint64_t i) { return static_cast<T>(s.normal(i)); },
      [](const RandomStream& s, std::uint64_t i) {
        return static_cast<T>(std::exp(3 * s.normal(i)) * (i % 2 == 0 ? 1 : -1));
      },
      [](const RandomStream& s, std::uint64_t i) { return static_cast<T>(s.word(i) % 3); },
      [](const RandomStream& s, std::uint64_t i) {
        return s.word(i) % 100 == 0 ? static_cast<T>(s.normal(i)) : T{0};
      },
      [](const RandomStream& s, std::uint64_t i) {
        return static_cast<T>(s.normal(i) * (i < 1000 ? 1e4 : 1e-4));
      },
      [](const RandomStream&, std::uint64_t i) { return static_cast<T>(i); },
  };
}

template <typename T>
void compare_with_sorting() {
  for (std::size_t kind = 0; kind < shapes_of_data<T>().size(); ++kind) {
    const auto value = shapes_of_data<T>()[kind];
    const RandomStream stream(3, RandomUse::kTest, kind, 0, 0, 0);
    std::vector<T> x(40000 + 37);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = value(stream, i);
    for (const std::size_t k : {std::size_t{1}, std::size_t{41}, std::size_t{401},
                                std::size_t{4004}, std::size_t{30000}, x.size()}) {
      EXPECT_EQ(selected<T>(x, k), testing::topk_reference<T>(x, k))
          << "data " << kind << " k " << k;
    }
  }
}
TEST(Topk, MatchesSortingForFloats) { compare_with_sorting<float>(); }
TEST(Topk, MatchesSortingForDoubles) { compare_with_sorting<double>(); }

// Indices held in a float would be rounded above 2^24.
TEST(Topk, IndicesBeyond2To24) {
  const std::size_t n = (std::size_t{1} << 24) + 1000;
  std::vector<float> x(n, 1e-3f);
  const std::vector<std::size_t> large{
      0, 65535, 65537, (std::size_t{1} << 24) + 1, (std::size_t{1} << 24) + 3, n - 1};
  for (const std::size_t i : large) x[i] = -2.0f;
  EXPECT_EQ(selected<float>(x, large.size()), large);
  const auto compressor = make("topk:k=6");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(static_cast<std::int64_t>(n)), 1);
  const auto outcome = ranks.value().step({x}, 0);
  ASSERT_TRUE(outcome.status.ok());
  for (const std::size_t i : large) EXPECT_EQ(outcome.mean[0][i], -2.0f) << i;
  EXPECT_EQ(std::count(outcome.mean[0].begin(), outcome.mean[0].end(), 0.0f),
            static_cast<std::ptrdiff_t>(n - large.size()));
}

TEST(Topk, PayloadBytesAreBitsNotBytes) {
  // The six tensors of an MLP 784-128-64-10: 1,097 and 114 pairs of eight bytes.
  const std::vector<std::int64_t> tensors{784 * 128, 128, 128 * 64, 64, 64 * 10, 10};
  std::size_t one_percent = 0;
  std::size_t one_permille = 0;
  for (const std::int64_t n : tensors) {
    one_percent += make("topk:ratio=0.01")->max_payload_bytes(Shape::vector(n), DType::kF32, 0);
    one_permille += make("topk:ratio=0.001")->max_payload_bytes(Shape::vector(n), DType::kF32, 0);
  }
  EXPECT_EQ(one_percent, 8776u);
  EXPECT_EQ(one_permille, 912u);
  EXPECT_EQ(make("topk:k=50")->max_payload_bytes(Shape::vector(10), DType::kF64, 0), 120u);
}

TEST(Topk, RefusesBadIndices) {
  std::vector<std::byte> payload(16);
  const auto check = [&payload](std::uint32_t a, std::uint32_t b) {
    store_le<std::uint32_t>(payload.data(), a, 0);
    store_le<std::uint32_t>(payload.data(), b, 1);
    return cpu::topk_check_indices(payload, 2, 10);
  };
  EXPECT_TRUE(check(0, 9).ok());
  EXPECT_EQ(check(3, 3).code(), Code::kCorruptPayload);
  EXPECT_EQ(check(4, 3).code(), Code::kCorruptPayload);
  EXPECT_THAT(check(4, 10), fails(Code::kCorruptPayload, "index 10", "place 1", "5 to 9"));
  EXPECT_EQ(check(0xffffffffu, 0).code(), Code::kCorruptPayload);
}

// 0.07 * 100 is 7.000000000000001 in binary; seven elements are meant.
TEST(Topk, CountIsNotRaisedByBinaryRounding) {
  EXPECT_EQ(make("topk:ratio=0.07")->max_payload_bytes(Shape::vector(100), DType::kF32, 0), 7u * 8);
  EXPECT_EQ(make("topk:ratio=0.07")->max_payload_bytes(Shape::vector(101), DType::kF32, 0), 8u * 8);
}

TEST(Topk, TakesRatioOrK) {
  for (const char* spec : {"topk", "topk:ratio=0.1,k=3", "topk:ratio=0", "topk:ratio=1.5",
                           "topk:k=0", "topk:k=3,index=zip", "topk:0.01"}) {
    const auto made = Registry::builtin().make(spec);
    ASSERT_FALSE(made.has_value()) << spec;
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument) << spec;
  }
  EXPECT_EQ(make("topk:index=u32,ratio=0.010")->spec(), "topk:ratio=0.01");
  EXPECT_EQ(make("topk:k=64")->spec(), "topk:k=64");
}

}  // namespace
}  // namespace gradwire::topk_test
