// Which large message may begin, with made-up connections and a made-up clock.
#include "comm/tcp/turns.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>

namespace gradwire::tcp::tcp_turns_test {
namespace {

constexpr std::size_t kKiB = 1024;

class TcpTurns : public ::testing::Test {
 protected:
  std::map<int, std::size_t> left_;  // of what was written to a rank
  Turns turns_{[this](int rank) { return left_[rank]; }};
  Deadline now_{};
  void pass(int milliseconds) { now_ += std::chrono::milliseconds(milliseconds); }
  void begin(int rank, std::uint64_t serial, std::size_t bytes) {
    turns_.begun({rank, serial}, now_);
    left_[rank] += bytes;
  }
};

TEST_F(TcpTurns, NobodyWaitsForNothing) {
  EXPECT_FALSE(turns_.waits({1, 1}, now_));
  begin(1, 1, 300 * kKiB);
  left_[1] = 0;
  EXPECT_FALSE(turns_.waits({2, 2}, now_));
}

TEST_F(TcpTurns, ALaterBatchWaitsForNearlyAllOfAnEarlierOneToAnotherRank) {
  begin(1, 5, 300 * kKiB);
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  EXPECT_FALSE(turns_.waits({1, 6}, now_));  // behind it, on its connection
  left_[1] = 33 * kKiB;
  pass(1);
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  left_[1] = 32 * kKiB;
  EXPECT_FALSE(turns_.waits({2, 6}, now_));
}

TEST_F(TcpTurns, MessagesOfOneBatchLeaveTogetherAndEarlierOnesDoNotWait) {
  begin(1, 5, 300 * kKiB);
  EXPECT_FALSE(turns_.waits({2, 5}, now_));
  EXPECT_FALSE(turns_.waits({3, 4}, now_));
}

TEST_F(TcpTurns, AllOfThoseBeforeCount) {
  begin(1, 5, 300 * kKiB);
  begin(2, 5, 300 * kKiB);
  left_[1] = 0;
  EXPECT_TRUE(turns_.waits({3, 6}, now_));
  left_[2] = 0;
  EXPECT_FALSE(turns_.waits({3, 6}, now_));
}

TEST_F(TcpTurns, TheLastMessageToARankSaysWhoWaits) {
  begin(1, 5, 300 * kKiB);
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  begin(1, 7, 300 * kKiB);  // posted later, behind the first
  EXPECT_FALSE(turns_.waits({2, 6}, now_));
  EXPECT_TRUE(turns_.waits({2, 8}, now_));
}

TEST_F(TcpTurns, ARankThatTakesNothingIsNotWaitedForUntilItGoesOn) {
  begin(1, 5, 300 * kKiB);
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  pass(4);
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  pass(1);
  EXPECT_FALSE(turns_.waits({2, 6}, now_));
  left_[1] -= 10 * kKiB;
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  pass(5);
  EXPECT_FALSE(turns_.waits({2, 6}, now_));
}

TEST_F(TcpTurns, TimeBeforeAnybodyAskedDoesNotCountAsStandingStill) {
  begin(1, 5, 300 * kKiB);
  pass(1000);
  EXPECT_TRUE(turns_.waits({2, 6}, now_));
  pass(5);
  EXPECT_FALSE(turns_.waits({2, 6}, now_));
}

}  // namespace
}  // namespace gradwire::tcp::tcp_turns_test
