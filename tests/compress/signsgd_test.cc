#include "compress/signsgd/signsgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gradwire/registry.h"
#include "tests/reference/signsgd_reference.h"
#include "tests/support/coder_ranks.h"
#include "tests/support/fails.h"

namespace gradwire::signsgd_test {
namespace {

using testing::CoderRanks;
using testing::make;

std::vector<int> ints(ConstByteSpan bytes) {
  std::vector<int> out;
  for (const std::byte b : bytes) out.push_back(std::to_integer<int>(b));
  return out;
}

template <typename T>
std::vector<T> normal(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> draw;
  std::vector<T> out(count);
  for (T& x : out) x = static_cast<T>(draw(generator));
  return out;
}

// Two buckets of 2 and one of 1: scales 2, 0, 5; signs - + | + + | - from bit 0 up: 0b10001.
TEST(SignSgd, PayloadByHand) {
  const auto sign = make("signsgd:bucket=2");
  auto ranks = std::move(CoderRanks<float>::open(*sign, Shape::vector(5), 1)).value();
  const auto out = ranks.step({{-1.0f, 3.0f, 0.0f, -0.0f, -5.0f}}, 0);
  ASSERT_TRUE(out.status.ok()) << out.status.message();
  EXPECT_EQ(ints(out.bytes[0][0]),
            (std::vector<int>{0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0xa0, 0x40, 0b10001}));
  EXPECT_EQ(out.own[0], (std::vector<float>{-2, 2, 0, 0, -5}));
  EXPECT_EQ(out.mean[0], out.own[0]);
}

TEST(SignSgd, SignOfZeroIsPlusOne) {
  const auto bare = make("signsgd:scale=none");
  auto ranks = std::move(CoderRanks<float>::open(*bare, Shape::vector(4), 1)).value();
  EXPECT_EQ(ranks.step({{0.0f, -0.0f, -1e-30f, 2.0f}}, 0).own[0],
            (std::vector<float>{1, 1, -1, 1}));
  const auto scaled = make("signsgd:bucket=tensor");
  auto one = std::move(CoderRanks<double>::open(*scaled, Shape::vector(4), 1)).value();
  EXPECT_EQ(one.step({{0.0, -0.0, -6.0, 2.0}}, 0).own[0], (std::vector<double>{2, 2, -2, 2}));
}

// GRACE's one-bit compressor inverts an 8-bit mask with ~ and decodes to 255 times the gradient;
// its sign methods send 8 bits a symbol.
TEST(SignSgd, RoundTripIsNot255TimesTooLargeAndBitsAreBits) {
  const auto sign = make("signsgd:bucket=tensor");
  const auto bare = make("signsgd:scale=none");
  const auto vote = make("signsgd:vote=majority");
  auto ranks = std::move(CoderRanks<float>::open(*sign, Shape::vector(1000), 1)).value();
  const auto grad = normal<float>(1000, 5);
  const auto out = ranks.step({grad}, 0);
  for (std::size_t i = 0; i < grad.size(); ++i) {
    ASSERT_EQ(std::signbit(out.own[0][i]), std::signbit(grad[i])) << i;
    ASSERT_LT(std::abs(out.own[0][i]), 1.0f);  // E|N(0,1)| = 0.798
  }
  EXPECT_EQ(out.bytes[0][0].size(), 125u + 4u);
  const Shape shape = Shape::vector(65537);
  EXPECT_EQ(sign->max_payload_bytes(shape, DType::kF32, 0), 8193u + 4u);
  EXPECT_EQ(bare->max_payload_bytes(shape, DType::kF32, 0), 8193u);
  EXPECT_EQ(vote->max_payload_bytes(shape, DType::kF32, 0), 8193u);
  EXPECT_EQ(make("signsgd")->max_payload_bytes(shape, DType::kF32, 0), 8193u + 17u * 4u);
  EXPECT_EQ(make("signsgd")->max_payload_bytes(shape, DType::kF64, 0), 8193u + 17u * 8u);
}

// The MLP 784-128-64-10 of the studies: 13,674 sign bytes over 6 tensors, and 24 of scales.
TEST(SignSgd, PayloadBytesOfTheStudiesModel) {
  std::size_t bare = 0;
  std::size_t scaled = 0;
  for (const Shape& shape : {Shape::matrix(128, 784), Shape::vector(128), Shape::matrix(64, 128),
                             Shape::vector(64), Shape::matrix(10, 64), Shape::vector(10)}) {
    bare += make("signsgd:vote=majority")->max_payload_bytes(shape, DType::kF32, 0);
    scaled += make("signsgd:bucket=tensor")->max_payload_bytes(shape, DType::kF32, 0);
  }
  EXPECT_EQ(bare, 13674u);
  EXPECT_EQ(scaled, 13674u + 24u);
}

template <typename T>
class SignSgdBoth : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(SignSgdBoth, Floats);

TYPED_TEST(SignSgdBoth, AgreesWithTheReferenceAtOddSizesAndBuckets) {
  using T = TypeParam;
  const T step = std::numeric_limits<T>::epsilon();
  for (const std::size_t count : {1, 7, 63, 64, 65, 1000, 4097, 65537}) {
    const auto grad = normal<T>(count, static_cast<unsigned>(count));
    for (const std::size_t bucket : {0, 1, 3, 64, 100, 4096}) {
      const auto sign = make(bucket == 0 ? std::string("signsgd:bucket=tensor")
                                         : "signsgd:bucket=" + std::to_string(bucket));
      const auto shape = Shape::vector(static_cast<std::int64_t>(count));
      auto ranks = std::move(CoderRanks<T>::open(*sign, shape, 1)).value();
      const auto out = ranks.step({grad}, 0);
      ASSERT_TRUE(out.status.ok()) << out.status.message();
      const auto wanted = reference::scaled_sign(grad, bucket);
      for (std::size_t i = 0; i < count; ++i) {
        // One rounding of the scale, and for doubles that of the sum over 16 lanes.
        ASSERT_NEAR(static_cast<double>(out.own[0][i]), static_cast<double>(wanted[i]),
                    8 * static_cast<double>(step * std::abs(out.own[0][i])))
            << count << " " << bucket << " " << i;
      }
    }
  }
}

TYPED_TEST(SignSgdBoth, VoteAgreesWithTheReferenceAndATieIsZero) {
  using T = TypeParam;
  const auto vote = make("signsgd:vote=majority");
  for (const int size : {1, 2, 3, 4}) {
    auto ranks = std::move(CoderRanks<T>::open(*vote, Shape::vector(131), size)).value();
    std::vector<std::vector<T>> grads;
    for (int r = 0; r < size; ++r) grads.push_back(normal<T>(131, static_cast<unsigned>(r)));
    const auto out = ranks.step(grads, 0);
    for (const auto& mean : out.mean) EXPECT_EQ(mean, reference::majority(grads));
  }
  auto two = std::move(CoderRanks<T>::open(*vote, Shape::vector(3), 2)).value();
  const auto out = two.step({{1, -2, 3}, {-5, -6, 0.5}}, 0);
  EXPECT_EQ(out.mean[1], (std::vector<T>{0, -1, 1}));  // others turn a tie into +1
  EXPECT_EQ(out.own[1], (std::vector<T>{-1, -1, 1}));
}

// Four signs fill a byte: -1 0 +1 is 2, 0, 1 in two bits each from bit 0 up: 0b010010.
TYPED_TEST(SignSgdBoth, SecondStageOfAVoteByHand) {
  const auto vote = make("signsgd:vote=majority");
  const Compressor::Placement where{.dtype = DTypeOf<TypeParam>::kValue, .size = 4};
  auto format = std::move(vote->open_slices(Shape::vector(3), where)).value();
  std::vector<TypeParam> sums{-2, 0, 4};
  std::vector<std::byte> wire(1);
  const Slice second{.stage = 1};
  EXPECT_EQ(format->bytes(5, 1), 2u);
  ASSERT_EQ(format->pack(view_of<TypeParam>(sums), second, wire, {}).value(), 1u);
  EXPECT_EQ(ints(wire), (std::vector<int>{0b010010}));
  ASSERT_TRUE(format->unpack(wire, second, view_of<TypeParam>(sums), {}).ok());
  EXPECT_EQ(sums, (std::vector<TypeParam>{-1, 0, 1}));
  ASSERT_TRUE(format->unpack_add(wire, second, view_of<TypeParam>(sums), {}).ok());
  EXPECT_EQ(sums, (std::vector<TypeParam>{-2, 0, 2}));
  wire[0] = std::byte{0b110010};  // the third vote is a 3
  EXPECT_EQ(format->unpack(wire, second, view_of<TypeParam>(sums), {}).code(),
            Code::kCorruptPayload);
  wire[0] = std::byte{0b1010010};  // a fourth where there are three
  EXPECT_EQ(format->unpack(wire, second, view_of<TypeParam>(sums), {}).code(),
            Code::kCorruptPayload);
}

TYPED_TEST(SignSgdBoth, HostilePayloadsAreRefused) {
  using T = TypeParam;
  const auto sign = make("signsgd:bucket=4");
  const Compressor::Placement where{.dtype = DTypeOf<T>::kValue};
  auto format = std::move(sign->open_slices(Shape::vector(6), where)).value();
  std::vector<T> v{1, -2, 3, -4, 5, -6};
  std::vector<std::byte> wire(format->bytes(6, 0));
  ASSERT_TRUE(format->pack(view_of<T>(v), {}, wire, {}).has_value());
  const auto decode = [&](ConstByteSpan bytes) {
    return format->unpack(bytes, {}, view_of<T>(v), {}).code();
  };
  EXPECT_EQ(decode(wire), Code::kOk);
  EXPECT_EQ(decode({}), Code::kCorruptPayload);
  EXPECT_EQ(decode(ConstByteSpan(wire).first(wire.size() - 1)), Code::kCorruptPayload);
  for (const T scale :
       {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), T{-1}, -T{0}}) {
    auto bad = wire;
    std::memcpy(bad.data() + sizeof(T), &scale, sizeof(T));
    EXPECT_EQ(decode(bad), Code::kCorruptPayload) << scale;
  }
  wire.back() |= std::byte{0x40};  // bit 6 of 6
  EXPECT_EQ(decode(wire), Code::kCorruptPayload);
}

TYPED_TEST(SignSgdBoth, NonFiniteGradientsAreNamed) {
  using T = TypeParam;
  for (const char* spec : {"signsgd:bucket=2", "signsgd:scale=none", "signsgd:vote=majority"}) {
    const auto sign = make(spec);
    auto ranks = std::move(CoderRanks<T>::open(*sign, Shape::vector(4), 1)).value();
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()}) {
      const auto out = ranks.step({{1, 2, 3, bad}}, 0);
      EXPECT_THAT(out.status, fails(Code::kInvalidArgument, "element 3")) << spec;
    }
  }
}

TEST(SignSgd, TheScaleIsOverTrueElementsNotPaddedOnes) {
  const auto sign = make("signsgd:bucket=8");
  auto ranks = std::move(CoderRanks<float>::open(*sign, Shape::vector(9), 1)).value();
  const auto out = ranks.step({{1, 1, 1, 1, 1, 1, 1, 1, -7}}, 0);
  EXPECT_EQ(out.own[0][8], -7.0f);  // padding to 8 would make it 7/8
}

// The largest error of the claim: one non-zero element among n.
TEST(SignSgd, BoundIsReachedByOneNonZeroElement) {
  const auto sign = make("signsgd:bucket=8");
  const double value = sign->bound(Shape::vector(100)).value;
  EXPECT_EQ(value, 1.0 / 8);
  EXPECT_EQ(sign->bound(Shape::vector(3)).value, 1.0 / 3);
  EXPECT_EQ(make("signsgd:bucket=tensor")->bound(Shape::matrix(10, 10)).value, 1.0 / 100);
  EXPECT_EQ(make("signsgd:scale=none")->bound(Shape::vector(3)).kind, ErrorBound::Kind::kNone);
  auto ranks = std::move(CoderRanks<double>::open(*sign, Shape::vector(8), 1)).value();
  const auto own = ranks.step({{0, 0, 8, 0, 0, 0, 0, 0}}, 0).own[0];
  double error = 0;
  for (std::size_t i = 0; i < 8; ++i) error += std::pow(own[i] - (i == 2 ? 8 : 0), 2);
  EXPECT_EQ(error, (1 - value) * 64);
}

TEST(SignSgd, SpecsAreCanonicalAndBadOnesRefused) {
  EXPECT_EQ(make("signsgd:scale=l1,bucket=4096")->spec(), "signsgd");
  EXPECT_EQ(make("signsgd:bucket=512")->spec(), "signsgd:bucket=512");
  EXPECT_EQ(make("signsgd:bucket=tensor")->spec(), "signsgd:bucket=tensor");
  EXPECT_EQ(make("signsgd:scale=none")->spec(), "signsgd:scale=none");
  EXPECT_EQ(make("signsgd:vote=majority,scale=none")->spec(), "signsgd:vote=majority");
  EXPECT_EQ(make("signsgd:vote=majority,bucket=tensor")->spec(), "signsgd:vote=majority");
  EXPECT_EQ(make("signsgd:scale=none,bucket=8")->spec(), "signsgd:scale=none");
  for (const char* bad : {"signsgd:scale=l1,vote=majority", "signsgd:scale=l2", "signsgd:bucket=0",
                          "signsgd:bucket=big", "signsgd:vote=minority",
                          "signsgd:vote=majority,bucket=0", "signsgd:512", "signsgd:buckets=8"}) {
    EXPECT_EQ(Registry::builtin().make(bad).error().code(), Code::kInvalidArgument) << bad;
  }
  const Compressor::Placement where;
  EXPECT_EQ(make("signsgd:scale=none")->open_slices(Shape::vector(1), where).error().code(),
            Code::kUnsupported);
}

}  // namespace
}  // namespace gradwire::signsgd_test
