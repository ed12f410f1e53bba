// Which device a rank takes of those that the host plays.
#include "device/rank_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/fails.h"

namespace gradwire::rank_device_test {
namespace {

class RankDevice : public ::testing::Test {
 protected:
  ~RankDevice() override { emulation::play_devices(1); }
};

TEST_F(RankDevice, RanksTakeDevicesInTurn) {
  for (const int devices : {1, 2, 3}) {
    emulation::play_devices(devices);
    for (int local = 0; local < 7; ++local) {
      const auto taken = device_of_rank({}, local);
      ASSERT_TRUE(taken.has_value()) << taken.error().message();
      EXPECT_EQ(taken.value(), (Device{MemorySpace::kCuda, local % devices}));
    }
  }
}

TEST_F(RankDevice, ADeviceThatIsNamedIsThatOneOnEveryRank) {
  emulation::play_devices(3);
  for (int local = 0; local < 4; ++local) {
    EXPECT_EQ(device_of_rank(2, local).value(), (Device{MemorySpace::kCuda, 2}));
  }
}

TEST_F(RankDevice, ADeviceThatIsNotThereIsRefusedWithHowManyAre) {
  emulation::play_devices(3);
  const Status beyond = device_of_rank(3, 0).error();
  EXPECT_EQ(beyond.code(), Code::kInvalidArgument);
  // The one whole sentence of devices.
  EXPECT_EQ(beyond.message(), "CUDA device 3 (expected 0 to 2: 3 are here)");
  EXPECT_EQ(device_of_rank(-1, 0).error().code(), Code::kInvalidArgument);
  emulation::play_devices(1);
  EXPECT_THAT(device_of_rank(1, 0).error(), fails(Code::kInvalidArgument, "CUDA device 1", "0"));
  emulation::play_devices(0);
  for (const std::optional<int> ordinal : {std::optional<int>(), std::optional<int>(0)}) {
    const Status none = device_of_rank(ordinal, 0).error();
    EXPECT_THAT(none, fails(Code::kUnsupported, "cudaErrorNoDevice"));
  }
}

// On device 1, from a thread whose own stays 0.
TEST_F(RankDevice, WhatIsThereIsReadAndComputedThere) {
  emulation::play_devices(2);
  const Device second{MemorySpace::kCuda, 1};
  const std::size_t refused = emulation::calls_on_a_wrong_device();
  const std::size_t launches = emulation::launches_on(1);
  const std::size_t others = emulation::launches_on(0);
  const std::size_t given = emulation::bytes_given_by(1);
  {
    auto memory = Buffer::allocate(12, second);
    ASSERT_TRUE(memory.has_value()) << memory.error().message();
    const Stream stream{second, nullptr};
    const TensorView there(memory.value().bytes().data(), Shape::vector(3), DType::kF32, second);
    const std::vector<float> here{1, 2, 3};
    ASSERT_TRUE(copy_bytes(std::as_bytes(std::span(here)), {}, there.bytes(), second, stream).ok());
    ASSERT_TRUE(scale(there, 2, stream).ok());
    std::vector<float> back(3);
    ASSERT_TRUE(
        copy_bytes(there.bytes(), second, std::as_writable_bytes(std::span(back)), {}, stream)
            .ok());
    ASSERT_TRUE(cuda::synchronize(stream).ok());
    EXPECT_EQ(back, (std::vector<float>{2, 4, 6}));
  }
  EXPECT_GT(emulation::launches_on(1), launches);
  EXPECT_EQ(emulation::launches_on(0), others);
  EXPECT_GE(emulation::bytes_given_by(1), given + 12);
  EXPECT_EQ(emulation::calls_on_a_wrong_device(), refused);
}

// What the emulation would say if somebody forgot the device.
TEST_F(RankDevice, WorkOnAnotherDeviceThanItsMemoryIsRefused) {
  emulation::play_devices(2);
  const auto memory = Buffer::allocate(4, {MemorySpace::kCuda, 1});
  ASSERT_TRUE(memory.has_value());
  const std::size_t refused = emulation::calls_on_a_wrong_device();
  const Stream first{{MemorySpace::kCuda, 0}, nullptr};
  std::vector<std::byte> back(4);
  EXPECT_FALSE(cuda::copy(memory.value().bytes().data(), {MemorySpace::kCuda, 0}, back.data(), {},
                          back.size(), first)
                   .ok());
  EXPECT_EQ(emulation::calls_on_a_wrong_device(), refused + 1);
}

TEST_F(RankDevice, MemoryIsItsDevices) {
  emulation::play_devices(2);
  const Device second{MemorySpace::kCuda, 1};
  auto there = Buffer::allocate(64, second);
  auto pinned = Buffer::allocate(64, {MemorySpace::kPinnedHost, 0});
  ASSERT_TRUE(there.has_value() && pinned.has_value());
  const int here = 0;
  EXPECT_EQ(owner_of_memory(there.value().bytes().data()), second);
  EXPECT_EQ(owner_of_memory(there.value().bytes().data() + 63), second);
  EXPECT_EQ(owner_of_memory(pinned.value().bytes().data()), Device{});
  EXPECT_EQ(owner_of_memory(&here), Device{});
}

}  // namespace
}  // namespace gradwire::rank_device_test
