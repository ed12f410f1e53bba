#include <gtest/gtest.h>

#include "comm/liveness.h"

namespace gradwire::comm::liveness_test {
namespace {

using std::chrono::milliseconds;

// Rank 0 of 3; a heartbeat each second, patience of 5 s; times in milliseconds from the start.
class LivenessTest : public ::testing::Test {
 protected:
  static Deadline at(int ms) { return Deadline{} + milliseconds(ms); }
  // Calls tick() as progress() would, each 100 ms; ranks in `talking` are heard each time.
  void run(int from, int to, std::initializer_list<int> talking) {
    for (int ms = from; ms <= to; ms += 100) {
      liveness_.tick(at(ms));
      for (const int rank : talking) liveness_.heard(rank);
    }
  }
  Liveness liveness_{3, 0, milliseconds(1000), milliseconds(5000), at(0)};
};

TEST_F(LivenessTest, OneBeatAnInterval) {
  int beats = 0;
  for (int ms = 0; ms < 10'000; ms += 10) beats += liveness_.beat_due(at(ms)) ? 1 : 0;
  EXPECT_EQ(beats, 10);
}

TEST_F(LivenessTest, SilenceLongerThanPatienceIsNamed) {
  run(0, 5000, {1});
  EXPECT_EQ(liveness_.silent(), std::nullopt);
  run(5100, 5100, {1});
  EXPECT_EQ(liveness_.silent(), 2);
  EXPECT_EQ(liveness_.silence_of(2), milliseconds(5100));
  liveness_.forget(2);
  EXPECT_EQ(liveness_.silent(), std::nullopt);
}

TEST_F(LivenessTest, TheLongestSilentComesFirst) {
  run(0, 300, {1});  // rank 2 from the start, rank 1 a little later
  run(400, 6000, {});
  EXPECT_EQ(liveness_.silent(), 2);
}

TEST_F(LivenessTest, OwnStandstillIsNotHeldAgainstTheOthers) {
  run(0, 1000, {1, 2});
  liveness_.tick(at(61'000));  // this process was stopped for a minute
  EXPECT_EQ(liveness_.silent(), std::nullopt);
  run(61'100, 66'000, {1});
  EXPECT_EQ(liveness_.silent(), std::nullopt);
  run(66'100, 66'100, {1});
  EXPECT_EQ(liveness_.silent(), 2);
}

TEST_F(LivenessTest, TheOwnRankIsNotWatched) {
  EXPECT_FALSE(liveness_.watched(0));
  EXPECT_TRUE(liveness_.watched(1));
}

}  // namespace
}  // namespace gradwire::comm::liveness_test
