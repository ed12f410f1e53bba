// CUDA graphs of exchanges, without a device: over the library that plays NCCL, whose work for a
// captured stream is the graph's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/nccl/capture.h"
#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/gpu/on_device.h"
#include "tests/support/names.h"

namespace gradwire {
namespace {

using testing::Each;

class Capture : public gpu::OverFakeNccl, public testing::WithParamInterface<int> {
 protected:
  static std::vector<std::string> on_ranks(std::string (*check)(Communicator&)) {
    return gpu::on_nccl_threads(
        GetParam(), {.deadline_seconds = 20}, {GW_FAKE_NCCL},
        [check](std::unique_ptr<Communicator> world) { return check(*world); });
  }
};

TEST_P(Capture, AGraphSumsWhatIsThereWhenItIsLaunched) {
  EXPECT_THAT(on_ranks(gpu::check_captured_sums), Each(""));
}
TEST_P(Capture, AGraphsMaximaKeepNans) {
  EXPECT_THAT(on_ranks(gpu::check_captured_maxima), Each(""));
}
TEST_P(Capture, AGraphExchangesPayloads) {
  EXPECT_THAT(on_ranks(gpu::check_captured_payloads), Each(""));
}
TEST_P(Capture, WhatTellsItsCallerIsRefused) {
  EXPECT_THAT(on_ranks(gpu::check_what_no_graph_takes), Each(""));
}

// The host has a part in every operation over messages.
TEST_P(Capture, MessagesAreRefused) {
  auto worlds = make_inproc_communicators(GetParam(), {.deadline_seconds = 20});
  ASSERT_TRUE(worlds.has_value());
  for (auto& world : worlds.value()) {
    const gpu::OnDevice sum = gpu::uploaded(std::vector<float>{1, 2});
    const gpu::CapturedWork captured([&](const Stream& stream) {
      return world
          ->all_reduce(sum.tensor<float>(), ReduceOp::kSum,
                       {.deadline = std::nullopt, .stream = stream})
          .error();
    });
    EXPECT_THAT(captured.error(), tells("CUDA graph"));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Capture, testing::Values(1, 2, 4));

}  // namespace
}  // namespace gradwire
