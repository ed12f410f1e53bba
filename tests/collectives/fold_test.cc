#include "collectives/engine/fold.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/small_floats.h"
#include "tests/support/fails.h"

namespace gradwire::fold_test {
namespace {

using Halves = std::vector<std::uint16_t>;

Halves bf16(std::int64_t count, float value) {
  return Halves(static_cast<std::size_t>(count), bf16_from_float(value));
}

TensorView view(Halves& values) {
  return {reinterpret_cast<std::byte*>(values.data()),
          Shape::vector(static_cast<std::int64_t>(values.size())), DType::kBF16};
}

// bf16 keeps 7 bits behind the leading one: 1 + 2^-8 is a tie that goes to 1, 1 + 2^-7 is not.
TEST(Fold, RoundsHalfPrecisionOnce) {
  for (const std::int64_t count : {1, 7, 2048, 2049, 5000}) {  // about a block of 2048
    Halves acc = bf16(count, 1.0f);
    Halves first = bf16(count, 0x1p-8f);
    Halves second = bf16(count, 0x1p-8f);
    const std::vector<ConstTensorView> sources{view(first), view(second)};
    ASSERT_TRUE(fold(ReduceOp::kSum, sources, view(acc), std::nullopt).ok());
    EXPECT_EQ(acc, bf16(count, 1.0f + 0x1p-7f)) << count;
    EXPECT_EQ(first, bf16(count, 0x1p-8f));
  }
}

// (1 + 2^-8) * 1.5 = 1.505859375 lies just above the middle of the neighbours 1.5 and 1.5078125; if
// the sum were rounded first, to 1, the product would be 1.5.
TEST(Fold, TheFactorBelongsToTheSameRounding) {
  Halves acc = bf16(3, 1.0f);
  Halves source = bf16(3, 0x1p-8f);
  const std::vector<ConstTensorView> sources{view(source)};
  ASSERT_TRUE(fold(ReduceOp::kSum, sources, view(acc), 1.5).ok());
  EXPECT_EQ(acc, bf16(3, 1.5078125f));
}

TEST(Fold, KeepsTheOrderOfTheSources) {
  std::vector<float> acc{1e8f};
  std::vector<float> big{-1e8f};
  std::vector<float> small{3.0f};
  const auto of = [](std::vector<float>& values) {
    return TensorView(reinterpret_cast<std::byte*>(values.data()), Shape::vector(1), DType::kF32);
  };
  const std::vector<ConstTensorView> sources{of(big), of(small)};
  ASSERT_TRUE(fold(ReduceOp::kSum, sources, of(acc), 0.5).ok());
  EXPECT_EQ(acc[0], 1.5f);  // small first: 1e8 + 3 is 1e8 in fp32, and the result 0
}

TEST(Fold, RefusesOperandsThatDoNotFit) {
  Halves acc = bf16(3, 1.0f);
  Halves one = bf16(3, 1.0f);
  Halves longer = bf16(4, 1.0f);
  const std::vector<ConstTensorView> sources{view(one), view(longer)};
  const Status status = fold(ReduceOp::kSum, sources, view(acc), std::nullopt);
  EXPECT_THAT(status, fails(Code::kInvalidArgument, "4", "bf16"));
}

}  // namespace
}  // namespace gradwire::fold_test
