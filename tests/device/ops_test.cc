#include "device/ops.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "base/elements.h"
#include "gradwire/buffer.h"

namespace gradwire {
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
}  // namespace gradwire
