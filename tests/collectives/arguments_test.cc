// Every refusal names the operation, the value seen and the value wanted.
#include "collectives/plan/arguments.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gradwire/communicator.h"
#include "tests/support/fails.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::arguments_test {
namespace {

template <typename... Words>
auto refused(const Words&... words) {
  return fails(Code::kInvalidArgument, words...);
}

// Rank 1 of 3, with 40 floats of memory from which tensors are taken.
class Arguments : public ::testing::Test {
 protected:
  TensorView at(std::int64_t begin, std::int64_t count, DType dtype = DType::kF32) {
    return {reinterpret_cast<std::byte*>(memory_.data() + begin), Shape::vector(count), dtype};
  }
  static Result<Extent> check(const OpCall& call, double factor = 1) {
    return check_call(call, {.deadline = {}, .stream = {}, .factor = factor}, 1, 3);
  }
  static Status refusal(const OpCall& call, double factor = 1) {
    return check(call, factor).error();
  }
  std::vector<float> memory_ = std::vector<float>(40);
};

TEST_F(Arguments, RanksOutOfRange) {
  EXPECT_THAT(refusal({.kind = OpKind::kBroadcast, .out = at(0, 4), .peer = 3}),
              refused("broadcast", "root 3", "0 to 2"));
  EXPECT_THAT(refusal({.kind = OpKind::kGatherV, .in = at(0, 4), .peer = -1}),
              refused("gather_v", "root -1", "0 to 2"));
  EXPECT_THAT(refusal({.kind = OpKind::kSend, .in = at(0, 4), .peer = 9}),
              refused("send", "peer 9", "0 to 2"));
  EXPECT_THAT(refusal({.kind = OpKind::kRecv, .out = at(0, 4), .peer = 1}),
              refused("recv", "peer 1"));
}

TEST_F(Arguments, SizesThatDoNotFit) {
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(8, 5)}),
              refused("all_reduce", "out", "5", "4"));
  EXPECT_THAT(refusal({.kind = OpKind::kReduceScatter, .in = at(0, 8), .out = at(20, 3)}),
              refused("reduce_scatter", "in", "8", "9"));
  EXPECT_THAT(refusal({.kind = OpKind::kGather, .in = at(0, 3), .out = at(20, 8), .peer = 1}),
              refused("gather", "out", "8", "9"));
  EXPECT_THAT(refusal({.kind = OpKind::kScatter, .in = at(0, 8), .out = at(20, 3), .peer = 1}),
              refused("scatter", "in", "8", "9"));
  EXPECT_THAT(refusal({.kind = OpKind::kAllToAll, .in = at(0, 8), .out = at(20, 8)}),
              refused("all_to_all", "in", "8", "multiple", "3"));
  EXPECT_THAT(refusal({.kind = OpKind::kReduce, .in = at(0, 3), .out = at(20, 2), .peer = 1}),
              refused("reduce", "out", "2", "3"));
}

// 2^62 floats are, in 64 bits, no bytes; five tensors of 2^61 elements less than none.
TEST_F(Arguments, TensorsTooLongToBeCounted) {
  const TensorView vast = at(0, std::int64_t{1} << 62);
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kExclusiveScan}) {
    EXPECT_THAT(refusal({.kind = kind, .in = vast, .out = vast, .peer = 1}),
                refused("4611686018427387904", "2^50"));
  }
  EXPECT_THAT(refusal({.kind = OpKind::kBroadcast, .out = vast, .peer = 0}), refused("2^50"));
  EXPECT_THAT(refusal({.kind = OpKind::kSend, .in = vast, .peer = 0}), refused("2^50"));
  EXPECT_THAT(refusal({.kind = OpKind::kRecv, .out = at(0, -1), .peer = 0}), refused("-1", "2^50"));
  const std::vector<TensorView> one{vast};
  const std::vector<TensorView> many(5, at(0, std::int64_t{1} << 49));
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduceFused, .tensors = one}), refused("2^50"));
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduceFused, .tensors = many}), refused("2^50"));
}

// 3 rows of 2^63 / 3 + 1 elements and more are, in 64 bits, a few elements or none.
TEST_F(Arguments, RowsTooLongToBeAddedUp) {
  const std::int64_t vast = std::numeric_limits<std::int64_t>::max() / 3 * 2;
  EXPECT_THAT(refusal({.kind = OpKind::kAllGather, .in = at(0, vast), .out = at(0, 0)}),
              refused("all_gather", "3", "6148914691236517204", "2^50"));
  for (const OpKind kind : {OpKind::kGather, OpKind::kAllGather}) {
    EXPECT_EQ(check({.kind = kind, .in = at(0, vast), .out = at(0, 0), .peer = 1}).error().code(),
              Code::kInvalidArgument);
  }
  for (const OpKind kind : {OpKind::kScatter, OpKind::kReduceScatter}) {
    EXPECT_THAT(refusal({.kind = kind, .in = at(0, 8), .out = at(0, vast), .peer = 1}),
                refused("2^50"));
  }
}

TEST_F(Arguments, CountsThatDoNotFit) {
  const std::vector<std::int64_t> two{1, 2};
  const std::vector<std::int64_t> negative{4, -1, 2};
  const std::vector<std::int64_t> vast{1, std::int64_t{1} << 60, 2};
  const std::vector<std::int64_t> good{1, 2, 3};
  const std::vector<std::int64_t> other{1, 3, 3};
  EXPECT_THAT(
      refusal({.kind = OpKind::kAllGatherV, .in = at(0, 2), .out = at(8, 6), .counts = two}),
      refused("all_gather_v", "2", "counts", "3"));
  EXPECT_THAT(refusal({.kind = OpKind::kScatterV, .out = at(0, 2), .peer = 0, .counts = negative}),
              refused("scatter_v", "counts[1]", "-1", "2^50"));
  EXPECT_THAT(refusal({.kind = OpKind::kReduceScatterV, .counts = vast}),
              refused("reduce_scatter_v", "counts[1]", "1152921504606846976", "2^50"));
  EXPECT_THAT(refusal({.kind = OpKind::kGatherV, .in = at(0, 3), .peer = 0, .counts = good}),
              refused("gather_v", "in", "3", "2"));
  EXPECT_THAT(refusal({.kind = OpKind::kAllToAllV,
                       .in = at(0, 6),
                       .out = at(8, 7),
                       .counts = good,
                       .recv_counts = other}),
              refused("all_to_all_v", "2", "3", "itself"));
}

TEST_F(Arguments, TypesAndReductions) {
  EXPECT_THAT(refusal({.kind = OpKind::kAllGather, .in = at(0, 2), .out = at(8, 6, DType::kI32)}),
              refused("all_gather", "f32", "i32"));
  const TensorView whole = at(0, 4, DType::kI32);
  EXPECT_THAT(
      refusal({.kind = OpKind::kAllReduce, .in = whole, .out = whole, .op = ReduceOp::kMean}),
      refused("all_reduce", "mean", "i32"));
  EXPECT_THAT(
      refusal({.kind = OpKind::kReduce, .in = whole, .op = ReduceOp::kPreMulSum, .peer = 0}, 2),
      refused("reduce", "pre_mul_sum", "i32"));
  EXPECT_THAT(
      refusal(
          {.kind = OpKind::kExclusiveScan, .in = at(0, 4), .out = at(0, 4), .op = ReduceOp::kMean}),
      refused("exclusive_scan", "mean", "sum", "pre_mul_sum", "product", "min", "max"));
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(0, 4)}, 0.5),
              refused("all_reduce", "factor 0.5", "pre_mul_sum", "1"));
  EXPECT_THAT(
      refusal(
          {.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(0, 4), .op = ReduceOp::kPreMulSum},
          std::numeric_limits<double>::infinity()),
      refused("all_reduce", "factor inf", "finite"));
}

TEST_F(Arguments, OverlapsThatAreNotInPlace) {
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduce, .in = at(0, 4), .out = at(3, 4)}),
              refused("all_reduce", "out", "in", "12", "0"));
  EXPECT_THAT(refusal({.kind = OpKind::kReduceScatter, .in = at(0, 9), .out = at(0, 3)}),
              refused("reduce_scatter", "out", "in", "0", "12"));
  const std::vector<std::int64_t> sent{1, 2, 3};
  const std::vector<std::int64_t> received{3, 2, 1};
  EXPECT_THAT(refusal({.kind = OpKind::kAllToAllV,
                       .in = at(0, 6),
                       .out = at(0, 6),
                       .counts = sent,
                       .recv_counts = received}),
              refused("all_to_all_v", "out", "in", "0", "no overlap"));
  const std::vector<TensorView> tensors{at(4, 4), at(0, 5)};
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduceFused, .tensors = tensors}),
              refused("all_reduce_fused", "tensors", "disjoint"));
  const std::vector<TensorView> mixed{at(0, 4), at(8, 4, DType::kI32)};
  EXPECT_THAT(refusal({.kind = OpKind::kAllReduceFused, .tensors = mixed}),
              refused("all_reduce_fused", "tensors", "f32", "i32"));
}

TEST_F(Arguments, InPlaceIsTheRowOfTheOwnRank) {
  const auto gather = check({.kind = OpKind::kAllGather, .in = at(3, 3), .out = at(0, 9)});
  ASSERT_TRUE(gather.has_value()) << gather.error().message();
  EXPECT_EQ(gather.value().shared, 3);
  EXPECT_EQ(gather.value().out_begin, 3);
  const std::vector<std::int64_t> counts{5, 2, 1};
  const auto scatter = check(
      {.kind = OpKind::kScatterV, .in = at(0, 8), .out = at(5, 2), .peer = 1, .counts = counts});
  ASSERT_TRUE(scatter.has_value()) << scatter.error().message();
  EXPECT_EQ(scatter.value().shared, 2);
  EXPECT_EQ(scatter.value().in_begin, 5);
  const auto apart = check({.kind = OpKind::kAllGather, .in = at(20, 3), .out = at(0, 9)});
  ASSERT_TRUE(apart.has_value()) << apart.error().message();
  EXPECT_EQ(apart.value().shared, 0);
}

TEST_F(Arguments, OthersNeedNotBringRootsTensor) {
  const auto reduce = check({.kind = OpKind::kReduce, .in = at(0, 3), .peer = 2});
  ASSERT_TRUE(reduce.has_value()) << reduce.error().message();
  EXPECT_EQ(reduce.value().out, 0);
  const auto broadcast = check({.kind = OpKind::kBroadcast, .out = at(0, 3), .peer = 2});
  ASSERT_TRUE(broadcast.has_value()) << broadcast.error().message();
  EXPECT_EQ(broadcast.value().in, 0);
  EXPECT_EQ(broadcast.value().agreed, 3);
}

// What a process uses of its address space, in bytes.
rlim_t address_space() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

// Rank 1 speaks of 8 GiB where a process may have 2 more.
int gather_too_much() {
  auto made = make_inproc_communicators(2, {.deadline_seconds = 20});
  if (!made.has_value()) return 100;
  const rlim_t most = address_space() + (rlim_t{2} << 30);
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 101;
  const auto outcomes = on_threads<Status>(2, [&](int r) -> Status {
    const auto world = std::move(made.value()[static_cast<std::size_t>(r)]);
    const std::byte byte{};
    std::vector<std::byte> all;
    std::vector<std::int64_t> lengths;
    const ConstByteSpan said(&byte, r == 0 ? 1 : std::size_t{8} << 30);
    return world->all_gather_unsized(said, all, lengths).error();
  });
  int wrong = 0;
  for (const Status& outcome : outcomes) {
    const bool named = names(outcome.message(), "rank 1");
    wrong += outcome.code() == Code::kOutOfMemory && named ? 0 : 1;
  }
  return wrong;
}

TEST(AllGatherUnsized, LengthsThatThereIsNoMemoryForAreAnError) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(60);
    _exit(gather_too_much());
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gradwire::arguments_test
