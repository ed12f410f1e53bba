// What tests on the emulated device rely on.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/emulated_launch.h"
#include "tests/support/fails.h"

namespace gradwire::emulation_test {
namespace {

constexpr Device kDevice{MemorySpace::kCuda, 0};

// Every thread's number, passed to the thread across the block and through its warp.
struct Rotate {
  static constexpr unsigned kThreads = 96;
  struct Shared {
    std::uint32_t at[kThreads];
  };
  std::uint32_t* out;

  template <class Block>
  void run(Block& block, Shared& shared) const {
    const auto t = static_cast<std::uint32_t>(block.thread());
    shared.at[t] = static_cast<std::uint32_t>(block.block()) * 1000 + t;
    block.barrier();
    std::uint32_t seen = shared.at[kThreads - 1 - t];
    block.barrier();
    shared.at[t] = 0;
    for (unsigned i = 0; i < 3; ++i) seen = block.shuffle(seen, block.lane() + 1);
    const std::uint32_t odd = block.ballot(seen % 2 == 1);
    out[block.block() * kThreads + t] =
        seen + (odd == 0x55555555u || odd == 0xaaaaaaaau ? 0 : 1u << 31);
  }
};

TEST(Emulation, BarriersAndWarpsHandOver) {
  std::vector<std::uint32_t> out(4 * Rotate::kThreads);
  ASSERT_TRUE(cuda::launch("rotate", Rotate{out.data()}, 4, {}).ok());
  for (std::uint32_t b = 0; b < 4; ++b) {
    for (std::uint32_t t = 0; t < Rotate::kThreads; ++t) {
      const std::uint32_t from = t / 32 * 32 + (t + 3) % 32;  // three lanes on
      EXPECT_EQ(out[b * Rotate::kThreads + t], b * 1000 + Rotate::kThreads - 1 - from);
    }
  }
}

struct Count {
  static constexpr unsigned kThreads = 64;
  using Shared = cuda::NothingShared;
  std::uint32_t* sum;
  std::uint64_t* least;

  template <class Block>
  void run(Block& block, Shared&) const {
    block.add(sum, 1);
    block.least(least, 7 + block.thread());
  }
};

TEST(Emulation, AtomicsTakeEveryThread) {
  std::uint32_t sum = 0;
  std::uint64_t least = ~std::uint64_t{0};
  ASSERT_TRUE(cuda::launch("count", Count{&sum, &least}, 5, {}).ok());
  EXPECT_EQ(sum, 5 * 64);
  EXPECT_EQ(least, 7);
}

struct HalfWaits {
  static constexpr unsigned kThreads = 64;
  using Shared = cuda::NothingShared;
  template <class Block>
  void run(Block& block, Shared&) const {
    if (block.thread() < 32) block.barrier();
  }
};

TEST(EmulationDeathTest, AThreadThatWaitsForNobodyEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(static_cast<void>(cuda::launch("half", HalfWaits{}, 1, {})), "threads wait");
}

TEST(Emulation, MemoryThatIsOutIsAStatusThatNamesTheCall) {
  const std::size_t before = emulation::allocations();
  {
    const auto held = Buffer::allocate(10, kDevice);
    ASSERT_TRUE(held.has_value());
    EXPECT_EQ(emulation::allocations(), before + 1);
    emulation::refuse_allocations_after(0);
    const auto none = Buffer::allocate(10, kDevice);
    emulation::refuse_allocations_after(emulation::kEndless);
    ASSERT_FALSE(none.has_value());
    EXPECT_THAT(none.error(),
                fails(Code::kOutOfMemory, "cudaErrorMemoryAllocation", "cudaMallocFromPoolAsync"));
  }
  EXPECT_EQ(emulation::allocations(), before);
}

}  // namespace
}  // namespace gradwire::emulation_test
