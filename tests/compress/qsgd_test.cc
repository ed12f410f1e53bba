#include "compress/qsgd/qsgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compress/little_endian.h"
#include "compress/qsgd/code_packing.h"
#include "compress/qsgd/qsgd_arithmetic.h"
#include "compress/qsgd/qsgd_kernels.h"
#include "tests/reference/qsgd_reference.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::qsgd_test {
namespace {

using testing::CoderRanks;
using testing::make;
using testing::QsgdReference;

QsgdGrid grid_of(int levels, std::size_t bucket, bool l2) {
  return {levels, QsgdReference{levels}.bits(), bucket, l2};
}

template <typename T>
std::vector<std::byte> encoded(const QsgdGrid& grid, const RandomStream& draws, std::uint64_t first,
                               std::span<const T> x) {
  std::vector<std::byte> wire(qsgd_bytes(grid, x.size()) + 1);
  const Status status = cpu::qsgd_encode<T>(grid, draws, first, Corrected<T>(x), nullptr, T{1},
                                            ByteSpan(wire).subspan(1));  // not aligned
  EXPECT_TRUE(status.ok()) << status.message();
  wire.erase(wire.begin());
  return wire;
}

template <typename T>
std::vector<T> decoded(const QsgdGrid& grid, ConstByteSpan wire, std::size_t elems) {
  std::vector<T> x(elems, T{7});
  const Status status = cpu::qsgd_decode<T>(grid, wire, false, x);
  EXPECT_TRUE(status.ok()) << status.message();
  return x;
}

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& grad,
                              std::uint64_t step = 0) {
  const auto compressor = make(spec);
  auto ranks = CoderRanks<float>::open(*compressor,
                                       Shape::vector(static_cast<std::int64_t>(grad.size())), 1);
  const auto outcome = ranks.value().step({grad}, step);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  return outcome.mean[0];
}

TEST(Qsgd, CodesFoldAndSpread) {
  EXPECT_EQ(fold_codes<2>(0x0302010003020100u), 0xe4e4u);
  EXPECT_EQ(fold_codes<3>(0x0706050403020100u), 0xfac688u);
  EXPECT_EQ(fold_codes<8>(0x0123456789abcdefu), 0x0123456789abcdefu);
  EXPECT_EQ(spread_codes<3>(0xfac688u), 0x0706050403020100u);
  EXPECT_EQ(spread_codes<5>(fold_codes<5>(0x1f00110a051e0201u)), 0x1f00110a051e0201u);
  EXPECT_EQ(spread_codes<8>(0x0123456789abcdefu), 0x0123456789abcdefu);
}

// Values on the grid need no dice: the payload can be written by hand.
TEST(Qsgd, HandComputedPayload) {
  const QsgdGrid grid = grid_of(7, 4, false);
  const std::vector<float> x{7.0f, -3.0f, 0.0f, 1.0f, -0.5f};  // buckets of norms 7 and 0.5
  const RandomStream draws(1, RandomUse::kDither, 0, 0, 0, 0);
  const auto wire = encoded<float>(grid, draws, 0, x);
  // 7.0 = 40e00000, 0.5 = 3f000000; codes 7, 8|3, 0, 1, 8|7, then four bits of padding.
  const std::vector<std::uint8_t> wanted{0x00, 0x00, 0xe0, 0x40, 0x00, 0x00,
                                         0x00, 0x3f, 0xb7, 0x10, 0x0f};
  ASSERT_EQ(wire.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(static_cast<std::uint8_t>(wire[i]), wanted[i]) << i;
  }
  const auto y = decoded<float>(grid, wire, 5);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_FLOAT_EQ(y[i], x[i]) << i;
}

template <typename T>
void compare_with_reference() {
  const RandomStream data(5, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<T> x(1500);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(data.normal(i));
  std::fill(x.begin() + 512, x.begin() + 600, T{0});
  for (const int levels : {1, 2, 3, 5, 7, 15, 31, 63, 100, 127}) {
    for (const std::size_t bucket : {1u, 3u, 64u, 512u, 1000u}) {
      for (const bool l2 : {false, true}) {
        for (const std::size_t count : {0u, 1u, 7u, 513u, 1500u}) {
          const QsgdGrid grid = grid_of(levels, bucket, l2);
          const RandomStream draws(1, RandomUse::kDither, 2, 3, 1, 4);
          const auto part = std::span<const T>(x).first(count);
          const auto wire = encoded<T>(grid, draws, 11, part);
          const auto wanted = QsgdReference{levels, bucket, l2}.encode(part, draws, 11);
          ASSERT_EQ(wire.size(), wanted.size());
          ASSERT_TRUE(count == 0 || std::memcmp(wire.data(), wanted.data(), wire.size()) == 0)
              << "levels " << levels << " bucket " << bucket << " l2 " << l2 << " n " << count;
        }
      }
    }
  }
}
TEST(Qsgd, MatchesReferenceForFloats) { compare_with_reference<float>(); }
TEST(Qsgd, MatchesReferenceForDoubles) { compare_with_reference<double>(); }

// 2.3 levels become 3 with probability 0.3, not 0.7.
TEST(Qsgd, RoundsUpWithTheFraction) {
  const int n = 100000;
  std::vector<float> x(n, 2.3f);
  x[0] = 7.0f;
  const QsgdGrid grid = grid_of(7, 1 << 20, false);
  const auto wire = encoded<float>(grid, RandomStream(1, RandomUse::kDither, 0, 0, 0, 0), 0, x);
  const auto y = decoded<float>(grid, wire, x.size());
  int up = 0;
  for (int i = 1; i < n; ++i) {
    const float level = y[static_cast<std::size_t>(i)];
    ASSERT_TRUE(std::abs(level - 2.0f) < 1e-5f || std::abs(level - 3.0f) < 1e-5f) << level;
    up += level > 2.5f ? 1 : 0;
  }
  EXPECT_NEAR(up / static_cast<double>(n), 0.3, 4 * std::sqrt(0.3 * 0.7 / n));
}

// Beside a large element: what is 1/1024 of a level is sent once in 1,024 draws. Draws of eight
// bits alone left it, and everything below 1/512 of a level, at home for good.
TEST(Qsgd, SmallElementsAreSentInTheirShare) {
  const QsgdGrid grid = grid_of(1, 1 << 20, false);
  const std::size_t n = 4096;
  const int steps = 64;
  std::vector<float> x(n, 0x1p-10f);
  for (std::size_t i = 0; i < n; i += 2) x[i] = -0x1p-10f;
  x[n / 2] = 1.0f;
  std::vector<double> doubles(x.begin(), x.end());
  double sent[2][2] = {};  // [fp64][positive]
  for (int step = 0; step < steps; ++step) {
    const RandomStream draws(1, RandomUse::kDither, 7, 0, 0, static_cast<std::uint64_t>(step));
    const auto floats = decoded<float>(grid, encoded<float>(grid, draws, 0, x), n);
    const auto wide = decoded<double>(grid, encoded<double>(grid, draws, 0, doubles), n);
    for (std::size_t i = 0; i < n; ++i) {
      if (i == n / 2) continue;
      if (floats[i] != 0) sent[0][floats[i] > 0 ? 1 : 0] += 1;
      if (wide[i] != 0) sent[1][wide[i] > 0 ? 1 : 0] += 1;
      ASSERT_TRUE(floats[i] == 0 || floats[i] == std::copysign(1.0f, x[i]));
    }
  }
  const double wanted = 2048.0 * steps / 1024;  // 128 of each sign
  for (const auto& counts : sent) {
    for (const double count : counts) EXPECT_NEAR(count, wanted, 5 * std::sqrt(wanted));
  }
}

// Of a level 2^-14, so that the second draw alone decides: sixteen bits of draws in all would send
// it in 4 of 2^16 steps or in none, by where they round.
TEST(Qsgd, TheSecondDrawHasTheRestsProbability) {
  const cpu::QsgdScaling<float> scaling = cpu::scaling_of<float>(1.0f, 1);
  for (const float x : {0x1.8p-14f, -0x1.8p-14f, 0x1p-20f, -0x1p-20f}) {
    int sent = 0;
    const int elements = 1 << 20;
    const RandomStream draws(3, RandomUse::kDither, 1, 0, 0, 0);
    // Each with the one first draw that does not decide: 255 above 0, 0 below.
    for (int e = 0; e < elements; ++e) {
      sent +=
          cpu::qsgd_code(scaling, x, x > 0 ? 255 : 0, draws, static_cast<std::uint64_t>(e), 2) != 0;
    }
    const double wanted = elements * 256.0 * std::abs(x);
    EXPECT_NEAR(sent, wanted, 5 * std::sqrt(wanted)) << x;
  }
}

// What computing a in fp32 rounds must not cost a level, or add one above s.
TEST(Qsgd, GridValuesNeedNoLuckWhateverTheNorm) {
  for (const int levels : {1, 7, 100, 127}) {
    const QsgdGrid grid = grid_of(levels, 512, false);
    for (int norm = 1; norm < 400; ++norm) {
      std::vector<float> x(512);
      const auto largest = static_cast<float>(norm) * 0.37f;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? largest : -largest;
      const RandomStream draws(1, RandomUse::kDither, 0, 0, 0, static_cast<std::uint64_t>(norm));
      const auto wire = encoded<float>(grid, draws, 0, x);
      const auto wanted = decoded<float>(grid, wire, x.size());
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(wanted[i], x[i], 1e-6f * largest);
    }
  }
}

TEST(Qsgd, AllZeroBucket) {
  std::vector<float> x(1024, 0.0f);
  x[600] = -1.0f;
  const auto y = round_trip("qsgd:bits=2,norm=l2", x);
  for (std::size_t i = 0; i < 512; ++i) ASSERT_EQ(y[i], 0.0f);
  EXPECT_EQ(y[600], -1.0f);
  EXPECT_EQ(round_trip("qsgd:bits=8", std::vector<float>(5, -0.0f)), std::vector<float>(5, 0.0f));
}

TEST(Qsgd, PayloadBytesAreBitsNotBytes) {
  // The six tensors of an MLP 784-128-64-10 have 217 buckets; code bits rounded up by tensor.
  const std::vector<std::int64_t> tensors{784 * 128, 128, 128 * 64, 64, 64 * 10, 10};
  const auto total = [&tensors](std::string_view spec) {
    std::size_t bytes = 0;
    for (const std::int64_t n : tensors) {
      bytes += make(spec)->max_payload_bytes(Shape::vector(n), DType::kF32, 0);
    }
    return bytes;
  };
  EXPECT_EQ(total("qsgd:bits=8"), 110254u);
  EXPECT_EQ(total("qsgd:bits=4"), 55561u);
  EXPECT_EQ(total("qsgd:bits=2"), 28215u);             // 28,214.5
  EXPECT_EQ(total("qsgd:levels=15,norm=l2"), 69235u);  // 69,234.25
  EXPECT_EQ(total("qsgd:levels=3,norm=l2"), 41888u);   // 41,887.75
  EXPECT_EQ(total("qsgd:levels=1,norm=l2"), 28215u);   // 28,214.5
}

// No bucket is added when the last one is full, and a vector pays no more than a matrix.
TEST(Qsgd, NoExtraBucketAndNoScalePerRow) {
  const auto bytes = [](const Shape& shape) {
    return make("qsgd:bits=8")->max_payload_bytes(shape, DType::kF32, 0);
  };
  EXPECT_EQ(bytes(Shape::vector(1024)), 1024u + 2 * 4);
  EXPECT_EQ(bytes(Shape::vector(1025)), 1025u + 3 * 4);
  EXPECT_EQ(bytes(Shape::matrix(1024, 1)), bytes(Shape::vector(1024)));
  EXPECT_EQ(bytes({{1, 1024, 1, 1}, 3}), bytes(Shape::vector(1024)));
}

// The last bucket's norm is that of the elements it has, whatever their number (L2 over a padded
// length would differ).
TEST(Qsgd, ShortLastBucketIsNotPadded) {
  std::vector<float> x(513, 1.0f);
  x[512] = 3.0f;
  const QsgdGrid grid = grid_of(1, 512, true);
  const auto wire = encoded<float>(grid, RandomStream(1, RandomUse::kDither, 0, 0, 0, 0), 0,
                                   std::span<const float>(x));
  EXPECT_FLOAT_EQ(load_le<float>(wire.data(), 0), std::sqrt(512.0f));
  EXPECT_EQ(load_le<float>(wire.data(), 1), 3.0f);
}

// Dithers are a function of seed, tensor, rank and step: the same again for the same, others else.
TEST(Qsgd, FixedSeedReproduces) {
  const auto compressor = make("qsgd:bits=2");
  const RandomStream data(3, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(data.normal(i));
  const auto payload = [&](std::uint64_t seed, std::uint64_t tensor, std::uint64_t step) {
    auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(512), 2, seed, tensor);
    return ranks.value().step({x, x}, step).bytes[0];
  };
  const auto once = payload(1, 2, 3);
  EXPECT_EQ(payload(1, 2, 3), once);
  EXPECT_NE(once[0], once[1]);  // ranks draw their own
  EXPECT_NE(payload(9, 2, 3)[0], once[0]);
  EXPECT_NE(payload(1, 9, 3)[0], once[0]);
  EXPECT_NE(payload(1, 2, 9)[0], once[0]);
}

// The classic symmetric code clips +max by one level and drifts downwards.
TEST(Qsgd, LargestElementsAreNotClipped) {
  const std::vector<float> x{1.0f, -1.0f, 1.0f, -1.0f};
  EXPECT_EQ(round_trip("qsgd:bits=4", x), x);
  EXPECT_EQ(round_trip("qsgd:bits=8", x), x);
}

TEST(Qsgd, MeanSignedErrorIsZero) {
  std::vector<float> x(65536);
  const RandomStream data(2, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(data.normal(i));
  const auto y = round_trip("qsgd:bits=4", x);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = static_cast<double>(y[i]) - static_cast<double>(x[i]);
    sum += error;
    squares += error * error;
  }
  EXPECT_NEAR(sum, 0, 4 * std::sqrt(squares));
}

// An offset far above the spread: magnitudes are divided by their own norm, nothing is subtracted.
TEST(Qsgd, OffsetTensors) {
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1e6f + static_cast<float>(i);
  const auto y = round_trip("qsgd:bits=8", x);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1000512.0f / 127);
}

TEST(Qsgd, NonFiniteBucketIsNaNOnEveryRank) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        -std::numeric_limits<float>::infinity()}) {
    for (const char* spec : {"qsgd:bits=4,bucket=2", "qsgd:bits=4,bucket=2,norm=l2"}) {
      const auto compressor = make(spec);
      auto ranks = CoderRanks<float>::open(*compressor, Shape::vector(4), 2);
      const auto outcome = ranks.value().step({{1.0f, bad, 3.0f, 3.0f}, {0, 0, 1.0f, -1.0f}}, 0);
      ASSERT_TRUE(outcome.status.ok());
      for (const auto& mean : outcome.mean) {
        EXPECT_TRUE(std::isnan(mean[0]) && std::isnan(mean[1]));
        EXPECT_TRUE(std::isfinite(mean[2]) && std::isfinite(mean[3]));
      }
    }
  }
}

TEST(Qsgd, ExtremeNormsKeepTheirValues) {
  for (const float scale : {1e-45f, 1e-40f, 1e-20f, 1e20f, 3.4e38f}) {
    const std::vector<float> x{scale, -scale, 0.0f};
    EXPECT_EQ(round_trip("qsgd:bits=8", x), x) << scale;
  }
  const QsgdGrid grid = grid_of(127, 512, false);
  const std::vector<double> large{1e300, 1.0};
  const auto wire = encoded<double>(grid, RandomStream(1, RandomUse::kDither, 0, 0, 0, 0), 0,
                                    std::span<const double>(large));
  EXPECT_TRUE(std::isnan(decoded<double>(grid, wire, 2)[1]));  // no fp32 norm reaches 1e300
}

// Codes depend on where an element stands in its tensor, not on the slice that carries it.
TEST(Qsgd, SlicesDrawByElement) {
  std::vector<float> x(2048);
  const RandomStream data(8, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(data.normal(i));
  auto format = make("qsgd:bits=4")->open_slices(Shape::vector(2048), {.size = 2, .seed = 3});
  const ConstTensorView whole = const_view_of<float>(std::span<const float>(x));
  std::vector<std::byte> together(4 * 4 + 1024);
  std::vector<std::byte> second(2 * 4 + 512);
  const Slice slice{.step = 5, .tensor = 6, .rank = 1};
  ASSERT_TRUE(format.value()->pack(whole, slice, together, {}).has_value());
  Slice later = slice;
  later.first = 1024;
  ASSERT_TRUE(format.value()->pack(whole.slice(1024, 1024), later, second, {}).has_value());
  EXPECT_EQ(std::memcmp(together.data() + 8, second.data(), 8), 0);
  EXPECT_EQ(std::memcmp(together.data() + 16 + 512, second.data() + 8, 512), 0);
}

TEST(Qsgd, RefusesImpossiblePayloads) {
  const QsgdGrid grid = grid_of(5, 512, false);  // levels 6 and 7 do not exist
  std::vector<float> x(3);
  const auto check = [&](std::uint32_t norm, std::uint8_t codes, std::uint8_t tail) {
    std::vector<std::byte> wire(6);
    store_le(wire.data(), norm);
    wire[4] = std::byte{codes};
    wire[5] = std::byte{tail};
    return cpu::qsgd_decode<float>(grid, wire, false, x).code();
  };
  EXPECT_EQ(check(0x3f800000u, 0x55, 0x05), Code::kOk);
  EXPECT_EQ(check(0x7fc00000u, 0x55, 0x05), Code::kOk);              // NaN, as encoders write it
  EXPECT_EQ(check(0x7f800000u, 0x55, 0x05), Code::kCorruptPayload);  // infinity
  EXPECT_EQ(check(0xbf800000u, 0x55, 0x05), Code::kCorruptPayload);  // negative
  EXPECT_EQ(check(0xffc00000u, 0x55, 0x05), Code::kCorruptPayload);  // another NaN
  EXPECT_EQ(check(0x3f800000u, 0x56, 0x05), Code::kCorruptPayload);  // level 6
  EXPECT_EQ(check(0x3f800000u, 0x55, 0x15), Code::kCorruptPayload);  // padding
}

TEST(Qsgd, SpecsAndRanges) {
  EXPECT_EQ(make("qsgd:4")->spec(), "qsgd:bits=4");
  EXPECT_EQ(make("qsgd:levels=15,bucket=512,norm=l2")->spec(), "qsgd:levels=15,norm=l2");
  EXPECT_EQ(make("qsgd:bucket=64,bits=2")->spec(), "qsgd:bits=2,bucket=64");
  for (const char* spec :
       {"qsgd", "qsgd:bits=1", "qsgd:bits=9", "qsgd:bits=4,levels=3", "qsgd:levels=0",
        "qsgd:levels=128", "qsgd:bits=4,bucket=0", "qsgd:bits=4,norm=l1", "qsgd:bits=4,scale=l1"}) {
    const auto made = Registry::builtin().make(spec);
    ASSERT_FALSE(made.has_value()) << spec;
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument) << spec;
  }
}

TEST(Qsgd, BoundsAreTheirClosedForms) {
  EXPECT_DOUBLE_EQ(make("qsgd:levels=1,norm=l2")->bound(Shape::vector(10000)).value,
                   std::sqrt(512.0));
  EXPECT_DOUBLE_EQ(make("qsgd:bits=8,norm=l2")->bound(Shape::vector(100)).value,
                   100.0 / (127.0 * 127.0));
  EXPECT_DOUBLE_EQ(make("qsgd:bits=4")->bound(Shape::vector(10000)).value, std::sqrt(512.0) / 14);
}

}  // namespace
}  // namespace gradwire::qsgd_test
