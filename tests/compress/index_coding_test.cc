#include "compress/sparse/index_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/philox.h"
#include "compress/sparse/bit_stream.h"
#include "tests/support/fails.h"

namespace gradwire::index_coding_test {
namespace {

using ::testing::ElementsAre;
using Bytes = std::vector<std::byte>;
using Indices = std::vector<std::uint32_t>;

constexpr IndexCoding kAll[] = {IndexCoding::kU32, IndexCoding::kBitmap, IndexCoding::kGaps,
                                IndexCoding::kAuto};

Bytes encoded(IndexCoding coding, const Indices& indices, std::size_t n) {
  Bytes bytes(most_index_bytes(coding, indices.size(), n));
  const std::size_t count = encode_indices(coding, indices, n, bytes);
  EXPECT_LE(count, bytes.size());
  bytes.resize(count);
  return bytes;
}

std::vector<int> numbers(const Bytes& bytes) {
  std::vector<int> all;
  for (const std::byte b : bytes) all.push_back(std::to_integer<int>(b));
  return all;
}

Status refusal(IndexCoding coding, const Bytes& bytes, std::size_t k, std::size_t n) {
  Indices indices(k);
  return decode_indices(coding, bytes, n, indices).error();
}

template <typename... Words>
auto corrupt(const Words&... words) {
  return fails(Code::kCorruptPayload, words...);
}

// Every element with the given chance, at least one.
Indices drawn(std::size_t n, double density, std::uint64_t key) {
  const RandomStream stream(5, RandomUse::kTest, key, 0, 0, 0);
  Indices indices;
  for (std::size_t i = 0; i < n; ++i) {
    if (static_cast<double>(stream.uniform(i)) < density) {
      indices.push_back(static_cast<std::uint32_t>(i));
    }
  }
  if (indices.empty()) indices.push_back(static_cast<std::uint32_t>(n - 1));
  return indices;
}

TEST(IndexCoding, ByHand) {
  const Indices indices{1, 4, 7};
  EXPECT_THAT(numbers(encoded(IndexCoding::kU32, indices, 8)),
              ElementsAre(1, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0));
  EXPECT_THAT(numbers(encoded(IndexCoding::kBitmap, indices, 8)), ElementsAre(0x92));
  // Gaps 1, 2, 2 of two bits each: 01, 10, 10 from the low end.
  EXPECT_THAT(numbers(encoded(IndexCoding::kGaps, indices, 8)), ElementsAre(2, 0x29));
  EXPECT_THAT(numbers(encoded(IndexCoding::kAuto, indices, 8)), ElementsAre(1, 0x92));
  // Far apart: 4 bytes each, 125 bytes of bitmap, or 1 + 2 * 10 bits.
  EXPECT_THAT(numbers(encoded(IndexCoding::kAuto, {0, 999}, 1000)),
              ElementsAre(2, 10, 0x00, 0x98, 0x0f));  // gaps 0 and 998
  EXPECT_THAT(numbers(encoded(IndexCoding::kAuto, {70000}, 1000000)),
              ElementsAre(0, 0x70, 0x11, 0x01, 0));  // gaps are as long: 1 byte and 17 bits
}

TEST(IndexCoding, ComesBack) {
  for (const std::size_t n : {1, 7, 64, 1000, 70001}) {
    for (const double density : {0.0, 0.002, 0.03, 0.5, 1.0}) {
      const Indices indices = drawn(n, density, n);
      for (const IndexCoding coding : kAll) {
        Bytes bytes = encoded(coding, indices, n);
        const std::size_t length = bytes.size();
        if (has_fixed_length(coding)) {
          EXPECT_EQ(length, most_index_bytes(coding, indices.size(), n));
        }
        bytes.resize(length + 5, std::byte{0xff});  // what follows is not touched
        Indices back(indices.size());
        const auto read = decode_indices(coding, bytes, n, back);
        ASSERT_TRUE(read.has_value()) << read.error().message();
        EXPECT_EQ(read.value(), length);
        EXPECT_EQ(back, indices) << to_string(coding) << " " << n << " " << density;
      }
    }
  }
}

TEST(IndexCoding, NoElementsNoBytes) {
  for (const IndexCoding coding : kAll) {
    EXPECT_EQ(most_index_bytes(coding, 0, 100), 0u);
    EXPECT_TRUE(encoded(coding, {}, 100).empty());
    EXPECT_EQ(decode_indices(coding, {}, 100, {}).value(), 0u);
  }
}

// The last index of the largest tensor, which no 32-bit float could name.
TEST(IndexCoding, ReachesTwoToTheThirtyTwo) {
  const std::size_t n = std::size_t{1} << 32;
  const Indices indices{16777217, 4294967295u};
  for (const IndexCoding coding : {IndexCoding::kU32, IndexCoding::kGaps, IndexCoding::kAuto}) {
    Indices back(2);
    ASSERT_TRUE(decode_indices(coding, encoded(coding, indices, n), n, back).has_value());
    EXPECT_EQ(back, indices);
  }
}

TEST(IndexCoding, AutoIsTheShortestAndATagLonger) {
  for (const double density : {0.0001, 0.004, 0.02, 0.3, 1.0}) {
    const Indices indices = drawn(40000, density, 9);
    std::size_t shortest = encoded(IndexCoding::kU32, indices, 40000).size();
    for (const IndexCoding coding : {IndexCoding::kBitmap, IndexCoding::kGaps}) {
      shortest = std::min(shortest, encoded(coding, indices, 40000).size());
    }
    EXPECT_EQ(encoded(IndexCoding::kAuto, indices, 40000).size(), 1 + shortest) << density;
  }
}

// One in a hundred: the largest gap is about 100 ln k, ten bits.
TEST(IndexCoding, GapsOfOnePercentTakeTenBits) {
  const Indices indices = drawn(1000000, 0.01, 3);
  const Bytes bytes = encoded(IndexCoding::kGaps, indices, 1000000);
  EXPECT_GE(std::to_integer<int>(bytes[0]), 10);
  EXPECT_LE(std::to_integer<int>(bytes[0]), 11);
}

TEST(IndexCoding, WhatNoEncoderWritesIsCorrupt) {
  const auto bytes = [](std::initializer_list<int> list) {
    Bytes all;
    for (const int b : list) all.push_back(static_cast<std::byte>(b));
    return all;
  };
  EXPECT_THAT(refusal(IndexCoding::kU32, bytes({4, 0, 0, 0, 4, 0, 0, 0}), 2, 9),
              corrupt("index 4", "place 1", "5 to 8"));
  EXPECT_THAT(refusal(IndexCoding::kU32, bytes({9, 0, 0, 0}), 1, 9), corrupt("index 9", "place 0"));
  EXPECT_THAT(refusal(IndexCoding::kU32, bytes({9, 0, 0}), 1, 99), corrupt("3 bytes", "4"));
  EXPECT_THAT(refusal(IndexCoding::kBitmap, bytes({0x03}), 1, 8), corrupt("bitmap", "1"));
  EXPECT_THAT(refusal(IndexCoding::kBitmap, bytes({0x03}), 3, 8), corrupt("bitmap", "2 bits", "3"));
  EXPECT_THAT(refusal(IndexCoding::kBitmap, bytes({0x80}), 1, 7), corrupt("free bits", "bitmap"));
  EXPECT_THAT(refusal(IndexCoding::kBitmap, {}, 1, 7), corrupt("0 bytes"));
  EXPECT_THAT(refusal(IndexCoding::kGaps, bytes({33, 0, 0, 0, 0, 0}), 1, 9),
              corrupt("33 bits", "32"));
  EXPECT_THAT(refusal(IndexCoding::kGaps, bytes({4, 0x44}), 2, 9),
              corrupt("index 9", "place 1", "8"));
  EXPECT_THAT(refusal(IndexCoding::kGaps, bytes({4, 0x10}), 1, 9), corrupt("free bits", "gaps"));
  EXPECT_THAT(refusal(IndexCoding::kGaps, bytes({32, 255, 255, 255, 255, 255, 255, 255, 255}), 2,
                      std::size_t{1} << 32),
              corrupt("index 8589934591"));
  EXPECT_THAT(refusal(IndexCoding::kAuto, bytes({3, 0, 0, 0, 0}), 1, 9), corrupt("tag 3"));
  EXPECT_THAT(refusal(IndexCoding::kAuto, {}, 1, 9), corrupt("0 bytes"));
}

TEST(IndexCoding, TheMostOfUpToManyIsTheLargestOfAll) {
  for (const IndexCoding coding :
       {IndexCoding::kU32, IndexCoding::kBitmap, IndexCoding::kGaps, IndexCoding::kAuto}) {
    for (const std::size_t n : {1, 2, 9, 64, 100, 1000}) {
      std::size_t largest = 0;
      for (std::size_t most = 0; most <= n; ++most) {
        largest = std::max(largest, most_index_bytes(coding, most, n));
        const std::size_t bound = most_index_bytes_up_to(coding, most, n);
        EXPECT_GE(bound, largest) << to_string(coding) << " " << most << " of " << n;
        if (coding != IndexCoding::kAuto) {
          EXPECT_EQ(bound, largest) << to_string(coding) << " " << most << " of " << n;
        }
      }
    }
  }
}

TEST(BitStream, CodesOfEveryWidthComeBack) {
  const RandomStream stream(6, RandomUse::kTest, 0, 0, 0, 0);
  for (int width = 0; width <= 32; ++width) {
    const auto code = [&](std::uint64_t i) {
      return width == 0 ? 0 : stream.word(i) >> (32 - width);
    };
    for (const std::size_t count : {0, 1, 5, 31, 100}) {
      Bytes bytes((count * static_cast<std::size_t>(width) + 7) / 8);
      BitWriter writer{ByteSpan(bytes)};
      for (std::size_t i = 0; i < count; ++i) writer.put(code(i), width);
      ASSERT_EQ(writer.finish(), bytes.size());
      BitReader reader{ConstByteSpan(bytes)};
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(reader.get(width), code(i)) << width;
      EXPECT_TRUE(reader.rest_is_clear());
    }
  }
}

}  // namespace
}  // namespace gradwire::index_coding_test
