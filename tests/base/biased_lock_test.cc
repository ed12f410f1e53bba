#include "base/biased_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <mutex>
#include <thread>
#include <vector>

namespace gradwire {
namespace {

// Two numbers that are equal whenever the lock is free.
struct Guarded {
  BiasedLock lock;
  long first = 0;
  long second = 0;

  // False where somebody else was inside.
  bool step() {
    const std::lock_guard guard(lock);
    const bool alone = first == second;
    ++first;
    ++second;
    return alone;
  }
};

bool step_often(Guarded& guarded, long steps) {
  bool alone = true;
  for (long i = 0; i < steps; ++i) alone = guarded.step() && alone;
  return alone;
}

TEST(BiasedLock, OneThreadIsInsideAtATime) {
  constexpr long kOften = 200000;
  constexpr long kSeldom = 2000;
  constexpr int kOthers = 3;
  Guarded guarded;
  EXPECT_TRUE(guarded.step());  // this thread has the bias
  std::vector<char> alone(kOthers, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kOthers; ++t) {
    threads.emplace_back(
        [&, t] { alone[static_cast<std::size_t>(t)] = step_often(guarded, kSeldom); });
  }
  EXPECT_TRUE(step_often(guarded, kOften));
  for (std::thread& thread : threads) thread.join();
  for (const char one : alone) EXPECT_TRUE(one);
  EXPECT_EQ(guarded.first, 1 + kOften + kOthers * kSeldom);
}

// Each in turn has it to itself for long, more often than a lock gives the bias away.
TEST(BiasedLock, TheBiasMoves) {
  constexpr int kThreads = 24;
  constexpr long kSteps = 1000;
  Guarded guarded;
  for (int t = 0; t < kThreads; ++t) {
    bool alone = false;
    std::thread([&] { alone = step_often(guarded, kSteps); }).join();
    EXPECT_TRUE(alone);
    EXPECT_TRUE(step_often(guarded, kSteps));
  }
  EXPECT_EQ(guarded.second, 2 * kThreads * kSteps);
}

// Another comes in between, more often than it takes to get the bias of one that is not there.
TEST(BiasedLock, AnOwnerThatIsThereKeepsTheBias) {
  constexpr int kVisits = 1000;
  Guarded guarded;
  const auto is_inside = [&] {
    const std::lock_guard guard(guarded.lock);
    return guarded.lock.is_owner_inside();
  };
  (void)is_inside();  // this thread has it now, where there is one
  const bool can_bias = is_inside();
  EXPECT_FALSE(guarded.lock.is_owner_inside());
  std::barrier<> turns(2);
  std::thread other([&] {
    for (int visit = 0; visit < kVisits; ++visit) {
      turns.arrive_and_wait();
      EXPECT_FALSE(is_inside()) << "visit " << visit;
      turns.arrive_and_wait();
    }
  });
  for (int visit = 0; visit < kVisits; ++visit) {
    EXPECT_EQ(is_inside(), can_bias) << "visit " << visit;
    turns.arrive_and_wait();
    turns.arrive_and_wait();
  }
  other.join();
}

TEST(BiasedLock, AForkedChildTakesItsCopy) {
  Guarded guarded;
  EXPECT_TRUE(guarded.step());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool alone = step_often(guarded, 100);
    std::thread([&] { alone = step_often(guarded, 100) && alone; }).join();
    _exit(alone && guarded.first == 201 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gradwire
