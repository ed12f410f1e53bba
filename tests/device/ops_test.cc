#include "device/ops.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/elements.h"
#include "gradwire/buffer.h"

namespace gradwire::ops_test {
namespace {

template <typename T>
TensorView matrix(std::vector<T>& data, std::int64_t n, std::int64_t m) {
  return {reinterpret_cast<std::byte*>(data.data()), Shape::matrix(n, m), DTypeOf<T>::kValue};
}

TEST(Ops, ReduceByHand) {
  std::vector<float> a{1, -2, 3};
  std::vector<float> b{10, 20, -30};
  EXPECT_TRUE(reduce(ReduceOp::kSum, view_of<float>(a), view_of<float>(b), {}).ok());
  EXPECT_EQ(b, (std::vector<float>{11, 18, -27}));
  EXPECT_TRUE(reduce(ReduceOp::kMax, view_of<float>(a), view_of<float>(b), {}).ok());
  EXPECT_EQ(b, (std::vector<float>{11, 18, 3}));
  EXPECT_TRUE(reduce(ReduceOp::kMin, view_of<float>(a), view_of<float>(b), {}).ok());
  EXPECT_EQ(b, (std::vector<float>{1, -2, 3}));
  std::vector<float> shorter{1};
  EXPECT_EQ(reduce(ReduceOp::kSum, view_of<float>(shorter), view_of<float>(b), {}).code(),
            Code::kInvalidArgument);
}

template <typename T>
std::vector<T> reduced(ReduceOp op, std::vector<T> a, std::vector<T> b) {
  EXPECT_TRUE(reduce(op, view_of<T>(a), view_of<T>(b), {}).ok());
  return b;
}

TEST(Ops, ProductsAndIntegersThatWrapAround) {
  EXPECT_EQ(reduced<double>(ReduceOp::kProduct, {1.5, -2}, {4, 8}), (std::vector<double>{6, -16}));
  EXPECT_EQ(reduced<std::int8_t>(ReduceOp::kProduct, {16, -3}, {17, 5}),
            (std::vector<std::int8_t>{16, -15}));  // 272 = 256 + 16
  EXPECT_EQ(reduced<std::uint8_t>(ReduceOp::kSum, {200}, {100}), (std::vector<std::uint8_t>{44}));
  constexpr auto kMost = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>(ReduceOp::kSum, {kMost}, {2}),
            (std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min() + 1}));
  EXPECT_EQ(reduced<std::int64_t>(ReduceOp::kProduct, {std::int64_t{1} << 62}, {6}),
            (std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}));
  std::vector<float> x{1};
  for (const ReduceOp op : {ReduceOp::kMean, ReduceOp::kPreMulSum}) {
    EXPECT_EQ(reduce(op, view_of<float>(x), view_of<float>(x), {}).code(), Code::kInvalidArgument);
  }
}

// Replicas are bit-identical only if neither operand is special.
TEST(Ops, MaximaDoNotDependOnTheOrder) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> a{0.0f, -0.0f, nan, 1, -0.0f, infinity};
  const std::vector<float> b{-0.0f, 0.0f, 1, nan, -0.0f, 3};
  const auto bits = [](const std::vector<float>& values) {
    std::vector<std::uint32_t> all;
    for (const float v : values) all.push_back(std::bit_cast<std::uint32_t>(v));
    return all;
  };
  EXPECT_EQ(bits(reduced(ReduceOp::kMax, a, b)), bits({0.0f, 0.0f, nan, nan, -0.0f, infinity}));
  EXPECT_EQ(bits(reduced(ReduceOp::kMax, b, a)), bits({0.0f, 0.0f, nan, nan, -0.0f, infinity}));
  EXPECT_EQ(bits(reduced(ReduceOp::kMin, a, b)), bits({-0.0f, -0.0f, nan, nan, -0.0f, 3}));
  EXPECT_EQ(bits(reduced(ReduceOp::kMin, b, a)), bits({-0.0f, -0.0f, nan, nan, -0.0f, 3}));
}

TEST(Ops, SaturatingCastsKeepWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> src{
      1, 40000, -40000, infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 3e38F};
  const auto cast_to = [&](DType dtype, double factor) {
    std::vector<std::uint16_t> dst(src.size());
    const TensorView to(reinterpret_cast<std::byte*>(dst.data()), Shape::vector(7), dtype);
    EXPECT_TRUE(saturating_cast(const_view_of<float>(src), factor, to, {}).ok());
    return dst;
  };
  const std::vector<std::uint16_t> half = cast_to(DType::kF16, 2);
  EXPECT_EQ(half,
            (std::vector<std::uint16_t>{0x4000, 0x7bff, 0xfbff, 0x7c00, 0xfc00, half[5], 0x7bff}));
  EXPECT_GT(half[5] & 0x7fff, 0x7c00);
  const std::vector<std::uint16_t> brain = cast_to(DType::kBF16, 2);
  EXPECT_EQ(brain[0], 0x4000);
  EXPECT_EQ(brain[3], 0x7f80);
  EXPECT_EQ(brain[6], 0x7f7f);
  std::vector<float> wide(7);
  EXPECT_EQ(saturating_cast(const_view_of<float>(src), 1, view_of<float>(wide), {}).code(),
            Code::kInvalidArgument);
}

TEST(Ops, ScaledCopiesRoundOnceAndNeutralElementsChangeNothing) {
  const std::vector<float> src{3, -4};
  std::vector<float> dst(2);
  EXPECT_TRUE(scaled_copy(const_view_of<float>(src), 0.5, view_of<float>(dst), {}).ok());
  EXPECT_EQ(dst, (std::vector<float>{1.5f, -2}));
  std::array<std::uint16_t, 1> half{0x3c00};  // 1 in fp16
  const TensorView view(reinterpret_cast<std::byte*>(half.data()), Shape::vector(1), DType::kF16);
  EXPECT_TRUE(scaled_copy(view, 0.1, view, {}).ok());
  EXPECT_EQ(half[0], 0x2e66);  // 0.0999755859375, the fp16 nearest to 0.1
  std::vector<std::int32_t> whole{5};
  EXPECT_EQ(scaled_copy(view_of<std::int32_t>(whole), 2, view_of<std::int32_t>(whole), {}).code(),
            Code::kInvalidArgument);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin}) {
    std::vector<std::int8_t> neutral(3);
    EXPECT_TRUE(fill_neutral(op, view_of<std::int8_t>(neutral), {}).ok());
    const std::vector<std::int8_t> numbers{-128, 0, 127};
    EXPECT_EQ(reduced(op, numbers, neutral), numbers);
    EXPECT_TRUE(fill_neutral(op, view, {}).ok());
    std::array<std::uint16_t, 1> small{0xfbff};  // -65504, the lowest fp16
    const TensorView lowest(reinterpret_cast<std::byte*>(small.data()), Shape::vector(1),
                            DType::kF16);
    EXPECT_TRUE(reduce(op, lowest, view, {}).ok());
    EXPECT_EQ(half[0], 0xfbff);
  }
}

TEST(Ops, SmallFloatsAddInFloatAndRoundOnce) {
  std::vector<float> wide{1.0f, 3.0f};
  std::array<std::uint16_t, 2> a{};
  std::array<std::uint16_t, 2> b{};
  const TensorView va(reinterpret_cast<std::byte*>(a.data()), Shape::vector(2), DType::kBF16);
  const TensorView vb(reinterpret_cast<std::byte*>(b.data()), Shape::vector(2), DType::kBF16);
  EXPECT_TRUE(cast(view_of<float>(wide), va, {}).ok());
  std::vector<float> tiny{0x1p-9f, 1.0f};
  EXPECT_TRUE(cast(view_of<float>(tiny), vb, {}).ok());
  EXPECT_TRUE(reduce(ReduceOp::kSum, vb, va, {}).ok());
  std::vector<float> back(2);
  EXPECT_TRUE(cast(va, view_of<float>(back), {}).ok());
  EXPECT_EQ(back, (std::vector<float>{1.0f, 4.0f}));  // 1 + 2^-9 rounds back to 1 in bfloat16
}

TEST(Ops, GemmByHandInAllFourOrientations) {
  std::vector<double> a{1, 2, 3, 4, 5, 6};      // (2, 3)
  std::vector<double> b{7, 8, 9, 10, 11, 12};   // (3, 2)
  std::vector<double> at{1, 4, 2, 5, 3, 6};     // (3, 2)
  std::vector<double> bt{7, 9, 11, 8, 10, 12};  // (2, 3)
  const std::vector<double> expected{58, 64, 139, 154};
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      std::vector<double> c(4);
      const auto left = ta ? matrix(at, 3, 2) : matrix(a, 2, 3);
      const auto right = tb ? matrix(bt, 2, 3) : matrix(b, 3, 2);
      EXPECT_TRUE(
          gemm(left, right, matrix(c, 2, 2), {.transpose_a = ta, .transpose_b = tb}, {}).ok());
      EXPECT_EQ(c, expected);
    }
  }
  std::vector<double> c(4);
  EXPECT_EQ(gemm(matrix(a, 2, 3), matrix(a, 2, 3), matrix(c, 2, 2), {}, {}).code(),
            Code::kInvalidArgument);
}

TEST(Buffer, IsZeroedAlignedAndRefusesOtherSpaces) {
  auto buffer = Buffer::allocate(100);
  ASSERT_TRUE(buffer.has_value());
  EXPECT_EQ(buffer.value().bytes().size(), 100u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.value().bytes().data()) % 64, 0u);
  for (const std::byte b : buffer.value().bytes()) EXPECT_EQ(b, std::byte{0});
  EXPECT_EQ(Buffer::allocate(1, {MemorySpace::kCuda, 0}).error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace gradwire::ops_test
