#include "bench/exact_data.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/elements.h"
#include "device/ops.h"

namespace gradwire::bench::exact_data_test {
namespace {

TensorView tensor_of(std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size() / size_of(dtype))),
          dtype};
}

// Ranks' data combined from the first on, and from the last on, are the answer both times.
TEST(ExactData, TheOrderOfAReductionMakesNoDifference) {
  constexpr int kRanks = 17;
  constexpr std::int64_t kElems = 20000;  // more than two periods
  constexpr std::array kTypes{DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                              DType::kI64, DType::kI32, DType::kI8,  DType::kU8};
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct}) {
      const ExactData data(dtype, op, kRanks);
      for (const bool forwards : {true, false}) {
        std::vector<std::byte> acc(kElems * size_of(dtype)), next(acc.size());
        data.fill(tensor_of(acc, dtype), forwards ? 0 : kRanks - 1, 5);
        for (int k = 1; k < kRanks; ++k) {
          data.fill(tensor_of(next, dtype), forwards ? k : kRanks - 1 - k, 5);
          ASSERT_TRUE(reduce(op, tensor_of(next, dtype), tensor_of(acc, dtype), {}).ok());
        }
        EXPECT_EQ(data.count_wrong_reduction(tensor_of(acc, dtype), 5), 0)
            << to_string(dtype) << " " << to_string(op);
      }
    }
  }
}

TEST(ExactData, EveryWrongElementIsCounted) {
  const ExactData data(DType::kF32, ReduceOp::kSum, 4);
  std::vector<float> values(30000);
  data.fill(view_of(std::span(values)), 2, 0);
  EXPECT_EQ(data.count_wrong(view_of(std::span(values)), 2, 0), 0);
  values[0] += 1;
  values[8191] += 1;
  values[29999] += 1;
  EXPECT_EQ(data.count_wrong(view_of(std::span(values)), 2, 0), 3);
  // Another rank's data, and the own ones shifted by a power of two, are wrong nearly everywhere.
  data.fill(view_of(std::span(values)), 1, 0);
  EXPECT_GT(data.count_wrong(view_of(std::span(values)), 2, 0), 29000);
  data.fill(view_of(std::span(values)), 2, 4096);
  EXPECT_GT(data.count_wrong(view_of(std::span(values)), 2, 0), 29000);
}

}  // namespace
}  // namespace gradwire::bench::exact_data_test
