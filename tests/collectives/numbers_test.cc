// Schedules on numbers: the executor runs every algorithm over the in-process transport, all ranks
// by turns in one thread, whole and cut into small segments.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/small_floats.h"
#include "collectives/schedules/selection.h"
#include "tests/collectives/trial.h"
#include "tests/reference/collectives_reference.h"

namespace gradwire::numbers_test {
namespace {

std::string text_of(const Trial& run) {
  return std::string(schedule_name(run.request.collective)) + " by " +
         std::string(run.request.algorithm) + ", " + std::to_string(run.request.size) + " ranks, " +
         std::to_string(run.request.elems) + " " + std::string(to_string(run.dtype));
}

std::int32_t input(int rank, std::int64_t i) { return reference::input<DType::kI32>(rank, i); }

// Element i of a rank's kOut after a sum of 32-bit integers, rows of n.
std::int32_t wanted(const ScheduleRequest& request, int rank, std::int64_t i) {
  const std::int64_t n = request.elems;
  const auto sum = [&](int ranks, std::int64_t at) {
    std::int32_t total = 0;
    for (int r = 0; r < ranks; ++r) total += input(r, at);
    return total;
  };
  switch (request.collective) {
    case OpKind::kAllReduce:
    case OpKind::kReduce: return sum(request.size, i);
    case OpKind::kReduceScatter: return sum(request.size, rank * n + i);
    case OpKind::kExclusiveScan: return sum(rank, i);
    case OpKind::kBroadcast: return input(request.root, i);
    case OpKind::kScatter: return input(request.root, rank * n + i);
    case OpKind::kAllGather:
    case OpKind::kGather: return input(static_cast<int>(i / n), i % n);
    case OpKind::kAllToAll: return input(static_cast<int>(i / n), rank * n + i % n);
    case OpKind::kSend: return input((rank + request.size - 1) % request.size, i);
    default: return 0;
  }
}

std::int64_t in_elems(const ScheduleRequest& request, int rank) {
  const bool rows = request.collective == OpKind::kReduceScatter ||
                    request.collective == OpKind::kAllToAll ||
                    (request.collective == OpKind::kScatter && rank == request.root);
  if (request.collective == OpKind::kScatter && !rows) return 0;
  return request.elems * (rows ? request.size : 1);
}

void expect_right_sums(const ScheduleRequest& request, bool apart, Segmentation segmentation) {
  Trial run{.request = request, .segmentation = segmentation, .apart = apart};
  for (int r = 0; r < request.size; ++r) {
    run.in.push_back(reference::inputs<DType::kI32>(r, 0, in_elems(request, r)));
  }
  const std::vector<Bytes> before = run.in;
  const Status status = execute(run);
  ASSERT_TRUE(status.ok()) << text_of(run) << ": " << status.message();
  ASSERT_EQ(run.in, before) << text_of(run) << " changed its input";
  for (int r = 0; r < request.size; ++r) {
    if (request.collective == OpKind::kExclusiveScan && r == 0) continue;
    const Bytes& out = run.out[static_cast<std::size_t>(r)];
    for (std::size_t i = 0; i < out.size() / 4; ++i) {
      std::int32_t value = 0;
      std::memcpy(&value, out.data() + 4 * i, 4);
      ASSERT_EQ(value, wanted(request, r, static_cast<std::int64_t>(i)))
          << text_of(run) << ", rank " << r << ", element " << i;
    }
  }
}

constexpr std::array kCollectives{
    OpKind::kAllReduce,     OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kAllToAll,
    OpKind::kBroadcast,     OpKind::kReduce,        OpKind::kGather,    OpKind::kScatter,
    OpKind::kExclusiveScan, OpKind::kSend};

TEST(Numbers, EveryAlgorithmSumsAndMovesWhatItShould) {
  for (const int p : {1, 2, 3, 5, 8, 11}) {
    std::vector<int> node_of;
    for (int r = 0; r < p; ++r) node_of.push_back(r % 3);
    for (const OpKind collective : kCollectives) {
      for (const std::string_view algorithm : algorithms_of(collective)) {
        for (const std::int64_t elems : {0, 1, 7, 1003}) {
          const ScheduleRequest request{.collective = collective,
                                        .algorithm = algorithm,
                                        .size = p,
                                        .elems = elems,
                                        .root = p / 2,
                                        .node_of = node_of};
          expect_right_sums(request, false, {});
          expect_right_sums(request, false, {.segment_bytes = 256, .slots = 3});
          // Short cells are cut too, but not below 12 bytes.
          expect_right_sums(request, false,
                            {.segment_bytes = 256, .least_segment_bytes = 12, .slots = 3});
          if (collective == OpKind::kBroadcast || collective == OpKind::kReduce) {
            ScheduleRequest in_stretches = request;
            in_stretches.stretch_elems = 100;
            expect_right_sums(in_stretches, false, {.segment_bytes = 256, .slots = 3});
          }
          if (collective != OpKind::kAllReduce) continue;
          expect_right_sums(request, true, {.segment_bytes = 256, .slots = 3});
          ScheduleRequest in_stretches = request;
          in_stretches.stretch_elems = 100;
          expect_right_sums(in_stretches, false, {.segment_bytes = 256, .slots = 3});
          expect_right_sums(in_stretches, true, {.segment_bytes = 256, .slots = 4});
        }
      }
    }
  }
}

// bf16 and f16, on awkward fractions.
template <DType kType>
Trial reduced(ScheduleRequest request, ReduceOp op, std::int64_t in_elems) {
  Trial run{.request = request, .dtype = kType, .op = op};
  for (int r = 0; r < request.size; ++r) {
    run.in.push_back(reference::inputs<kType>(r, 0, in_elems));
  }
  const Status status = execute(run);
  EXPECT_TRUE(status.ok()) << text_of(run) << ": " << status.message();
  return run;
}

template <DType kType>
void expect_one_rounding() {
  for (const int p : {2, 3, 7, 16}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const std::int64_t n = 2500;  // more than a block of fold()
      const Bytes right = reference::all_reduce<kType>(op, p, n, true);
      for (const char* algorithm : {"canonical", "direct", "parameter_server"}) {
        const Trial run = reduced<kType>({.algorithm = algorithm, .size = p, .elems = n}, op, n);
        for (const Bytes& out : run.out) EXPECT_EQ(out, right) << text_of(run);
      }
      const Trial reduce = reduced<kType>({.collective = OpKind::kReduce,
                                           .algorithm = "canonical",
                                           .size = p,
                                           .elems = n,
                                           .root = p - 1},
                                          op, n);
      EXPECT_EQ(reduce.out.back(), right);
      const Trial rows = reduced<kType>(
          {.collective = OpKind::kReduceScatter, .algorithm = "canonical", .size = p, .elems = n},
          op, p * n);
      for (int r = 0; r < p; ++r) {
        EXPECT_EQ(rows.out[static_cast<std::size_t>(r)],
                  reference::reduce_scatter<kType>(op, p, r, n, true));
      }
    }
  }
}

TEST(Numbers, RankOrderRoundsHalfPrecisionOnceInAll) {
  expect_one_rounding<DType::kBF16>();
  expect_one_rounding<DType::kF16>();
}

// 1 + 15 times 2^-8: every single addition in bf16 is rounded away, their sum is not.
TEST(Numbers, SmallSummandsSurviveInHalfPrecision) {
  const int p = 16;
  Trial run{.request = {.algorithm = "canonical", .size = p, .elems = 1}, .dtype = DType::kBF16};
  for (int r = 0; r < p; ++r) {
    const std::uint16_t value = bf16_from_float(r == 0 ? 1.0f : 0x1p-8f);
    run.in.emplace_back(2);
    std::memcpy(run.in.back().data(), &value, 2);
  }
  ASSERT_TRUE(execute(run).ok());
  std::uint16_t sum = 0;
  std::memcpy(&sum, run.out[3].data(), 2);
  EXPECT_EQ(float_from_bf16(sum), 1.0f + 0x1p-4f);  // 1.05859375 to the nearest of 1/128
}

TEST(Numbers, ReplicasAreBitIdenticalWhateverTheAlgorithm) {
  for (const int p : {2, 3, 6, 8, 13}) {
    std::vector<int> node_of;
    for (int r = 0; r < p; ++r) node_of.push_back(r / 4);
    for (const std::string_view algorithm : algorithms_of(OpKind::kAllReduce)) {
      const ScheduleRequest request{
          .algorithm = algorithm, .size = p, .elems = 777, .node_of = node_of};
      const Trial mean = reduced<DType::kBF16>(request, ReduceOp::kMean, 777);
      const Trial sum = reduced<DType::kF32>(request, ReduceOp::kSum, 777);
      for (std::size_t r = 1; r < mean.out.size(); ++r) {
        EXPECT_EQ(mean.out[r], mean.out[0]) << text_of(mean) << ", rank " << r;
        EXPECT_EQ(sum.out[r], sum.out[0]) << text_of(sum) << ", rank " << r;
      }
    }
  }
}

// All-reduce of (p, n) elements is reduce-scatter of its rows, then all-gather of them.
template <DType kType>
void expect_composition(ReduceOp op) {
  for (const int p : {2, 3, 4, 7}) {
    const std::int64_t n = 301;
    const Trial whole = reduced<kType>({.algorithm = "ring", .size = p, .elems = p * n}, op, p * n);
    const Trial rows = reduced<kType>(
        {.collective = OpKind::kReduceScatter, .algorithm = "ring", .size = p, .elems = n}, op,
        p * n);
    Trial gathered{
        .request = {.collective = OpKind::kAllGather, .algorithm = "ring", .size = p, .elems = n},
        .dtype = kType,
        .in = rows.out};
    ASSERT_TRUE(execute(gathered).ok());
    EXPECT_EQ(gathered.out, whole.out) << p << " ranks of " << to_string(kType);
  }
}

TEST(Numbers, R3_AllReduceIsReduceScatterThenAllGather) {
  expect_composition<DType::kF32>(ReduceOp::kSum);
  expect_composition<DType::kF32>(ReduceOp::kMean);
  expect_composition<DType::kBF16>(ReduceOp::kMean);
  expect_composition<DType::kF16>(ReduceOp::kSum);
}

}  // namespace
}  // namespace gradwire::numbers_test
