// Tests over the library that plays NCCL: it is open meanwhile, its log begins with the test, what
// is enqueued on a stream runs behind what that stream was given before, and no communicator
// outlives it.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "tests/comm/nccl/fake_nccl.h"
#include "tests/emulation/queues.h"

namespace gradwire::gpu {

class OverFakeNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    auto fake = nccl_test::FakeNccl::open(GW_FAKE_NCCL);
    ASSERT_TRUE(fake.has_value()) << fake.error().message();
    fake_ = fake.value();
    // The library has run what it is given when its call returns: too early on a device that comes
    // to copies later than it is told.
    const nccl_test::FakeNccl::Catcher behind = [](void* stream, const std::function<void()>&) {
      emulation::drain(static_cast<CUstream_st*>(stream));
      return false;
    };
    fake_.capture(&behind);
    fake_.take_log();
  }
  void TearDown() override {
    if (fake_.fail == nullptr) return;  // not open
    fake_.fail("", -1);
    fake_.capture(nullptr);
    EXPECT_EQ(fake_.living(), 0);
  }
  nccl_test::FakeNccl fake_{};
};

}  // namespace gradwire::gpu
