// The laws of Communicator on devices, without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/nccl/nccl_threads.h"
#include "tests/gpu/nccl/over_fake_nccl.h"
#include "tests/gpu/nccl/staged_communicator.h"

namespace gradwire {
namespace {

class NcclLaws : public gpu::OverFakeNccl, public testing::WithParamInterface<int> {};

TEST_P(NcclLaws, HoldOnTheDeviceThatTheHostPlays) {
  const auto faults =
      gpu::on_nccl_threads(GetParam(), {}, {GW_FAKE_NCCL}, [](std::unique_ptr<Communicator> world) {
        const gpu::OwnStream own;
        gpu::StagedCommunicator staged(std::move(world), own.stream().device,
                                       gpu::Serves::kWhatNcclDoes, own.stream().native);
        return gpu::run_device_laws(staged);
      });
  EXPECT_THAT(faults, testing::Each(""));
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclLaws, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace gradwire
