// What tests on the emulated device rely on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <numeric>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "device/cuda/driver.h"
#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "device/ops.h"
#include "device/patience.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/emulation/emulated_launch.h"
#include "tests/support/fails.h"

namespace gradwire::emulation_test {
namespace {

using emulation::allocations;
using emulation::guards_device_memory;
using emulation::hold;
using emulation::release;
using emulation::run_on;

constexpr Device kDevice{MemorySpace::kCuda, 0};
constexpr Device kPinned{MemorySpace::kPinnedHost, 0};
constexpr Stream kDefault{kDevice, nullptr};

Buffer make_buffer(std::size_t bytes, Device device) {
  auto made = Buffer::allocate(bytes, device);
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

cuda::OwnedStream make_stream() {
  auto made = cuda::OwnedStream::create_apart(kDevice);
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

// What a number on the device is when the stream has run all.
std::uint32_t read(const Buffer& from, const Stream& stream) {
  std::uint32_t value = 0;
  EXPECT_TRUE(copy_bytes(from.bytes().first(sizeof value), kDevice,
                         std::as_writable_bytes(std::span(&value, 1)), Device{}, stream)
                  .ok());
  EXPECT_TRUE(cuda::synchronize(stream).ok());
  return value;
}

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
  ASSERT_TRUE(cuda::launch("rotate", Rotate{out.data()}, 4, kDefault).ok());
  ASSERT_TRUE(cuda::synchronize(kDefault).ok());
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
  ASSERT_TRUE(cuda::launch("count", Count{&sum, &least}, 5, kDefault).ok());
  ASSERT_TRUE(cuda::synchronize(kDefault).ok());
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
  EXPECT_DEATH(
      {
        static_cast<void>(cuda::launch("half", HalfWaits{}, 1, kDefault));
        static_cast<void>(cuda::synchronize(kDefault));
      },
      "threads wait.*\n.*GRADWIRE_EMULATION_SEED=");
}

// Writes down in which order the blocks run.
struct Order {
  static constexpr unsigned kThreads = 32;
  using Shared = cuda::NothingShared;
  std::uint32_t* count;
  std::uint32_t* order;

  template <class Block>
  void run(Block& block, Shared&) const {
    if (block.thread() == 0) order[block.add(count, 1)] = static_cast<std::uint32_t>(block.block());
  }
};

std::vector<std::uint32_t> order_of(unsigned blocks) {
  std::uint32_t count = 0;
  std::vector<std::uint32_t> order(blocks);
  EXPECT_TRUE(cuda::launch("order", Order{&count, order.data()}, blocks, kDefault).ok());
  EXPECT_TRUE(cuda::synchronize(kDefault).ok());
  EXPECT_EQ(count, blocks);
  return order;
}

TEST(Emulation, BlocksRunInARandomOrder) {
  constexpr unsigned kBlocks = 50;
  const std::vector<std::uint32_t> first = order_of(kBlocks);
  const std::vector<std::uint32_t> second = order_of(kBlocks);
  EXPECT_NE(first, second);
  std::vector<std::uint32_t> all(kBlocks);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_TRUE(std::ranges::is_permutation(first, all));
  EXPECT_NE(first, all);
}

struct Set {
  static constexpr unsigned kThreads = 32;
  using Shared = cuda::NothingShared;
  std::uint32_t* to;
  std::uint32_t value;

  template <class Block>
  void run(Block& block, Shared&) const {
    if (block.thread() == 0) *to = value;
  }
};

Status set(const Buffer& to, std::uint32_t value, const Stream& stream) {
  return cuda::launch("set", Set{reinterpret_cast<std::uint32_t*>(to.bytes().data()), value}, 1,
                      stream);
}

TEST(Emulation, KernelsRunWhenTheirStreamComesToThem) {
  const cuda::OwnedStream held = make_stream();
  const cuda::OwnedStream other = make_stream();
  const Buffer number = make_buffer(sizeof(std::uint32_t), kDevice);
  hold(held.stream().native);
  ASSERT_TRUE(set(number, 7, held.stream()).ok());
  EXPECT_EQ(read(number, other.stream()), 0U);
  release(held.stream().native);
  EXPECT_EQ(read(number, held.stream()), 7U);
}

std::uint32_t read_at(std::byte* from, const Stream& stream) {
  const Buffer to = make_buffer(sizeof(std::uint32_t), kPinned);
  EXPECT_TRUE(copy_bytes({from, to.bytes().size()}, kDevice, to.bytes(), kPinned, stream).ok());
  EXPECT_TRUE(cuda::synchronize(stream).ok());
  std::uint32_t value = 0;
  std::memcpy(&value, to.bytes().data(), sizeof value);
  return value;
}

// What another stream has written there before is gone then.
TEST(Emulation, MemoryOfAPoolComesWhenItsStreamDoes) {
  const cuda::OwnedStream owner = make_stream();
  const cuda::OwnedStream early = make_stream();
  hold(owner.stream().native);
  {
    const auto made = cuda::Scratch::allocate(sizeof(std::uint32_t), owner.stream());
    ASSERT_TRUE(made.has_value());
    auto* const number = made.value().as<std::uint32_t>();
    ASSERT_TRUE(cuda::launch("set", Set{number, 7}, 1, early.stream()).ok());
    EXPECT_EQ(read_at(made.value().as<std::byte>(), early.stream()), 7U);
    release(owner.stream().native);
    EXPECT_NE(read_at(made.value().as<std::byte>(), owner.stream()), 7U);
    ASSERT_TRUE(cuda::launch("set", Set{number, 8}, 1, owner.stream()).ok());
    EXPECT_EQ(read_at(made.value().as<std::byte>(), owner.stream()), 8U);
  }
  EXPECT_TRUE(cuda::synchronize(owner.stream()).ok());
}

// What is freed is there again when its stream has come to that.
TEST(Emulation, MemoryIsShortWhileFreesAreStillToCome) {
  const cuda::OwnedStream stream = make_stream();
  emulation::limit_memory(64);
  {
    const auto all = cuda::Scratch::allocate(64, stream.stream());
    EXPECT_TRUE(all.has_value());
    hold(stream.stream().native);
  }
  EXPECT_FALSE(cuda::Scratch::allocate(64, stream.stream()).has_value());
  release(stream.stream().native);
  EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
  EXPECT_TRUE(cuda::Scratch::allocate(64, stream.stream()).has_value());
  emulation::limit_memory(emulation::kEndless);
}

// That it was set before does not count.
TEST(Emulation, AWordIsReadWhenItsStreamComesToIt) {
  const cuda::OwnedStream stream = make_stream();
  hold(stream.stream().native);
  std::uint32_t word = 0;
  ASSERT_TRUE(cuda::wait_for_word(stream.stream().native, &word));
  cuda::set_word(&word);
  word = 0;
  release(stream.stream().native);
  {
    const DevicePatience patience(0.1);
    EXPECT_THAT(cuda::synchronize(stream.stream()), fails(Code::kTimedOut));
  }
  cuda::set_word(&word);
  EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
}

// Each one's work waits for the other's.
TEST(Emulation, StreamsRunBesideEachOther) {
  const cuda::OwnedStream streams[] = {make_stream(), make_stream()};
  std::array<std::promise<void>, 2> begun;
  for (const std::size_t i : {0, 1}) {
    run_on(streams[i].stream().native, [&, i] {
      begun[i].set_value();
      begun[1 - i].get_future().wait();
    });
  }
  for (const cuda::OwnedStream& stream : streams) {
    EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
  }
}

// One stream writes, another one reads: how often of many times it has read what was there before.
int early_reads(bool waits) {
  int early = 0;
  for (std::uint32_t time = 1; time <= 64; ++time) {
    const cuda::OwnedStream writes = make_stream();
    const cuda::OwnedStream reads = make_stream();
    const Buffer number = make_buffer(sizeof(std::uint32_t), kDevice);
    EXPECT_TRUE(set(number, time, writes.stream()).ok());
    auto point = cuda::Event::create(kDevice);
    EXPECT_TRUE(point.has_value() && point.value().record(writes.stream()).ok());
    if (waits) {
      EXPECT_TRUE(point.value().before(reads.stream()).ok());
    }
    if (read(number, reads.stream()) != time) ++early;
    EXPECT_TRUE(cuda::synchronize(writes.stream()).ok());
  }
  return early;
}

TEST(Emulation, AWaitThatIsMissingShows) {
  EXPECT_EQ(early_reads(true), 0);
  EXPECT_GE(early_reads(false), 8);
}

// Whatever it was, until the copy has come.
TEST(Emulation, TheDestinationOfACopyIsSpoiledAtOnce) {
  const Buffer from = make_buffer(4096, kDevice);
  const Buffer to = make_buffer(4096, kPinned);
  for (int time = 0; time < 20; ++time) {
    const cuda::OwnedStream stream = make_stream();
    std::ranges::fill(to.bytes(), std::byte{1});
    ASSERT_TRUE(copy_bytes(from.bytes(), kDevice, to.bytes(), kPinned, stream.stream()).ok());
    EXPECT_NE(to.bytes()[0], std::byte{1});
    ASSERT_TRUE(cuda::synchronize(stream.stream()).ok());
    EXPECT_TRUE(std::ranges::all_of(to.bytes(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

// As CUDA may, where the host's memory is not pinned.
TEST(Emulation, CopiesOfMemoryThatIsNotPinnedMayWait) {
  const Buffer there = make_buffer(sizeof(std::uint32_t), kDevice);
  const auto wait = [&](Device host, bool held) {
    const Buffer here = make_buffer(sizeof(std::uint32_t), host);
    const cuda::OwnedStream stream = make_stream();
    if (held) hold(stream.stream().native);
    std::atomic<bool> released = false;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      released = true;
      release(stream.stream().native);
    });
    emulation::wait_in_copies(held);
    EXPECT_TRUE(copy_bytes(there.bytes(), kDevice, here.bytes(), host, stream.stream()).ok());
    emulation::wait_in_copies(false);
    const bool waited = held ? released.load() : here.bytes()[0] == std::byte{0};
    later.join();
    EXPECT_TRUE(cuda::synchronize(stream.stream()).ok());
    return waited;
  };
  EXPECT_FALSE(wait(kPinned, true));
  EXPECT_TRUE(wait(Device{}, true));
  int waits = 0;
  for (int i = 0; i < 20; ++i) waits += wait(Device{}, false) ? 1 : 0;
  EXPECT_GE(waits, 1);
  EXPECT_LE(waits, 19);
}

TEST(Emulation, TheDefaultStreamAndStreamsThatGoWithItWaitForEachOther) {
  auto made = cuda::OwnedStream::create(kDevice);
  ASSERT_TRUE(made.has_value());
  const Stream with_default = made.value().stream();
  const Buffer number = make_buffer(sizeof(std::uint32_t), kDevice);
  for (std::uint32_t time = 1; time <= 32; ++time) {
    ASSERT_TRUE(set(number, time, time % 2 == 0 ? with_default : kDefault).ok());
    EXPECT_EQ(read(number, time % 2 == 0 ? kDefault : with_default), time);
  }
}

TEST(EmulationDeathTest, AnAccessOfTheHostToDeviceMemoryEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  if (!guards_device_memory()) GTEST_SKIP() << "no protection keys for pages here";
  const Buffer there = make_buffer(16, kDevice);
  EXPECT_DEATH(there.bytes()[3] = std::byte{1}, "host touched memory of a device");
  EXPECT_DEATH(EXPECT_EQ(there.bytes()[3], std::byte{0}), "host touched memory of a device");
}

struct WriteBehind {
  static constexpr unsigned kThreads = 32;
  using Shared = cuda::NothingShared;
  std::byte* end;
  template <class Block>
  void run(Block& block, Shared&) const {
    end[block.thread()] = std::byte{0};
  }
};

TEST(EmulationDeathTest, WhatIsWrittenBehindABlockEndsTheProgram) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        {
          const Buffer small = make_buffer(100, kDevice);
          static_cast<void>(
              cuda::launch("behind", WriteBehind{small.bytes().data() + 90}, 1, kDefault));
        }
        static_cast<void>(allocations());
      },
      "behind a block of 100 bytes");
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
