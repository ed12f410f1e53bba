#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "comm/shm/arena.h"
#include "comm/shm/bell.h"
#include "comm/shm/peer_memory.h"

namespace {
std::atomic<int> interruptions{0};
}  // namespace

// What the library calls: the system call, but that a signal may come first.
ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count,
                         const iovec* remote, unsigned long remote_count,
                         unsigned long flags) noexcept {
  if (interruptions > 0) {
    --interruptions;
    errno = EINTR;
    return -1;
  }
  return syscall(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}

namespace gradwire::shm {
namespace {

TEST(PeerMemory, AnInterruptedCallIsNoEndOfTheProcess) {
  const OwnNonce nonce;
  interruptions = 3;
  EXPECT_TRUE(can_read(nonce.process()));
  EXPECT_EQ(interruptions, 0);
  const int nowhere = -1;
  EXPECT_FALSE(can_read({.nonce = 1, .nonce_address = 8, .pid = nowhere}));
}

constexpr std::uint64_t kPage = Region::kPage;

TEST(ShmRegion, TakesTheFirstGapAndJoinsWhatComesBack) {
  Region region(kPage, 11 * kPage);
  EXPECT_EQ(region.take(1), kPage);
  EXPECT_EQ(region.take(2 * kPage), 2 * kPage);
  EXPECT_EQ(region.take(3 * kPage + 1), 4 * kPage);
  EXPECT_EQ(region.free_bytes(), 3 * kPage);
  EXPECT_EQ(region.take(4 * kPage), std::nullopt);
  region.give_back(2 * kPage, 2 * kPage);
  EXPECT_EQ(region.take(3 * kPage), 8 * kPage);
  EXPECT_EQ(region.take(kPage), 2 * kPage);
  region.give_back(8 * kPage, 3 * kPage);
  region.give_back(kPage, 1);
  region.give_back(4 * kPage, 3 * kPage + 1);
  region.give_back(2 * kPage, kPage);
  EXPECT_EQ(region.take(10 * kPage), kPage);  // one gap again
}

TEST(ShmRegion, RefusesWhatDoesNotFitEvenWhenSizesWrap) {
  Region region(0, 4 * kPage);
  EXPECT_EQ(region.take(~std::uint64_t{0}), std::nullopt);
  EXPECT_EQ(region.take(0), 0u);  // nothing has a place of its own too
  EXPECT_EQ(region.free_bytes(), 3 * kPage);
}

TEST(ShmArena, OneRanksBytesAreTheOthers) {
  auto made = Arena::create(0, 2);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  auto opened = Arena::open(made.value()->token(), 1, 2);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  Arena& first = *made.value();
  Arena& second = *opened.value();
  first.close_door();
  auto one = first.allocate(100'000);
  auto two = second.allocate(50'000);
  ASSERT_TRUE(one.has_value() && two.has_value());
  const auto one_at = first.offset_of(one.value().bytes().data(), 100'000);
  const auto two_at = second.offset_of(two.value().bytes().data(), 50'000);
  ASSERT_TRUE(one_at && two_at);
  EXPECT_NE(*one_at, *two_at);
  std::memset(one.value().bytes().data(), 7, 100'000);
  EXPECT_EQ(second.at(*one_at)[99'999], std::byte{7});
  second.at(*one_at)[5] = std::byte{9};
  EXPECT_EQ(one.value().bytes()[5], std::byte{9});
}

TEST(ShmArena, KnowsWhatLiesInside) {
  auto made = Arena::create(0, 1);
  ASSERT_TRUE(made.has_value());
  Arena& arena = *made.value();
  auto buffer = arena.allocate(5000);
  ASSERT_TRUE(buffer.has_value());
  const std::byte* data = buffer.value().bytes().data();
  EXPECT_EQ(*arena.offset_of(data + 3, 10), *arena.offset_of(data, 1) + 3);
  EXPECT_FALSE(arena.offset_of(data, std::size_t{1} << 62));
  std::byte own{};
  EXPECT_FALSE(arena.offset_of(&own, 1));
  EXPECT_FALSE(arena.offset_of(nullptr, 0));
}

TEST(ShmArena, MemoryIsZeroAlsoTheSecondTime) {
  auto made = Arena::create(0, 1);
  ASSERT_TRUE(made.has_value());
  for (int round = 0; round < 2; ++round) {
    auto buffer = made.value()->allocate(30'000);
    ASSERT_TRUE(buffer.has_value());
    const auto bytes = buffer.value().bytes();
    EXPECT_EQ(bytes.size(), 30'000u);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::memset(bytes.data(), 1, bytes.size());
  }
}

TEST(ShmArena, TheCapHoldsForEveryShare) {
  auto made = Arena::create(0, 2, std::size_t{64} << 20);
  ASSERT_TRUE(made.has_value());
  const auto large = made.value()->allocate(std::size_t{33} << 20);
  EXPECT_EQ(large.error().code(), Code::kOutOfMemory);
  EXPECT_TRUE(made.value()->allocate(std::size_t{30} << 20).has_value());
}

TEST(ShmArena, BuffersOutliveItsOwner) {
  auto made = Arena::create(0, 1);
  ASSERT_TRUE(made.has_value());
  auto buffer = made.value()->allocate(10);
  made.value().reset();
  buffer.value().bytes()[9] = std::byte{1};
  EXPECT_EQ(buffer.value().bytes()[9], std::byte{1});
}

TEST(ShmArena, ARetiredOneGivesNothingMore) {
  auto made = Arena::create(0, 1);
  ASSERT_TRUE(made.has_value());
  auto buffer = made.value()->allocate(4096);
  made.value()->retire();
  EXPECT_EQ(made.value()->allocate(1).error().code(), Code::kOutOfMemory);
}

TEST(ShmArena, AStrangersMemoryIsRefused) {
  auto made = Arena::create(0, 2);
  ASSERT_TRUE(made.has_value());
  Arena::Token token = made.value()->token();
  token.nonce ^= 1;
  EXPECT_EQ(Arena::open(token, 1, 2).error().code(), Code::kUnsupported);
  token = made.value()->token();
  token.bytes -= 1;
  EXPECT_EQ(Arena::open(token, 1, 2).error().code(), Code::kUnsupported);
  token = made.value()->token();
  EXPECT_EQ(Arena::open(token, 1, 3).error().code(), Code::kUnsupported);
  token.fd = 0x7fffffff;
  EXPECT_EQ(Arena::open(token, 1, 2).error().code(), Code::kUnsupported);
  made.value()->close_door();
  EXPECT_EQ(Arena::open(made.value()->token(), 1, 2).error().code(), Code::kUnsupported);
}

TEST(ShmArena, ReachesAnotherProcessAndLeavesNoNameBehind) {
  const auto names = [] {
    std::vector<std::string> found;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
      found.push_back(entry.path());
    }
    return std::ranges::count_if(
        found, [](const std::string& name) { return name.find("gradwire") != std::string::npos; });
  };
  const auto before = names();
  auto made = Arena::create(0, 2);
  ASSERT_TRUE(made.has_value());
  auto buffer = made.value()->allocate(64);
  ASSERT_TRUE(buffer.has_value());
  const auto at = *made.value()->offset_of(buffer.value().bytes().data(), 64);
  const pid_t child = fork();
  if (child == 0) {
    auto opened = Arena::open(made.value()->token(), 1, 2);
    if (!opened.has_value()) _exit(1);
    opened.value()->at(at)[0] = std::byte{42};
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(buffer.value().bytes()[0], std::byte{42});
  EXPECT_EQ(names(), before);
}

TEST(ShmBell, WakesWhoSleepsAndMissesNothing) {
  auto made = Arena::create(0, 2);
  ASSERT_TRUE(made.has_value());
  Bell& bell = made.value()->bell(1);
  std::atomic<int> turn{0};
  constexpr int kTurns = 2000;
  const Deadline end = deadline_in(30);
  std::thread other([&] {
    for (int i = 0; i < kTurns && std::chrono::steady_clock::now() < end; ++i) {
      while (turn.load() != 2 * i && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
      turn.store(2 * i + 1);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      bell.ring_if_asleep();
    }
  });
  int slept_through = 0;
  for (int i = 0; i < kTurns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    while (turn.load() != 2 * i + 1 && std::chrono::steady_clock::now() < end) {
      const std::uint32_t seen = bell.lie_down();
      if (turn.load() != 2 * i + 1) bell.sleep(seen, deadline_in(10));
      bell.get_up();
    }
    slept_through += std::chrono::steady_clock::now() - start > std::chrono::seconds(9) ? 1 : 0;
    turn.store(2 * i + 2);
  }
  other.join();
  EXPECT_EQ(turn.load(), 2 * kTurns);
  EXPECT_EQ(slept_through, 0);
}

TEST(ShmBell, SleepEndsAtItsDeadline) {
  auto made = Arena::create(0, 1);
  ASSERT_TRUE(made.has_value());
  Bell& bell = made.value()->bell(0);
  bell.sleep(bell.lie_down(), deadline_in(0.01));
  bell.sleep(bell.lie_down(), deadline_in(-1));
  bell.get_up();
}

}  // namespace
}  // namespace gradwire::shm
