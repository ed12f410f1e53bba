// The laws of Communicator over the in-process transport, for 1, 2, 3, 4, 5 and 8 ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "collectives/group_communicator.h"
#include "comm/inproc/inproc_transport.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/support/fails.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using Program = std::string (*)(Communicator& world);

class CommunicatorLaws : public testing::TestWithParam<int> {
 protected:
  void run(Program program) {
    auto made = make_inproc_communicators(GetParam());
    ASSERT_TRUE(made.has_value()) << made.error().message();
    auto& worlds = made.value();
    const auto faults = on_threads<std::string>(GetParam(), [&](int r) {
      const auto at = static_cast<std::size_t>(r);
      std::string fault = program(*worlds[at]);
      worlds[at].reset();
      return fault;
    });
    for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
  }
};

class CommunicatorMessages : public CommunicatorLaws {};

TEST_P(CommunicatorMessages, SendManyLarge) { run(send_many_large); }
TEST_P(CommunicatorMessages, ProbeWithoutEnd) { run(probe_without_end); }
TEST_P(CommunicatorLaws, ReduceEverything) { run(reduce_everything); }
TEST_P(CommunicatorLaws, KeepNans) { run(keep_nans); }
TEST_P(CommunicatorLaws, ReduceLarge) { run(reduce_large); }
TEST_P(CommunicatorLaws, MoveEverything) { run(move_everything); }
TEST_P(CommunicatorLaws, MoveLarge) { run(move_large); }
TEST_P(CommunicatorLaws, RowsAndColumns) { run(rows_and_columns); }
TEST_P(CommunicatorLaws, SplitAndSplitAgain) { run(split_and_split_again); }
TEST_P(CommunicatorLaws, GroupsOfMembers) { run(groups_of_members); }
TEST_P(CommunicatorLaws, EndAmidOperations) { run(end_amid_operations); }
TEST_P(CommunicatorLaws, ManyOutstanding) { run(many_outstanding); }
TEST_P(CommunicatorLaws, WorkInPlaceAndApart) { run(work_in_place_and_apart); }
TEST_P(CommunicatorLaws, RunAgainAndAgain) { run(run_again_and_again); }
TEST_P(CommunicatorLaws, RunBatches) { run(run_batches); }
TEST_P(CommunicatorLaws, R10_FusedTensorsHaveTheBitsOfEachAlone) { run(reduce_fused); }
TEST_P(CommunicatorLaws, RefuseBadArguments) { run(refuse_bad_arguments); }
TEST_P(CommunicatorLaws, CountBytes) { run(count_bytes); }

// Rank 0 sends each message long after the one before: the last later than a message may take, but
// none so late after the one that it follows.
TEST(CommunicatorDeadline, OfAMessageBehindOthersCountsFromTheirEnd) {
  constexpr int kCount = 5;
  auto made = make_inproc_communicators(2, {.deadline_seconds = 4});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto faults = on_threads<std::string>(2, [&](int r) -> std::string {
    Communicator& world = *made.value()[static_cast<std::size_t>(r)];
    std::vector<std::vector<std::int32_t>> data(kCount, std::vector<std::int32_t>(8, r));
    std::vector<Work> works;
    for (int k = 0; k < kCount; ++k) {
      if (r == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      const TensorView tensor = view_of(std::span(data[static_cast<std::size_t>(k)]));
      auto work = world.start(r == 0 ? OpCall::send(tensor, 1, k) : OpCall::recv(tensor, 0, k));
      if (!work.has_value()) return std::string(work.error().message());
      works.push_back(std::move(work).value());
    }
    for (Work& work : works) {
      if (const Status status = work.wait(); !status.ok()) return std::string(status.message());
    }
    return "";
  });
  EXPECT_THAT(faults, testing::Each(""));
}

// What never comes is not waited for for ever: messages that were posted later give it no time.
TEST(CommunicatorDeadline, MessagesBehindOneGiveItNoTime) {
  auto made = make_inproc_communicators(2, {.deadline_seconds = 1});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto outcomes = on_threads<Status>(2, [&](int r) -> Status {
    Communicator& world = *made.value()[static_cast<std::size_t>(r)];
    std::vector<std::int32_t> data(8), never(8);
    std::optional<Work> missed;
    if (r == 1) {
      GW_ASSIGN(missed, world.start(OpCall::recv(view_of(std::span(never)), 0, 1)));
    }
    for (int k = 0; k < 1000; ++k) {
      const TensorView tensor = view_of(std::span(data));
      GW_ASSIGN(Work next, world.start(r == 0 ? OpCall::send(tensor, 1) : OpCall::recv(tensor, 0)));
      GW_TRY(next.wait());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  });
  EXPECT_THAT(outcomes[1], fails(Code::kTimedOut, "recv"));
}

// The sum of 1000 ones by two levels, and how many bytes this rank sent for it.
Result<std::uint64_t> bytes_by_two_levels(Communicator& world) {
  std::vector<float> ones(1000, 1.0f);
  const std::uint64_t before = world.bytes_sent();
  GW_ASSIGN(Work work, world.all_reduce(view_of(std::span(ones)), ReduceOp::kSum,
                                        {.algorithm = "two_level", .deadline = {}, .stream = {}}));
  GW_TRY(work.wait());
  const auto right = static_cast<float>(world.size());
  if (std::ranges::count(ones, right) != 1000) return Status(Code::kInternal, "wrong sum");
  return world.bytes_sent() - before;
}

// Rank 4 is its node's third where the other node has two ranks: it hands both halves over and gets
// them back. On a node of five it would send four fifths, twice.
TEST(CommunicatorNodes, TwoLevelsGoByThemInGroupsToo) {
  constexpr int kRanks = 5;
  auto made = make_inproc_communicators(kRanks, {.node_of = {0, 0, 1, 1, 1}});
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto sent = on_threads<std::string>(kRanks, [&](int r) -> std::string {
    const auto world = std::move(made.value()[static_cast<std::size_t>(r)]);
    const auto whole = bytes_by_two_levels(*world);
    auto group = world->split(r % 2 == 0 ? 0 : -1, 0);  // ranks 0, 2 and 4
    if (!group.has_value()) return std::string(group.error().message());
    if (!whole.has_value()) return std::string(whole.error().message());
    std::string text = std::to_string(whole.value());
    if (group.value() == nullptr) return text;
    const auto part = bytes_by_two_levels(*group.value());
    return text + (part.has_value() ? ", " + std::to_string(part.value())
                                    : std::string(part.error().message()));
  });
  EXPECT_EQ(sent[4], "4000, 4000");  // in the group: all to rank 2
}

TEST(CommunicatorNodes, AreOneForEachRank) {
  const auto made = make_inproc_communicators(3, {.node_of = {0, 1}});
  EXPECT_THAT(made.error(), fails(Code::kInvalidArgument, "node_of", "2", "3"));
}

// Messages that a fused all-reduce of k tensors with kElems elements together takes on this rank.
std::uint64_t messages_of_fused(Communicator& world, std::int64_t k) {
  constexpr std::int64_t kElems = 4096;
  std::vector<float> data(kElems + static_cast<std::size_t>(k));
  std::vector<TensorView> tensors;
  for (std::int64_t t = 0; t < k; ++t) {  // one float between any two
    const Range part = piece(kElems, static_cast<int>(k), static_cast<int>(t));
    tensors.push_back(view_of(std::span(data)).slice(part.begin + t, part.size()));
  }
  const std::uint64_t before = world.transport_stats().messages_sent;
  auto work = world.all_reduce_fused(tensors, ReduceOp::kSum);
  const Status status = work.has_value() ? work.value().wait() : work.error();
  return status.ok() ? world.transport_stats().messages_sent - before : 0;
}

TEST_P(CommunicatorLaws, R10_FusedTensorsTakeAsManyMessagesAsOne) {
  run([](Communicator& world) -> std::string {
    const std::uint64_t one = messages_of_fused(world, 1);
    if (world.size() > 1 && one == 0) return "no messages";
    for (const std::int64_t k : {2, 7, 500}) {
      if (messages_of_fused(world, k) != one)
        return format("%d tensors take others", static_cast<int>(k));
    }
    return "";
  });
}

// Segments of a few elements: every tensor has more of them than there are slots, and results are
// the same.
TEST(CommunicatorSegments, TinyOnesChangeNothing) {
  constexpr int kRanks = 3;
  auto transports = make_inproc_transports(kRanks);
  ASSERT_TRUE(transports.has_value());
  const auto faults = on_threads<std::string>(kRanks, [&](int r) -> std::string {
    auto& transport = transports.value()[static_cast<std::size_t>(r)];
    auto engine = std::make_shared<ProgressEngine>(std::move(transport));
    if (!engine->claim_id(0)) return "id 0 is not free";
    GroupCommunicator world(engine, {0, 1, 2}, 0, {}, {.segment_bytes = 40, .slots = 2});
    for (const Program program : {reduce_everything, move_everything, split_and_split_again}) {
      if (std::string fault = program(world); !fault.empty()) return fault;
    }
    return send_many(world, 10);
  });
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

// How a receive of so many elements of a message of so many ends.
Status outcome_of(std::int64_t sent, std::int64_t wanted) {
  auto made = make_inproc_communicators(2, {.deadline_seconds = 10});
  if (!made.has_value()) return made.error();
  return on_threads<Status>(2, [&](int r) -> Status {
    Communicator& world = *made.value()[static_cast<std::size_t>(r)];
    std::vector<float> data(static_cast<std::size_t>(r == 0 ? sent : wanted));
    const TensorView all = view_of(std::span(data));
    GW_ASSIGN(Work work, r == 0 ? world.send(all, 1) : world.recv(all, 0));
    return work.wait();
  })[1];
}

// Long messages go in parts, of which each would fit.
TEST(CommunicatorPairs, AnotherCountIsAMismatchHoweverMessagesAreCut) {
  constexpr std::int64_t kSegment = 128 << 10;
  for (const std::int64_t part : {kSegment, kSegment + 16}) {
    for (const std::int64_t sent : {1, 2, 4, 5, 8}) {
      for (const std::int64_t wanted : {0, 1, 2, 3, 4, 8, 9}) {
        const Status status = outcome_of(sent * part, wanted * part);
        const auto code = sent == wanted ? Code::kOk : Code::kRankMismatch;
        EXPECT_EQ(status.code(), code) << wanted << " of " << sent << ": " << status.message();
      }
      const Status status = outcome_of(sent * part, sent * part - 1);
      EXPECT_EQ(status.code(), Code::kRankMismatch) << sent << ": " << status.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorLaws, testing::Values(1, 2, 3, 4, 5, 8));
INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorMessages, testing::Values(2, 3, 4, 5, 8));

}  // namespace
}  // namespace gradwire
