// fp8 and mx: kernels against references, scales, saturation, hostile bytes.
#include <bit>

#include "base/tiny_floats.h"
#include "compress/fp8/fp8_kernels.h"
#include "compress/little_endian.h"
#include "compress/mx/mx_kernels.h"
#include "tests/compress/small_codes.h"
#include "tests/reference/small_codes_reference.h"

namespace gradwire::fp8_test {
namespace {

using namespace testing;

template <typename Float>
void expect_tiny(const TinyReference& wanted) {
  ASSERT_EQ(Float::kBits, wanted.bits());
  ASSERT_EQ(static_cast<double>(Float::kLargest), wanted.largest());
  for (unsigned code = 0; code < wanted.codes; ++code) {
    ASSERT_EQ(static_cast<double>(Float::to_float(code)), wanted.value(code)) << code;
    ASSERT_EQ(Float::from_float(Float::to_float(code)), code);
    const unsigned minus = code | 1u << (Float::kBits - 1);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(Float::to_float(minus)),
              std::bit_cast<std::uint32_t>(Float::to_float(code)) | 0x80000000u);
    if (code + 1 == wanted.codes) break;
    // Between two neighbours: the middle to the even one, its neighbours to the nearer.
    const auto middle = static_cast<float>((wanted.value(code) + wanted.value(code + 1)) / 2);
    EXPECT_EQ(Float::from_float(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(Float::from_float(std::nextafterf(middle, 0)), code);
    EXPECT_EQ(Float::from_float(std::nextafterf(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(Float::from_float(3e38f), wanted.codes - 1);
  EXPECT_EQ(Float::from_float(1e-45f), 0);
}
TEST(TinyFloats, EveryCodeAndEveryTie) {
  expect_tiny<Float8E4M3>(kE4M3);
  expect_tiny<Float8E5M2>(kE5M2);
  expect_tiny<Float6E3M2>(kE3M2);
  expect_tiny<Float6E2M3>(kE2M3);
  expect_tiny<Float4E2M1>(kE2M1);
}

template <typename T>
void compare_fp8() {
  for (const std::size_t group : {1u, 16u, 100u, 4096u}) {
    for (const std::size_t count : {1u, 7u, 1000u, 1500u}) {
      const auto x = mixed_values<T>(count);
      expect_bytes<T>(Fp8Kernel{Fp8Type::kE4M3, group}, x, fp8_reference<T>(kE4M3, group, x),
                      "e4m3");
      expect_bytes<T>(Fp8Kernel{Fp8Type::kE5M2, group}, x, fp8_reference<T>(kE5M2, group, x),
                      "e5m2");
    }
  }
}
TEST(Fp8, MatchesReferenceForFloats) { compare_fp8<float>(); }
TEST(Fp8, MatchesReferenceForDoubles) { compare_fp8<double>(); }

template <typename T>
void compare_mx() {
  for (const std::size_t count : {1u, 7u, 32u, 33u, 1000u, 1500u}) {
    const auto x = mixed_values<T>(count);
    expect_bytes<T>(MxKernel{MxType::kE4M3, 8}, x, mx_reference<T>(kE4M3, x), "e4m3");
    expect_bytes<T>(MxKernel{MxType::kE5M2, 8}, x, mx_reference<T>(kE5M2, x), "e5m2");
    expect_bytes<T>(MxKernel{MxType::kE3M2, 6}, x, mx_reference<T>(kE3M2, x), "e3m2");
    expect_bytes<T>(MxKernel{MxType::kE2M3, 6}, x, mx_reference<T>(kE2M3, x), "e2m3");
    expect_bytes<T>(MxKernel{MxType::kE2M1, 4}, x, mx_reference<T>(kE2M1, x), "e2m1");
  }
}
TEST(Mx, MatchesReferenceForFloats) { compare_mx<float>(); }
TEST(Mx, MatchesReferenceForDoubles) { compare_mx<double>(); }

// A vector seen as a matrix of one column would send a scale with every element.
TEST(Fp8, VectorsAreNoRowsOfOneElement) {
  const auto bytes = [](const Shape& shape) {
    return make("fp8:scale=row")->max_payload_bytes(shape, DType::kF32, 0);
  };
  EXPECT_EQ(bytes(Shape::vector(1024)), 1024u + 2 * 4);
  EXPECT_EQ(bytes(Shape::matrix(1024, 1)), 1024u + 2 * 4);
  EXPECT_EQ(bytes(Shape::matrix(1024, 31)), 1024u * 31 + 62 * 4);
  EXPECT_EQ(bytes(Shape::matrix(1024, 100)), 1024u * 100 + 1024 * 4);  // 8 + 32/100 bits
  EXPECT_EQ(bytes({{16, 8, 3, 3}, 4}), 16u * 72 + 16 * 4);
  EXPECT_EQ(bytes(Shape::matrix(0, 100)), 0u);
  EXPECT_EQ(make("fp8")->max_payload_bytes(Shape::vector(1024), DType::kF32, 0), 1024u + 2 * 4);
}

// Of rows with scales of their own, a large one does not flush a small one.
TEST(Fp8, RowsHaveTheirScales) {
  std::vector<float> x(64, 1e-20f);
  std::fill(x.begin(), x.begin() + 32, 1e20f);
  const auto compressor = make("fp8:scale=row");
  auto ranks = CoderRanks<float>::open(*compressor, Shape::matrix(2, 32), 1);
  EXPECT_EQ(ranks.value().step({x}, 0).mean[0], x);
}

TEST(Fp8, NonFiniteGroupsAreNaNAlone) {
  for (const char* spec : {"fp8:block=32", "mx:e2m1"}) {
    std::vector<float> x(64, 1.0f);
    x[5] = -std::numeric_limits<float>::infinity();
    const auto y = round_trip(spec, x);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(y[i])) << spec;
    for (std::size_t i = 32; i < 64; ++i) EXPECT_EQ(y[i], 1.0f) << spec;
  }
}

// The uppermost eighth of a binade saturates: 1.9 * 2^8 is sent as 448 = 1.75 * 2^8.
TEST(Mx, SharedScaleSaturates) {
  EXPECT_EQ(round_trip<float>("mx:e4m3", {1.9f, 1.0f}), (std::vector<float>{1.75f, 1.0f}));
  EXPECT_EQ(round_trip<float>("mx:e2m1", {6.0f, 7.9f, -0.5f, 0.2f}),
            (std::vector<float>{6.0f, 6.0f, -0.5f, 0.0f}));
}

TEST(Fp8, RefusesImpossiblePayloads) {
  const auto check = [](Fp8Type type, std::uint32_t scale, unsigned code) {
    std::vector<std::byte> wire(5, static_cast<std::byte>(code));
    store_le(wire.data(), scale);
    std::vector<float> x(1);
    return Fp8Kernel{type}.decode<float>({}, wire, false, x).code();
  };
  EXPECT_EQ(check(Fp8Type::kE4M3, 0x3f800000u, 0xfe), Code::kOk);
  EXPECT_EQ(check(Fp8Type::kE4M3, 0x3f800000u, 0x7f), Code::kCorruptPayload);  // NaN
  EXPECT_EQ(check(Fp8Type::kE5M2, 0x3f800000u, 0xfc), Code::kCorruptPayload);  // -infinity
  EXPECT_EQ(check(Fp8Type::kE5M2, 0xbf800000u, 0), Code::kCorruptPayload);
  EXPECT_EQ(check(Fp8Type::kE5M2, 0x7f800000u, 0), Code::kCorruptPayload);
  EXPECT_EQ(check(Fp8Type::kE5M2, 0x7fc00000u, 0), Code::kOk);
}

TEST(Mx, RefusesImpossiblePayloads) {
  const auto check = [](MxType type, int bits, std::vector<unsigned> bytes) {
    std::vector<std::byte> wire;
    for (const unsigned byte : bytes) wire.push_back(static_cast<std::byte>(byte));
    std::vector<float> x(1);
    return MxKernel{type, bits}.decode<float>({}, wire, false, x).code();
  };
  EXPECT_EQ(check(MxType::kE4M3, 8, {127, 0x7e}), Code::kOk);
  EXPECT_EQ(check(MxType::kE4M3, 8, {127, 0x7f}), Code::kCorruptPayload);
  EXPECT_EQ(check(MxType::kE5M2, 8, {254, 0x7b}), Code::kCorruptPayload);  // 57344 * 2^127
  EXPECT_EQ(check(MxType::kE2M1, 4, {127, 0x10}), Code::kCorruptPayload);  // free bits
  EXPECT_EQ(check(MxType::kE2M1, 4, {255, 0x00}), Code::kOk);
}

TEST(Fp8, SpecsAndRanges) {
  EXPECT_EQ(make("fp8")->spec(), "fp8:type=e4m3");
  EXPECT_EQ(make("fp8:e5m2,block=128,scale=row")->spec(), "fp8:type=e5m2,scale=row,block=128");
  EXPECT_EQ(make("mx:e2m3")->spec(), "mx:type=e2m3");
  expect_refused({"fp8:e3m4", "fp8:scale=tensor", "fp8:block=0", "mx:e4m4", "mx:block=16"});
  EXPECT_EQ(make("mx:e2m1")->max_payload_bytes(Shape::vector(320), DType::kF32, 0), 170u);
  EXPECT_EQ(make("mx:e3m2")->max_payload_bytes(Shape::vector(320), DType::kF32, 0), 250u);
}

}  // namespace
}  // namespace gradwire::fp8_test
