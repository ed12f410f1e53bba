// Who has a context on which device: CUDA makes one wherever a call finds no other, and that costs
// memory there which ranks of other devices want.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "device/cuda/driver.h"
#include "device/cuda/launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "device/patience.h"
#include "device/rank_device.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/support/fails.h"

namespace gradwire::contexts_test {
namespace {

constexpr Device kFirst{MemorySpace::kCuda, 0};
constexpr Device kSecond{MemorySpace::kCuda, 1};
constexpr Device kPinned{MemorySpace::kPinnedHost, 0};

// In ample time.
bool passes(const cuda::Event& event) {
  constexpr double kSeconds = 20;
  const auto passed = poll_until([&] { return event.passed(); }, deadline_in(kSeconds));
  return passed.has_value() && passed.value();
}

class Contexts : public ::testing::Test {
 protected:
  Contexts() {
    emulation::play_devices(2);
    emulation::forget_contexts();
  }
  ~Contexts() override { emulation::play_devices(1); }
  // In a thread that has not called CUDA.
  static void afresh(const std::function<void()>& work) { std::thread(work).join(); }
};

TEST_F(Contexts, WorkOnADeviceLeavesNoneOnTheFirst) {
  afresh([] {
    const auto there = Buffer::allocate(64, kSecond);
    const auto here = Buffer::allocate(64, kPinned);
    const auto stream = cuda::OwnedStream::create(kSecond);
    auto event = cuda::Event::create(kSecond);
    ASSERT_TRUE(there.has_value() && here.has_value() && stream.has_value() && event.has_value());
    const Stream lent = stream.value().stream();
    EXPECT_TRUE(
        copy_bytes(there.value().bytes(), kSecond, here.value().bytes(), kPinned, lent).ok());
    EXPECT_TRUE(event.value().record(lent).ok());
    EXPECT_TRUE(passes(event.value()));
    EXPECT_TRUE(cuda::synchronize(lent).ok());
    const auto scratch = [] {
      const cuda::OnDevice second(kSecond);
      return cuda::Scratch::allocate(64, {kSecond, nullptr});
    }();
    EXPECT_TRUE(scratch.has_value());
    EXPECT_EQ(cuda::current_context(), nullptr);
  });
  EXPECT_TRUE(emulation::has_context_on(1));
  EXPECT_FALSE(emulation::has_context_on(0));
}

TEST_F(Contexts, ThreadsThatOnlyLookHaveNoneOnTheFirstEither) {
  afresh([] {
    auto stream = cuda::OwnedStream::create(kSecond);
    auto event = cuda::Event::create(kSecond);
    ASSERT_TRUE(stream.has_value() && event.has_value());
    EXPECT_TRUE(event.value().record(stream.value().stream()).ok());
    afresh([&] {
      EXPECT_TRUE(passes(event.value()));
      const auto pinned = Buffer::allocate(64, kPinned);
      const cuda::Event gone = std::move(event).value();
      const cuda::OwnedStream gone_too = std::move(stream).value();
    });
  });
  EXPECT_FALSE(emulation::has_context_on(0));
}

TEST_F(Contexts, AThreadsOwnDeviceIsBackAfterwards) {
  afresh([] {
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    {
      const cuda::OnDevice first(kFirst);
      EXPECT_TRUE(first.status().ok());
      int current = -1;
      EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
      EXPECT_EQ(current, 0);
      { const cuda::OnDevice second(kSecond); }
      EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
      EXPECT_EQ(current, 0);
    }
    int current = -1;
    EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
    EXPECT_EQ(current, 1);
  });
}

TEST_F(Contexts, AThreadOfADeviceKeepsIt) {
  afresh([] {
    const ThreadOnDevice mine(kSecond);
    { const cuda::OnDevice again(kSecond); }
    EXPECT_NE(cuda::current_context(), nullptr);
    const ThreadOnDevice none(Device{});
    EXPECT_NE(cuda::current_context(), nullptr);
  });
  EXPECT_FALSE(emulation::has_context_on(0));
}

TEST_F(Contexts, PeersReachAPoolWhenTheyAreLet) {
  EXPECT_FALSE(emulation::may_use_memory_of(0, 1));
  EXPECT_TRUE(cuda::let_peers_reach(kSecond).ok());
  EXPECT_TRUE(emulation::may_use_memory_of(0, 1));
  EXPECT_FALSE(emulation::may_use_memory_of(1, 0));
}

TEST(Launches, MoreBlocksThanCudaHasAreRefusedByName) {
  const Status refused = cuda::too_many_blocks("many", std::int64_t{1} << 31);
  EXPECT_THAT(refused, fails(Code::kInvalidArgument, "many", "2147483648", "2147483647"));
}

}  // namespace
}  // namespace gradwire::contexts_test
