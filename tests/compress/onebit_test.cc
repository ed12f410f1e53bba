#include "compress/onebit/onebit_kernels.h"

#include "compress/little_endian.h"
#include "tests/compress/small_codes.h"
#include "tests/reference/small_codes_reference.h"
#include "tests/support/fails.h"

namespace gradwire::onebit_test {
namespace {

using namespace testing;

template <typename T>
void compare_with_reference() {
  for (const std::size_t group : {1u, 5u, 64u, 100u, 5000u}) {
    for (const std::size_t count : {1u, 7u, 64u, 1000u}) {
      const auto x = mixed_values<T>(count);
      expect_bytes<T>(OnebitKernel{group}, x, onebit_reference<T>(group, x), "onebit");
    }
  }
}
TEST(Onebit, MatchesReferenceForFloats) { compare_with_reference<float>(); }
TEST(Onebit, MatchesReferenceForDoubles) { compare_with_reference<double>(); }

TEST(Onebit, MeansOfEitherSide) {
  EXPECT_EQ(round_trip<float>("onebit", {1, -2, 3, 0, -4, -0.0f}),
            (std::vector<float>{1, -3, 1, 1, -3, 1}));
  EXPECT_EQ(round_trip<float>("onebit", {2, 4}), (std::vector<float>{3, 3}));
  EXPECT_EQ(round_trip<float>("onebit", {-2, -4}), (std::vector<float>{-3, -3}));
}

// A group of zeros decodes to exactly that, whatever its neighbours are.
TEST(Onebit, ZeroGroupsStayZero) {
  std::vector<float> x(24, 0.0f);
  x[2] = 5.0f;
  const auto y = round_trip("onebit:bucket=8", x);
  for (std::size_t i = 8; i < x.size(); ++i) EXPECT_EQ(y[i], 0.0f);
}

TEST(Onebit, OneBitAndTwoMeans) {
  const auto bytes = [](std::string_view spec, const Shape& shape) {
    return make(spec)->max_payload_bytes(shape, DType::kF32, 0);
  };
  EXPECT_EQ(bytes("onebit", Shape::vector(8192)), 1024u + 2 * 8);  // 1 + 64/4096 bits
  EXPECT_EQ(bytes("onebit:bucket=tensor", Shape::vector(8192)), 1024u + 8);
  EXPECT_EQ(bytes("onebit:bucket=row", Shape::matrix(64, 100)), 64u * (13 + 8));
  EXPECT_EQ(bytes("onebit:bucket=row", Shape::matrix(6400, 1)), 800u + 2 * 8);
  EXPECT_EQ(make("onebit:bucket=4096")->spec(), "onebit");
  EXPECT_EQ(make("onebit:bucket=row")->spec(), "onebit:bucket=row");
  EXPECT_DOUBLE_EQ(make("onebit:bucket=row")->bound(Shape::matrix(5, 200)).value, 1.0 / 200);
  expect_refused({"onebit:bucket=0", "onebit:bucket=column", "onebit:scale=l1"});
}

TEST(Onebit, RefusesWhatHasNoMeanAndImpossiblePayloads) {
  std::vector<std::byte> wire(9);
  const auto refused = [&wire](float value) {
    const std::vector<float> x{1.0f, value};
    return OnebitKernel{}.encode<float>({}, x, wire);
  };
  const Status status = refused(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(status, fails(Code::kInvalidArgument, "element 1", "nan"));
  EXPECT_EQ(refused(-std::numeric_limits<float>::infinity()).code(), Code::kInvalidArgument);
  const auto check = [](float plus, float minus, unsigned signs) {
    std::vector<std::byte> bytes(9, static_cast<std::byte>(signs));
    store_le(bytes.data(), plus, 0);
    store_le(bytes.data(), minus, 1);
    std::vector<float> x(2);
    return OnebitKernel{}.decode<float>({}, bytes, false, x).code();
  };
  EXPECT_EQ(check(1, 2, 3), Code::kOk);
  EXPECT_EQ(check(1, 2, 7), Code::kCorruptPayload);
  EXPECT_EQ(check(-1, 2, 3), Code::kCorruptPayload);
  EXPECT_EQ(check(1, std::numeric_limits<float>::infinity(), 3), Code::kCorruptPayload);
  EXPECT_EQ(check(1, -0.0f, 3), Code::kCorruptPayload);
}

}  // namespace
}  // namespace gradwire::onebit_test
