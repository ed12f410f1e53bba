// What `gradwire bench` measures with tensors on a device is what it says, and right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/bench_rows.h"
#include "tests/gpu/on_device.h"
#include "tests/support/fails.h"

namespace gradwire::bench::bench_test {
namespace {

constexpr int kRanks = 3;

CollectiveBenchOptions on_device(const std::string& operation) {
  CollectiveBenchOptions options;
  options.operation = operation;
  options.min_bytes = 400;
  options.max_bytes = 40000;
  options.factor = 100;
  options.transport = "inproc";
  options.device = gpu::kFirst;
  options.bind = false;
  options.seconds_per_size = 0.001;
  options.min_operations = 2;
  options.max_operations = 3;
  return options;
}

class BenchOnDevice : public ::testing::TestWithParam<std::string> {};

TEST_P(BenchOnDevice, EveryOperationIsRight) {
  CollectiveBenchOptions options = on_device(GetParam());
  for (const bool in_place : {false, true}) {
    if (in_place && GetParam() == "send_recv") continue;
    options.in_place = in_place;
    const auto rows = rows_of(kRanks, options);
    ASSERT_TRUE(rows.has_value()) << rows.error().message();
    EXPECT_EQ(rows.value().size(), GetParam() == "barrier" ? 1u : 2u);
    for (const CollectiveRow& row : rows.value()) {
      EXPECT_EQ(row.wrong, 0);
      EXPECT_TRUE(row.checked);
      EXPECT_EQ(row.buffers, "cuda:0");
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Operations, BenchOnDevice, ::testing::ValuesIn(bench_operations()));

TEST(BenchOnDevice, CompressedAveragesAreAlikeOnAllRanks) {
  for (const std::string spec : {"qsgd:bits=8", "topk:ratio=0.1,ef=ef14", "powersgd:rank=2"}) {
    CollectiveBenchOptions options = on_device("all_reduce");
    options.compressor = spec;
    const auto rows = rows_of(kRanks, options);
    ASSERT_TRUE(rows.has_value()) << spec << ": " << rows.error().message();
    for (const CollectiveRow& row : rows.value()) {
      EXPECT_EQ(row.wrong, 0) << spec;
      ASSERT_TRUE(row.compressed.has_value());
      EXPECT_GT(row.compressed->error_norm, 0);
      EXPECT_LT(row.compressed->error_norm, 1);
      EXPECT_GT(row.compressed->ratio, 1);
    }
  }
}

TEST(BenchOnDevice, SharedBuffersAreTheHosts) {
  CollectiveBenchOptions options = on_device("all_reduce");
  options.shared_buffers = true;
  const auto rows = rows_of(kRanks, options);
  ASSERT_FALSE(rows.has_value());
  EXPECT_THAT(rows.error(), fails(Code::kInvalidArgument, "--buffers shared", "--device cpu"));
}

}  // namespace
}  // namespace gradwire::bench::bench_test
