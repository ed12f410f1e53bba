// Room for messages: the same for 64 micro-batches as for 8 where the schedule has a bound, and
// kept by a rank whose neighbours do not read.
#include "trainer/pipeline/message_room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "trainer/pipeline/generate.h"
#include "trainer/pipeline/lower.h"
#include "trainer/pipeline/run/executor.h"

namespace gradwire::message_room_test {
namespace {

using Kind = PipelineOpKind;

PipelineSchedule lowered(PipelineKind kind, int ranks, int micro_batches) {
  const PipelineSchedule made = generate_pipeline({.kind = kind}, ranks, micro_batches).value();
  return lower_pipeline(made, PipelineLinks::kTagged).value();
}

// Counts messages from their making until sent(); of a send's number.
class Counts final : public PipelineWork {
 public:
  explicit Counts(const PipelineSchedule& schedule) : schedule_(schedule) {}
  Status run(const PipelineOp& op) override {
    const bool forward = op.kind == Kind::kForward;
    const bool makes =
        forward ? op.stage + 1 < schedule_.stages() : gives_input_gradient(op.kind) && op.stage > 0;
    if (makes) now_.insert({forward, op.micro});
    const auto out = std::ranges::count_if(now_, [](const auto& one) { return one.first; });
    activations_out = std::max(activations_out, static_cast<int>(out));
    gradients_out = std::max(gradients_out, static_cast<int>(now_.size()) - static_cast<int>(out));
    return {};
  }
  Status finish(const PipelineOp&) override { return {}; }
  Result<std::span<std::byte>> room_for(const PipelineOp&) override {
    return std::span<std::byte>();
  }
  Result<std::span<const std::byte>> message(const PipelineOp&) override {
    return std::span<const std::byte>();
  }
  void sent(const PipelineOp& send) override {
    now_.erase({send.kind == Kind::kSendForward, send.micro});
  }

  int activations_out = 0;
  int gradients_out = 0;

 private:
  const PipelineSchedule& schedule_;
  std::set<std::pair<bool, int>> now_;
};

// Nothing has ended before it is waited for; where a neighbour has stopped the wait does not end
// either.
class Slow final : public PipelineTransfers {
 public:
  explicit Slow(bool stopped) : stopped_(stopped) {}
  Status prepare(std::size_t) override { return {}; }
  Status send(std::size_t, const PipelineOp&, int, std::span<const std::byte>) override {
    return {};
  }
  Status receive(std::size_t, const PipelineOp&, int, std::span<std::byte>) override { return {}; }
  Result<bool> done(std::size_t) override { return false; }
  Status wait(std::size_t) override {
    return stopped_ ? Status(Code::kTimedOut, "the neighbour has stopped") : Status();
  }
  void stop() override {}

 private:
  bool stopped_;
};

// One stage a rank: what rank `rank` has made and nobody has said to have read, at most.
StageRoom held(const PipelineSchedule& schedule, int rank, const std::vector<StageRoom>& room,
               bool stopped) {
  Counts counts(schedule);
  Slow slow(stopped);
  auto executor = PipelineExecutor::create(schedule, rank, {.room = room}, counts, slow);
  EXPECT_TRUE(executor.has_value()) << executor.error().message();
  EXPECT_EQ(executor.value().run().ok(), !stopped);
  return {.activations_out = counts.activations_out, .gradients_out = counts.gradients_out};
}

TEST(MessageRoom, OfOneFOneBDoesNotGrowWithMicroBatches) {
  constexpr int kRanks = 4;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const StageRoom few =
        message_room(lowered(PipelineKind::kOneFOneB, kRanks, 8), rank).stages[at];
    const StageRoom many =
        message_room(lowered(PipelineKind::kOneFOneB, kRanks, 64), rank).stages[at];
    EXPECT_EQ(few, many) << rank;
    // The warm-up's forwards, of which none is known to be read before the first gradient comes.
    EXPECT_EQ(many.activations_out, rank + 1 < kRanks ? kRanks - rank : 0) << rank;
    EXPECT_LE(many.gradients_out, kRanks) << rank;
    EXPECT_LE(many.activations_in, 2) << rank;
    EXPECT_LE(many.gradients_in, 2) << rank;
  }
}

// GPipe sends all activations before a gradient comes, and keeps as many contexts.
TEST(MessageRoom, OfGpipeIsItsContexts) {
  const MessageRoom room = message_room(lowered(PipelineKind::kGpipe, 2, 64), 0);
  EXPECT_EQ(room.stages[0].activations_out, 64);
  EXPECT_EQ(room.stages[1], StageRoom());
}

TEST(MessageRoom, IsKeptWhereNeighboursAreSlowOrHaveStopped) {
  for (const PipelineKind kind : {PipelineKind::kOneFOneB, PipelineKind::kGpipe}) {
    const PipelineSchedule schedule = lowered(kind, 4, 64);
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<StageRoom> room = message_room(schedule, rank).stages;
      const StageRoom& most = room[static_cast<std::size_t>(rank)];
      for (const bool stopped : {false, true}) {
        const StageRoom there = held(schedule, rank, room, stopped);
        EXPECT_LE(there.activations_out, most.activations_out) << rank;
        EXPECT_LE(there.gradients_out, most.gradients_out) << rank;
      }
    }
  }
}

// Without a backward nothing says what has been read: forwards wait, and would have made all 64.
TEST(MessageRoom, ForwardsWaitInEvaluation) {
  const PipelineSchedule schedule = lowered(PipelineKind::kOneFOneB, 4, 64);
  const PipelineSchedule forwards = forward_part(schedule);
  ASSERT_TRUE(forwards_may_wait(forwards));
  const std::vector<StageRoom> room = message_room(schedule, 0).stages;
  EXPECT_EQ(held(forwards, 0, room, false).activations_out, 4);
  EXPECT_LE(held(forwards, 0, room, true).activations_out, 4);
  EXPECT_EQ(held(forwards, 0, {}, false).activations_out, 64);
  EXPECT_FALSE(forwards_may_wait(lowered(PipelineKind::kInterleaved, 2, 4)));
}

TEST(MessageRoom, TooLittleIsRefused) {
  const PipelineSchedule schedule = lowered(PipelineKind::kGpipe, 2, 4);
  Counts counts(schedule);
  Slow slow(false);
  const auto made =
      PipelineExecutor::create(schedule, 0, {.room = std::vector<StageRoom>(2)}, counts, slow);
  EXPECT_FALSE(made.has_value());
}

}  // namespace
}  // namespace gradwire::message_room_test
