#include "bench/collective_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/collective_subjects.h"
#include "tests/bench/bench_rows.h"
#include "tests/support/fails.h"

namespace gradwire::bench::collective_bench_test {
namespace {

constexpr Code kInvalid = Code::kInvalidArgument;

CollectiveBenchOptions quick(const std::string& operation) {
  CollectiveBenchOptions options;
  options.operation = operation;
  options.min_bytes = 1;
  options.max_bytes = 40000;
  options.factor = 100;  // sizes 1, 100, 10000
  options.transport = "inproc";
  options.seconds_per_size = 0.001;
  options.min_operations = 3;
  options.max_operations = 5;
  return options;
}

void expect_sane(const CollectiveRow& row) {
  EXPECT_EQ(row.wrong, 0);
  EXPECT_LE(row.time_us.min, row.time_us.p50);
  EXPECT_LE(row.time_us.p50, row.time_us.p99);
  EXPECT_LE(row.time_us.p99, row.time_us.max);
  EXPECT_LE(row.time_us.min, row.time_us.mean);
  EXPECT_LE(row.time_us.mean, row.time_us.max);
  EXPECT_NEAR(row.algbw_gbps * row.time_us.p50, static_cast<double>(row.bytes) * 1e-3, 1e-6);
}

TEST(CollectiveBench, SizesAreRoundedDownToRanksTimesElements) {
  CollectiveBenchOptions options = quick("all_reduce");
  options.algorithm = "ring";
  const auto rows = rows_of(3, options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message();
  ASSERT_EQ(rows.value().size(), 3u);
  EXPECT_EQ(rows.value()[0].bytes, 4);
  EXPECT_EQ(rows.value()[1].bytes, 96);
  EXPECT_EQ(rows.value()[2].bytes, 9996);
  for (const CollectiveRow& row : rows.value()) expect_sane(row);
  EXPECT_EQ(rows.value()[2].wire_bytes, 2 * 2 * 9996 / 3);  // 2 (p-1)/p S
  EXPECT_EQ(rows.value()[2].algorithm, "ring");
  EXPECT_EQ(rows.value()[2].ranks, 3);
}

TEST(CollectiveBench, EveryOperationIsRightAndSendsItsShare) {
  for (const char* operation : {"reduce_scatter", "all_gather", "all_to_all"}) {
    CollectiveBenchOptions options = quick(operation);
    options.algorithm = operation == std::string("all_to_all") ? "pairwise" : "ring";
    const auto rows = rows_of(4, options);
    ASSERT_TRUE(rows.has_value()) << rows.error().message();
    for (const CollectiveRow& row : rows.value()) {
      expect_sane(row);
      EXPECT_EQ(row.wire_bytes, row.bytes * 3 / 4) << operation;
    }
  }
  CollectiveBenchOptions shared = quick("broadcast");
  shared.shared_buffers = true;
  const auto rows = rows_of(2, shared);
  ASSERT_TRUE(rows.has_value()) << rows.error().message();
  for (const CollectiveRow& row : rows.value()) {
    expect_sane(row);
    EXPECT_EQ(row.wire_bytes, row.bytes);
    EXPECT_EQ(row.buffers, "shared");
  }
}

// Every operation, type and reduction, in place and apart: no element wrong, and busbw is algbw
// times the share of S that the best algorithm makes every rank send.
TEST(CollectiveBench, EveryOperationIsRightInAllItsForms) {
  const auto check = [](CollectiveBenchOptions options, double share) {
    options.min_bytes = 5000;
    const auto rows = rows_of(3, options);
    ASSERT_TRUE(rows.has_value()) << rows.error().message();
    ASSERT_EQ(rows.value().size(), 1u);
    const CollectiveRow& row = rows.value().front();
    expect_sane(row);
    EXPECT_NEAR(row.busbw_gbps, share * row.algbw_gbps, 1e-9) << options.operation;
  };
  const std::vector<std::pair<const char*, double>> shares{
      {"all_reduce", 4.0 / 3}, {"reduce_scatter", 2.0 / 3},
      {"all_gather", 2.0 / 3}, {"broadcast", 1},
      {"reduce", 1},           {"gather", 2.0 / 3},
      {"scatter", 2.0 / 3},    {"all_to_all", 2.0 / 3}};
  int turn = 0;
  for (const auto& [operation, share] : shares) {
    for (const bool in_place : {false, true}) {
      CollectiveBenchOptions options = quick(operation);
      options.in_place = in_place;
      options.root = ++turn % 3;
      options.persistent = turn % 2 == 0;
      check(options, share);
    }
  }
  for (const DType dtype :
       {DType::kF64, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kI8, DType::kU8}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin,
                              ReduceOp::kProduct, ReduceOp::kPreMulSum}) {
      const bool scales = op == ReduceOp::kMean || op == ReduceOp::kPreMulSum;
      if (scales && !is_floating(dtype)) continue;
      CollectiveBenchOptions options = quick("all_reduce");
      options.dtype = dtype;
      options.op = op;
      check(options, 4.0 / 3);
    }
  }
  check(quick("send_recv"), 1);
  CollectiveBenchOptions barrier = quick("barrier");
  barrier.max_bytes = 1 << 20;  // one row, whatever the sizes
  check(barrier, 0);
}

TEST(CollectiveBench, SeveralMessagesAreUnderWayAtOnce) {
  for (const bool one_way : {false, true}) {
    CollectiveBenchOptions options = quick("send_recv");
    options.messages = 5;
    options.one_way = one_way;
    const auto rows = rows_of(4, options);
    ASSERT_TRUE(rows.has_value()) << rows.error().message();
    for (const CollectiveRow& row : rows.value()) {
      EXPECT_EQ(row.wrong, 0);
      EXPECT_EQ(row.messages, 5);
      EXPECT_EQ(row.wire_bytes, 5 * row.bytes);
      EXPECT_NEAR(row.algbw_gbps * row.time_us.p50, 5e-3 * static_cast<double>(row.bytes), 1e-6);
    }
  }
  CollectiveBenchOptions many = quick("send_recv");
  many.messages = 0;
  EXPECT_EQ(messages_of(many, 1), 64);
  EXPECT_EQ(messages_of(many, 64 << 20), 4);
  EXPECT_EQ(messages_of(many, 512 << 20), 1);
}

TEST(CollectiveBench, ACompressorSendsFewerBytes) {
  CollectiveBenchOptions options = quick("all_reduce");
  options.min_bytes = 40000;
  options.compressor = "cast:bf16";
  const auto rows = rows_of(2, options);
  ASSERT_TRUE(rows.has_value()) << rows.error().message();
  ASSERT_EQ(rows.value().size(), 1u);
  EXPECT_EQ(rows.value()[0].wrong, 0);
  EXPECT_EQ(rows.value()[0].compressor, "cast:bf16");
  EXPECT_GE(rows.value()[0].wire_bytes, 20000);
  EXPECT_LT(rows.value()[0].wire_bytes, 20200);
  ASSERT_TRUE(rows.value()[0].compressed.has_value());
  const CompressedFigures& figures = *rows.value()[0].compressed;
  EXPECT_EQ(figures.dense_wire_bytes, 40000);
  EXPECT_NEAR(figures.ratio, 2, 0.02);
  EXPECT_GT(figures.error_norm, 0);
  EXPECT_LT(figures.error_norm, 0x1p-8);  // bf16 keeps 8 bits
  EXPECT_GT(figures.dense_time_us_p50, 0);
}

TEST(CollectiveBench, BadOptionsAreRefused) {
  CollectiveBenchOptions options = quick("all_reduce");
  options.factor = 1;
  EXPECT_THAT(rows_of(1, options).error(), fails(kInvalid, "--factor", "got 1"));
  EXPECT_THAT(rows_of(1, quick("scan")).error(), fails(kInvalid, "scan"));
  EXPECT_THAT(rows_of(1, quick("send_recv")).error(),
              fails(kInvalid, "bench send_recv", "1 rank", "2"));
  CollectiveBenchOptions one_way = quick("send_recv");
  one_way.one_way = true;
  EXPECT_THAT(rows_of(3, one_way).error(), fails(kInvalid, "--one-way", "3 ranks", "even"));
  one_way.operation = "all_reduce";
  EXPECT_THAT(rows_of(2, one_way).error(), fails(kInvalid, "--one-way", "send_recv"));
  CollectiveBenchOptions rooted = quick("reduce");
  rooted.root = 2;
  EXPECT_THAT(rows_of(2, rooted).error(),
              fails(kInvalid, "bench reduce", "--root", "0 to 1", "got 2"));
  CollectiveBenchOptions compressed = quick("broadcast");
  compressed.compressor = "qsgd";
  EXPECT_THAT(rows_of(1, compressed).error(),
              fails(kInvalid, "bench broadcast", "--compressor", "all_reduce of f32"));
}

TEST(CollectiveBench, ASpecKeepsTheKeysItHas) {
  EXPECT_EQ(bare_spec("topk:ratio=0.01").value(), "topk:ratio=0.01,min_elems=0,dense_1d=false");
  EXPECT_EQ(bare_spec("topk:min_elems=7|qsgd").value(), "topk:min_elems=7,dense_1d=false|qsgd");
}

}  // namespace
}  // namespace gradwire::bench::collective_bench_test
