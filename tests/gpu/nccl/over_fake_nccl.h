// Tests over the library that plays NCCL: it is open meanwhile, lets ranks share a device, its log
// begins with the test, and no communicator outlives it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/comm/nccl/fake_nccl.h"

namespace gradwire::gpu {

class OverFakeNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    auto fake = nccl_test::FakeNccl::open(GW_FAKE_NCCL);
    ASSERT_TRUE(fake.has_value()) << fake.error().message();
    fake_ = fake.value();
    fake_.take_log();
    ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  }
  void TearDown() override {
    if (fake_.fail == nullptr) return;  // not open
    fake_.fail("", -1);
    EXPECT_EQ(fake_.living(), 0);
    ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  }
  nccl_test::FakeNccl fake_{};
};

}  // namespace gradwire::gpu
