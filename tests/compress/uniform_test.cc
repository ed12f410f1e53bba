// minmax and absmax: their kernels against the reference, and the mistakes that others made.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compress/little_endian.h"
#include "compress/uniform/uniform_grid.h"
#include "gradwire/registry.h"
#include "tests/reference/uniform_reference.h"
#include "tests/support/coder_ranks.h"

namespace gradwire::uniform_test {
namespace {

using testing::CoderRanks;
using testing::make;
using testing::UniformReference;

const SliceKey kKey{3, {.step = 5, .tensor = 7, .rank = 1, .stage = 1, .first = 41}};

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& grad) {
  const auto compressor = make(spec);
  auto ranks = CoderRanks<float>::open(*compressor,
                                       Shape::vector(static_cast<std::int64_t>(grad.size())), 1);
  const auto outcome = ranks.value().step({grad}, 0);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
  return outcome.mean[0];
}

// Gaussian, a run of zeros, a run of one value, heavy tails, small and large scales.
template <typename T>
std::vector<T> mixed(std::size_t count) {
  const RandomStream data(5, RandomUse::kTest, 0, 0, 0, 0);
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double z = data.normal(i);
    x[i] = static_cast<T>(i < count / 2 ? z : std::exp(1.5 * z) * (i % 3 == 0 ? -1 : 1));
    if (i >= 600 && i < 680) x[i] = 0;
    if (i >= 680 && i < 720) x[i] = T{2.5};
    if (i >= 900 && i < 910) x[i] = static_cast<T>(1e-42 * z);
    if (i >= 912 && i < 916) x[i] = static_cast<T>(1e37 * z);
  }
  return x;
}

template <typename T>
void expect_reference_bytes(const UniformGrid& grid, const std::vector<T>& x) {
  const UniformKernel kernel{grid};
  std::vector<std::byte> wire(kernel.bytes(x.size(), sizeof(T)) + 1);
  const auto payload = ByteSpan(wire).subspan(1);  // not aligned
  ASSERT_TRUE(kernel.encode<T>(kKey, x, payload).ok());
  const auto wanted = UniformReference<T>{grid}.encode(kKey, x);
  ASSERT_EQ(payload.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(std::to_integer<int>(payload[i]), wanted[i])
        << "byte " << i << ", bits " << grid.bits << " bucket " << grid.bucket << " symmetric "
        << grid.symmetric << " stochastic " << grid.stochastic << " spikes " << grid.spikes
        << " hadamard " << grid.hadamard << " n " << x.size();
  }
}

template <typename T>
void compare_with_reference() {
  for (int bits = 1; bits <= 8; ++bits) {
    for (int options = 0; options < 16; ++options) {
      const bool stochastic = (options & 1) != 0;
      for (const std::size_t bucket : {8u, 64u, 1024u}) {
        const UniformGrid grid{bits,
                               bucket,
                               (options & 2) != 0,
                               stochastic,
                               (options & 4) != 0,
                               (options & 8) != 0,
                               !stochastic && bits < 4};
        for (const std::size_t count : {1u, 2u, 7u, 65u, 1500u}) {
          expect_reference_bytes<T>(grid, mixed<T>(count));
        }
      }
    }
  }
}
TEST(Uniform, MatchesReferenceForFloats) { compare_with_reference<float>(); }
TEST(Uniform, MatchesReferenceForDoubles) { compare_with_reference<double>(); }

TEST(Uniform, PayloadBytesAreBitsNotBytes) {
  const auto bytes = [](std::string_view spec, std::int64_t n) {
    return make(spec)->max_payload_bytes(Shape::vector(n), DType::kF32, 0);
  };
  EXPECT_EQ(bytes("minmax:bits=4", 65536), 65536u * 4 / 8 + 128 * 8);  // 4.125 bits an element
  EXPECT_EQ(bytes("minmax:bits=4,bucket=1024", 65536), 65536u * 4 / 8 + 64 * 8);
  EXPECT_EQ(bytes("minmax:bits=1", 513), 65u + 2 * 8);  // no third bucket, 513 bits
  EXPECT_EQ(bytes("minmax:bits=2,spikes=1", 512), 128u + 8 + 12);
  EXPECT_EQ(bytes("absmax:bits=3", 1000), 375u + 2 * 4);
  EXPECT_EQ(bytes("minmax:bits=4", 0), 0u);
}

// scale-then-subtract loses everything when the mean is far above the range.
TEST(Uniform, OffsetTensorsKeepTheirResolution) {
  std::vector<float> x(512);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1e6f + static_cast<float>(i) / 16;
  const auto y = round_trip("minmax:bits=8", x);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 32.0 / 255 / 2 + 0.0625);
}

// Both ends are levels: the classic symmetric grid clips +max by one level.
TEST(Uniform, NeitherEndIsClipped) {
  for (const char* spec : {"absmax:bits=4", "absmax:bits=2", "absmax:bits=8", "minmax:bits=1",
                           "minmax:bits=5", "absmax:bits=4,rounding=stochastic"}) {
    const std::vector<float> x{1.7f, -1.7f, 1.7f, -1.7f};
    EXPECT_EQ(round_trip(spec, x), x) << spec;
  }
}

TEST(Uniform, MeanSignedErrorIsZero) {
  std::vector<float> x(65536);
  const RandomStream data(2, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(data.normal(i));
  for (const char* spec : {"absmax:bits=4", "minmax:bits=4", "absmax:bits=4,rounding=stochastic",
                           "minmax:bits=2,rounding=stochastic"}) {
    const auto y = round_trip(spec, x);
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = static_cast<double>(y[i]) - static_cast<double>(x[i]);
      sum += error;
      squares += error * error;
    }
    EXPECT_NEAR(sum, 0, 4 * std::sqrt(squares)) << spec;
  }
}

TEST(Uniform, ConstantBucketsAreExact) {
  for (const float value : {0.0f, -0.0f, 3.25f, -1e-40f, 3e38f}) {
    const std::vector<float> x(700, value);
    EXPECT_EQ(round_trip("minmax:bits=2", x), x) << value;
    EXPECT_EQ(round_trip("absmax:bits=4", x), x) << value;
  }
}

TEST(Uniform, SpikesTravelAsTheyAre) {
  std::vector<float> x(512, 0.0f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 4) * 0.5f;
  x[100] = 1e20f;
  x[300] = -7.123f;
  for (const char* spec : {"minmax:bits=2,spikes=1", "minmax:bits=2,spikes=1,guard=0"}) {
    EXPECT_EQ(round_trip(spec, x), x) << spec;
  }
}

// 2 bits on heavy tails: worse than sending zeros, unless outliers are kept or spread.
TEST(Uniform, OutlierHandlingMakesTwoBitsUsable) {
  std::vector<float> x(65536);
  const RandomStream data(4, RandomUse::kTest, 0, 0, 0, 0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] =
        static_cast<float>(std::exp(1.5 * data.normal(i)) * (data.word(2 * i) % 2 == 0 ? 1 : -1));
  }
  const auto nmse = [&x](std::string_view spec) {
    const auto y = round_trip(spec, x);
    double error = 0;
    double square = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double e = static_cast<double>(y[i]) - static_cast<double>(x[i]);
      error += e * e;
      square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    return error / square;
  };
  EXPECT_GT(nmse("minmax:bits=2,guard=0"), 3);
  EXPECT_LE(nmse("minmax:bits=2"), 1);
  EXPECT_LT(nmse("minmax:bits=2,transform=hadamard"), 0.5);
  EXPECT_LT(nmse("absmax:bits=4,spikes=1"), nmse("absmax:bits=4"));
}

TEST(Uniform, NonFiniteBucketsAreNaNAlone) {
  for (const char* spec : {"minmax:bits=4,bucket=8", "absmax:bits=4,bucket=8",
                           "minmax:bits=4,bucket=8,spikes=1,transform=hadamard"}) {
    for (const float bad : {std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), -std::nanf("")}) {
      std::vector<float> x(16, 1.0f);
      x[3] = bad;
      const auto y = round_trip(spec, x);
      for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(y[i])) << spec;
      for (std::size_t i = 8; i < 16; ++i) EXPECT_TRUE(std::isfinite(y[i])) << spec;
    }
  }
  // A range beyond fp32 is no smaller a loss.
  EXPECT_TRUE(std::isnan(round_trip("minmax:bits=8", {3e38f, -3e38f})[0]));
}

TEST(Uniform, RefusesImpossiblePayloads) {
  const auto check = [](const UniformGrid& grid, std::vector<std::uint32_t> head,
                        std::vector<std::uint8_t> codes, std::size_t count) {
    std::vector<std::byte> wire;
    for (const std::uint32_t word : head) {
      wire.resize(wire.size() + 4);
      store_le(wire.data() + wire.size() - 4, word);
    }
    for (const std::uint8_t code : codes) wire.push_back(std::byte{code});
    std::vector<float> x(count);
    const UniformKernel kernel{grid};
    EXPECT_EQ(wire.size(), kernel.bytes(count, 4));
    return kernel.decode<float>({}, wire, false, x).code();
  };
  const UniformGrid minmax{.bits = 3};
  constexpr std::uint32_t kOne = 0x3f800000u;
  EXPECT_EQ(check(minmax, {kOne, kOne}, {0x38}, 2), Code::kOk);
  EXPECT_EQ(check(minmax, {kOne, kOne}, {0x48}, 2), Code::kCorruptPayload);             // free bit
  EXPECT_EQ(check(minmax, {0x7f800000u, kOne}, {0}, 2), Code::kCorruptPayload);         // infinity
  EXPECT_EQ(check(minmax, {kOne, 0xbf800000u}, {0}, 2), Code::kCorruptPayload);         // negative
  EXPECT_EQ(check(minmax, {kOne, 0x7fc00000u}, {0}, 2), Code::kCorruptPayload);         // half NaN
  EXPECT_EQ(check(minmax, {0x7fc00000u, 0x7fc00000u}, {0}, 2), Code::kOk);              // NaN
  EXPECT_EQ(check(minmax, {0x7f7fffffu, 0x7f7fffffu}, {0}, 2), Code::kCorruptPayload);  // overflow
  const UniformGrid absmax{.bits = 3, .symmetric = true};
  EXPECT_EQ(check(absmax, {kOne}, {0x36}, 2), Code::kOk);
  EXPECT_EQ(check(absmax, {kOne}, {0x37}, 2), Code::kCorruptPayload);  // a level that is not there
  const UniformGrid spikes{.bits = 3, .spikes = true};
  const auto places = [&](std::uint32_t at) {
    return check(spikes, {kOne, kOne, at, kOne, kOne}, {0}, 2);
  };
  EXPECT_EQ(places(0x00010000u), Code::kOk);
  EXPECT_EQ(places(0x00000000u), Code::kCorruptPayload);  // both at one place
  EXPECT_EQ(places(0x00020000u), Code::kCorruptPayload);  // outside
}

TEST(Uniform, SpecsAndRanges) {
  EXPECT_EQ(make("minmax")->spec(), "minmax:bits=8");
  EXPECT_EQ(make("absmax:4")->spec(), "absmax:bits=4");
  EXPECT_EQ(make("minmax:bucket=512,bits=2,guard=0")->spec(), "minmax:bits=2,guard=0");
  EXPECT_EQ(make("minmax:bits=8,guard=0")->spec(), "minmax:bits=8");  // nothing to guard
  EXPECT_EQ(make("absmax:bits=2,transform=hadamard,spikes=1,rounding=stochastic,bucket=64")->spec(),
            "absmax:bits=2,bucket=64,rounding=stochastic,spikes=1,transform=hadamard");
  for (const char* spec :
       {"minmax:bits=0", "minmax:bits=9", "minmax:bucket=12", "minmax:bucket=0",
        "minmax:bucket=131072", "minmax:bucket=24,transform=hadamard", "minmax:rounding=up",
        "absmax:spikes=2", "absmax:transform=dct", "absmax:guard=true"}) {
    const auto made = Registry::builtin().make(std::string_view(spec));
    ASSERT_FALSE(made.has_value()) << spec;
    EXPECT_EQ(made.error().code(), Code::kInvalidArgument) << spec;
  }
}

TEST(Uniform, BoundsAreTheirClosedForms) {
  const auto value = [](std::string_view spec) {
    return make(spec)->bound(Shape::vector(10000)).value;
  };
  EXPECT_DOUBLE_EQ(value("minmax:bits=8"), 1 - 512 / (2 * 255.0 * 255));
  EXPECT_DOUBLE_EQ(value("minmax:bits=4,rounding=stochastic"), 512 / (2 * 15.0 * 15));
  EXPECT_DOUBLE_EQ(value("minmax:bits=4"), 0);
  EXPECT_DOUBLE_EQ(value("absmax:bits=8"), 1 - 512 / (4 * 127.0 * 127));
  EXPECT_DOUBLE_EQ(value("absmax:bits=4"), 1.0 / 512);
  EXPECT_DOUBLE_EQ(value("absmax:bits=1,rounding=stochastic"), 511);
  EXPECT_EQ(make("minmax:bits=4,guard=0")->bound(Shape::vector(10000)).kind,
            ErrorBound::Kind::kNone);
}

}  // namespace
}  // namespace gradwire::uniform_test
