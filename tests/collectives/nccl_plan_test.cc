// What NCCL is asked for each operation, written out by hand.
#include "collectives/device/nccl_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "collectives/plan/arguments.h"
#include "tests/support/fails.h"

namespace gradwire {
namespace {

constexpr Device kCard{MemorySpace::kCuda, 0};
constexpr int kRank = 1;
constexpr int kSize = 3;

// Memory that nobody touches, in floats.
class NcclPlans : public testing::Test {
 protected:
  TensorView at(std::int64_t begin, std::int64_t elems) {
    return {memory_.data() + begin * 4, Shape::vector(elems), DType::kF32, kCard};
  }
  std::string place(const std::byte* data) const {
    if (data == nullptr) return "-";
    if (data == &spare_) return "spare";
    return std::to_string((data - memory_.data()) / 4);
  }
  // "reduce 10 -> 0, 3 f32, peer 2; ...", in elements of the memory.
  std::string text_of(const NcclPlan& plan) const {
    static constexpr const char* kNames[] = {"all_reduce", "reduce", "broadcast", "reduce_scatter",
                                             "all_gather", "send",   "recv"};
    std::string text;
    for (const NcclPlan::Copy& copy : plan.copies) {
      text += "copy " + place(copy.from) + " -> " + place(copy.to) + format(", %zu; ", copy.bytes);
    }
    for (const NcclStep& step : plan.steps) {
      text += std::string(kNames[static_cast<int>(step.kind)]) + " " + place(step.in) + " -> " +
              place(step.out) +
              format(", %lld%s, peer %d; ", static_cast<long long>(step.elems),
                     step.dtype == DType::kU8 ? " u8" : "", step.peer);
    }
    return text + format("%llu bytes", static_cast<unsigned long long>(plan.bytes));
  }
  std::string planned(const OpCall& call) {
    const auto extent = check_call(call, {}, kRank, kSize, kCard);
    if (!extent.has_value()) return std::string(extent.error().message());
    return text_of(plan_nccl(call, extent.value(), 1, kRank, kSize, call.in.data(), &spare_));
  }
  Status refused(const OpCall& call, const OpOptions& options = {}) {
    const auto extent = check_call(call, options, kRank, kSize, kCard);
    return extent.has_value() ? check_nccl_serves(call, options) : extent.error();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(400);
  std::byte spare_{};
};

TEST_F(NcclPlans, ReductionsAreNcclsOwn) {
  EXPECT_EQ(planned({.kind = OpKind::kAllReduce, .in = at(0, 6), .out = at(10, 6)}),
            "all_reduce 0 -> 10, 6, peer 0; 32 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kReduce, .in = at(0, 6), .peer = 2}),
            "reduce 0 -> -, 6, peer 2; 24 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kReduceScatter, .in = at(0, 6), .out = at(2, 2)}),
            "reduce_scatter 0 -> 2, 2, peer 0; 16 bytes");
  const std::vector<TensorView> tensors{at(0, 3), at(20, 6)};
  EXPECT_EQ(planned({.kind = OpKind::kAllReduceFused, .tensors = tensors}),
            "all_reduce 0 -> 0, 3, peer 0; all_reduce 20 -> 20, 6, peer 0; 48 bytes");
}

TEST_F(NcclPlans, RowsOfManyLengthsAreAGroup) {
  const std::vector<std::int64_t> counts{2, 3, 0};
  EXPECT_EQ(
      planned(
          {.kind = OpKind::kReduceScatterV, .in = at(0, 5), .out = at(10, 3), .counts = counts}),
      "reduce 0 -> 10, 2, peer 0; reduce 2 -> 10, 3, peer 1; 8 bytes");
  EXPECT_EQ(
      planned({.kind = OpKind::kAllGatherV, .in = at(30, 3), .out = at(10, 5), .counts = counts}),
      "broadcast 10 -> 10, 2, peer 0; broadcast 30 -> 12, 3, peer 1; 24 bytes");
}

TEST_F(NcclPlans, MovementsAreNcclsOwnOrSendsAndReceives) {
  EXPECT_EQ(planned({.kind = OpKind::kBroadcast, .in = at(0, 4), .out = at(0, 4), .peer = 1}),
            "broadcast 0 -> 0, 4, peer 1; 16 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kAllGather, .in = at(0, 2), .out = at(10, 6)}),
            "all_gather 0 -> 10, 2, peer 0; 16 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kGather, .in = at(0, 2), .peer = 2}),
            "send 0 -> -, 2, peer 2; 8 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kGather, .in = at(0, 2), .out = at(10, 6), .peer = 1}),
            "copy 0 -> 12, 8; recv - -> 10, 2, peer 0; recv - -> 14, 2, peer 2; 0 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kScatter, .in = at(10, 6), .out = at(12, 2), .peer = 1}),
            "send 10 -> -, 2, peer 0; send 14 -> -, 2, peer 2; 16 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kScatter, .out = at(12, 2), .peer = 0}),
            "recv - -> 12, 2, peer 0; 0 bytes");
  const std::vector<std::int64_t> send{1, 2, 0};
  const std::vector<std::int64_t> recv{0, 2, 4};
  EXPECT_EQ(planned({.kind = OpKind::kAllToAllV,
                     .in = at(0, 3),
                     .out = at(10, 6),
                     .counts = send,
                     .recv_counts = recv}),
            "copy 1 -> 10, 8; send 0 -> -, 1, peer 0; recv - -> 12, 4, peer 2; 4 bytes");
  EXPECT_EQ(planned(OpCall::send(at(0, 5), 2)), "send 0 -> -, 5, peer 2; 20 bytes");
  EXPECT_EQ(planned(OpCall::recv(at(0, 5), 0)), "recv - -> 0, 5, peer 0; 0 bytes");
  EXPECT_EQ(planned({.kind = OpKind::kBarrier}),
            "all_reduce spare -> spare, 1 u8, peer 0; 0 bytes");
}

TEST_F(NcclPlans, AnExchangeInPlaceNeedsACopy) {
  const auto needs_copy = [&](TensorView out) {
    const OpCall call{.kind = OpKind::kAllToAll, .in = at(0, 6), .out = out};
    const auto extent = check_call(call, {}, kRank, kSize, kCard);
    return extent.has_value() && needs_copy_of_in(call, extent.value());
  };
  EXPECT_TRUE(needs_copy(at(0, 6)));
  EXPECT_FALSE(needs_copy(at(10, 6)));
}

TEST_F(NcclPlans, WhatNcclDoesNotServeIsRefusedByName) {
  EXPECT_THAT(refused({.kind = OpKind::kExclusiveScan, .in = at(0, 2), .out = at(10, 2)}),
              fails(Code::kUnsupported, "exclusive_scan", "CUDA", "NCCL", "host"));
  EXPECT_THAT(refused(OpCall::send(at(0, 1), 0, 7)),
              fails(Code::kUnsupported, "send", "CUDA", "NCCL", "tag 7", "0"));
  EXPECT_THAT(refused(OpCall::recv(at(0, 1), kAnySource)),
              fails(Code::kUnsupported, "recv", "CUDA", "any source", "peer"));
  EXPECT_THAT(refused({.kind = OpKind::kAllReduce, .in = at(0, 1), .out = at(0, 1)},
                      {.algorithm = "ring", .deadline = {}, .stream = {}}),
              fails(Code::kUnsupported, "all_reduce", "CUDA", "ring", "auto", "nccl"));
}

TEST_F(NcclPlans, TensorsElsewhereAreRefusedByPlace) {
  float here = 0;
  const TensorView host(reinterpret_cast<std::byte*>(&here), Shape::vector(1), DType::kF32);
  EXPECT_THAT(refused({.kind = OpKind::kAllReduce, .in = at(0, 1), .out = host}),
              fails(Code::kInvalidArgument, "all_reduce", "out", "host", "CUDA device 0"));
  const TensorView other(memory_.data(), Shape::vector(1), DType::kF32, {MemorySpace::kCuda, 3});
  EXPECT_THAT(refused({.kind = OpKind::kAllReduce, .in = other, .out = other}),
              fails(Code::kInvalidArgument, "all_reduce", "in", "CUDA device 3", "CUDA device 0"));
}

}  // namespace
}  // namespace gradwire
