// Pieces of stages: who runs when. The stages are played here, and need no transport.
#include "collectives/engine/staged_execution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "comm/inproc/inproc_transport.h"

namespace gradwire::staged_execution_test {
namespace {

using ::testing::ElementsAre;

// What the test lets happen, and what has happened, by the stages' names.
struct Play {
  std::set<std::string> open;  // stages that may end
  std::vector<std::string> events;
};

class Actor final : public Runnable {
 public:
  Actor(Play& play, std::string name, bool in_memory)
      : play_(play), name_(std::move(name)), in_memory_(in_memory) {}

  Result<bool> advance(Transport&, ScratchPool&) override {
    if (!started_) play_.events.push_back("start " + name_);
    const bool moved = !started_ || play_.open.contains(name_);
    started_ = true;
    done_ = play_.open.contains(name_);
    if (done_) play_.events.push_back("end " + name_);
    return moved;
  }
  bool done() const override { return done_; }
  void cancel(Transport&) override { play_.events.push_back("cancel " + name_); }
  bool settled(Transport&) override { return true; }
  void release(ScratchPool&) override { play_.events.push_back("release " + name_); }
  std::vector<int> waiting_for(const Transport&) const override { return {name_.back() - '0'}; }
  int closed_peer() const override { return play_.open.contains("gone " + name_) ? 7 : -1; }
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return started_ ? 10 : 0; }
  Awaited awaited() const override { return {.messages = !in_memory_, .memory = in_memory_}; }
  bool ready() const override { return play_.open.contains(name_); }

 private:
  Play& play_;
  std::string name_;
  bool in_memory_;
  bool started_ = false;
  bool done_ = false;
  Route route_;
};

class StagedExecutionTest : public ::testing::Test {
 protected:
  // Piece i has the stages "in i", in memory, and "net i".
  StagedExecution staged(int pieces, std::size_t in_flight) {
    std::vector<StagedExecution::Stages> made;
    for (int i = 0; i < pieces; ++i) {
      StagedExecution::Stages& stages = made.emplace_back();
      stages.push_back(std::make_unique<Actor>(play_, "in " + std::to_string(i), true));
      stages.push_back(std::make_unique<Actor>(play_, "net " + std::to_string(i), false));
    }
    return {Route{}, std::move(made), in_flight};
  }
  // What happened in one turn.
  std::vector<std::string> turn(StagedExecution& execution) {
    play_.events.clear();
    EXPECT_TRUE(execution.advance(*transport_, pool_).has_value());
    return play_.events;
  }

  std::unique_ptr<Transport> transport_ = std::move(make_inproc_transports(1).value().front());
  ScratchPool pool_;
  Play play_;
};

TEST_F(StagedExecutionTest, WhileAPieceTravelsOthersAreInMemory) {
  StagedExecution execution = staged(4, 2);
  play_.open = {"in 0"};
  EXPECT_THAT(turn(execution),
              ElementsAre("start in 0", "end in 0", "release in 0", "start net 0", "start in 1"));
  EXPECT_TRUE(execution.awaited().memory);
  EXPECT_TRUE(execution.awaited().messages);
  EXPECT_FALSE(execution.ready());
  play_.open = {"in 1", "in 2"};
  EXPECT_TRUE(execution.ready());
  EXPECT_THAT(turn(execution), ElementsAre("end in 1", "release in 1", "start net 1"));
  EXPECT_FALSE(execution.awaited().memory);
  EXPECT_TRUE(turn(execution).empty());  // two are in flight
  EXPECT_EQ(execution.bytes_sent(), 40U);
}

TEST_F(StagedExecutionTest, APieceThatEndsMakesRoomForTheNext) {
  StagedExecution execution = staged(3, 2);
  play_.open = {"in 0", "in 1", "net 1"};
  turn(execution);
  EXPECT_TRUE(turn(execution).empty());  // the first is not done
  EXPECT_EQ(execution.waiting_for(*transport_), std::vector<int>{0});
  play_.open = {"net 0", "in 2", "net 2"};
  EXPECT_THAT(turn(execution),
              ElementsAre("end net 0", "release net 0", "start in 2", "end in 2", "release in 2",
                          "start net 2", "end net 2", "release net 2"));
  EXPECT_TRUE(execution.done());
  EXPECT_EQ(execution.bytes_sent(), 60U);
  EXPECT_TRUE(execution.waiting_for(*transport_).empty());
}

// Nobody turns an execution that waits for messages before some come, and what has not begun has
// asked for none.
TEST_F(StagedExecutionTest, WhenAllUnderWayEndTogetherTheNextBeginInThatTurn) {
  std::vector<StagedExecution::Stages> pieces(5);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].push_back(std::make_unique<Actor>(play_, "net " + std::to_string(i), false));
  }
  StagedExecution execution(Route{}, std::move(pieces), 2);
  EXPECT_THAT(turn(execution), ElementsAre("start net 0", "start net 1"));
  play_.open = {"net 0", "net 1"};
  EXPECT_THAT(turn(execution), ElementsAre("end net 0", "release net 0", "end net 1",
                                           "release net 1", "start net 2", "start net 3"));
}

TEST_F(StagedExecutionTest, CancelEndsWhatHasNotEndedOfAllPieces) {
  StagedExecution execution = staged(3, 2);
  play_.open = {"in 0"};
  turn(execution);
  play_.events.clear();
  execution.cancel(*transport_);
  EXPECT_THAT(play_.events, ElementsAre("cancel net 0", "cancel in 1", "cancel net 1",
                                        "cancel in 2", "cancel net 2"));
  EXPECT_TRUE(execution.settled(*transport_));
}

TEST_F(StagedExecutionTest, APeerThatHasClosedOnAnyPieceUnderWayIsNamed) {
  StagedExecution execution = staged(3, 2);
  turn(execution);
  EXPECT_EQ(execution.closed_peer(), -1);
  play_.open = {"gone in 2"};
  EXPECT_EQ(execution.closed_peer(), -1);  // not under way
  play_.open = {"gone in 1"};
  EXPECT_EQ(execution.closed_peer(), 7);
}

TEST_F(StagedExecutionTest, WithoutStagesItIsDoneAtOnce) {
  EXPECT_TRUE(staged(0, 3).done());
  EXPECT_TRUE(StagedExecution(Route{}, std::vector<StagedExecution::Stages>(2), 3).done());
}

}  // namespace
}  // namespace gradwire::staged_execution_test
