// How a Communicator fails: in bounded time, naming the rank that is to blame, and for good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/elements.h"
#include "comm/inproc/inproc_transport.h"
#include "gradwire/communicator.h"
#include "tests/support/names.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using testing::AnyOf;
using testing::Not;
using testing::StartsWith;

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

Status sum(Communicator& world, std::size_t elems = 1000) {
  std::vector<float> data(elems, 1.0f);
  return wait_for(world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
}

std::string text(const Status& status) { return std::string(status.message()); }

// Deadlines in seconds: one that is waited for, and one that must not matter, of which what a test
// waits for takes less than half on any machine.
constexpr double kShort = 1;
constexpr double kAmple = 60;

// Ranks with a hook to each one's transport.
struct World {
  World(int ranks, double deadline_seconds, double silence_seconds = 0.2) {
    auto transports = make_inproc_transports(ranks, {.silence_seconds = silence_seconds});
    for (auto& transport : transports.value()) {
      hooks.push_back(transport.get());
      auto made = make_communicator(std::move(transport),
                                    {.deadline_seconds = deadline_seconds, .algorithm = "auto"});
      worlds.push_back(std::move(made).value());
    }
  }
  Communicator& at(int r) { return *worlds[static_cast<std::size_t>(r)]; }
  Transport& hook(int r) { return *hooks[static_cast<std::size_t>(r)]; }

  std::vector<Transport*> hooks;
  std::vector<std::unique_ptr<Communicator>> worlds;
};

// What a rank saw, and how long it took.
struct Outcome {
  Status first;
  Status later;
  double seconds = 0;
};

// All begin together: no rank's deadline passes before another's thread has started.
std::vector<Outcome> outcomes_of(World& world, const std::function<Status(int rank)>& program) {
  std::barrier<> together(static_cast<std::ptrdiff_t>(world.worlds.size()));
  return on_threads<Outcome>(static_cast<int>(world.worlds.size()), [&](int r) {
    together.arrive_and_wait();
    const auto start = std::chrono::steady_clock::now();
    Outcome outcome;
    outcome.first = program(r);
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    outcome.later = world.at(r).status();
    return outcome;
  });
}

// `status` of rank `r` is about `lost_rank`: others may be named in it, too, as those who found it
// out or who waited, and `r` itself wherever it failed. Its transport holds the same without words.
void expect_blamed(World& world, int r, const Status& status, int lost_rank, LossCause cause) {
  SCOPED_TRACE("rank " + std::to_string(r));
  EXPECT_THAT(status.message(), StartsWith("rank " + std::to_string(lost_rank) + " "));
  const std::optional<LostPeer> lost = world.hook(r).lost();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->rank, lost_rank);
  EXPECT_EQ(lost->cause, cause);
  EXPECT_EQ(lost->gone, cause != LossCause::kGaveUp);
}

TEST(CommunicatorLoss, AKilledRankIsNamedByAllSurvivors) {
  World world(4, kAmple);
  const auto outcomes = outcomes_of(world, [&](int r) {
    if (const Status status = sum(world.at(r)); !status.ok()) return status;
    if (r != 2) return sum(world.at(r));
    kill_rank(world.hook(2));
    return Status();
  });
  for (const int r : {0, 1, 3}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    EXPECT_THAT(
        outcome.first,
        AnyOf(fails(Code::kPeerLost, "rank 2", "all_reduce", "operation 0", "killed", "60.0"),
              fails(Code::kPeerLost, "rank 2", "all_reduce", "operation 1", "killed", "60.0")))
        << "rank " << r;
    expect_blamed(world, r, outcome.first, 2, LossCause::kConnection);
    EXPECT_LT(outcome.seconds, kAmple / 2);
    EXPECT_EQ(outcome.later.code(), Code::kPeerLost);
    // Sticky: for every call, and for what is split from it.
    EXPECT_EQ(text(wait_for(world.at(r).barrier())), text(outcome.later));
    EXPECT_EQ(world.at(r).split(0, 0).error().code(), Code::kPeerLost);
  }
}

TEST(CommunicatorLoss, AStoppedRankIsNamedByItsSilence) {
  World world(3, kAmple);
  const auto outcomes = outcomes_of(world, [&](int r) {
    if (r != 0) return sum(world.at(r), 300000);
    stop_rank(world.hook(0));
    return Status();
  });
  for (const int r : {1, 2}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    EXPECT_THAT(outcome.first,
                fails(Code::kPeerLost, "rank 0", "all_reduce", "operation 0", "heartbeat", "0.2"));
    expect_blamed(world, r, outcome.first, 0, LossCause::kSilence);
  }
}

TEST(CommunicatorLoss, ARankThatNeverComesIsNamedByAllWithinASecondOfTheDeadline) {
  World world(4, kShort);
  // Rank 2 is alive and elsewhere. Rank 0 waits for rank 3, which waits itself.
  const auto outcomes =
      outcomes_of(world, [&](int r) { return r == 2 ? Status() : sum(world.at(r)); });
  for (const int r : {0, 1, 3}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    EXPECT_THAT(
        outcome.first,
        AnyOf(fails(Code::kTimedOut, "rank 2", "all_reduce", "operation 0", "part", "1.0"),
              fails(Code::kPeerLost, "rank 2", "all_reduce", "operation 0", "part", "1.0")));
    expect_blamed(world, r, outcome.first, 2, LossCause::kNoPart);
    EXPECT_LT(outcome.seconds, kAmple / 2);
  }
  // When it comes after all, it learns that another one gave it up, and over what.
  const Status late = sum(world.at(2));
  EXPECT_THAT(late, fails(Code::kPeerLost, "part", "all_reduce", "operation 0"));
  expect_blamed(world, 2, late, 2, LossCause::kNoPart);
  const int reporter = world.hook(2).lost()->reporter;
  EXPECT_THAT(reporter, AnyOf(0, 1, 3));
  EXPECT_THAT(late, fails(Code::kPeerLost, "rank " + std::to_string(reporter)));
}

TEST(CommunicatorLoss, AMissingSenderIsNamed) {
  World world(2, kShort);
  std::vector<float> data(10);
  const Status status = wait_for(world.at(0).recv(view_of(std::span(data)), 1));
  // Who waited is the one that gives up; whom it waited for is there and may be busy.
  EXPECT_THAT(status, fails(Code::kTimedOut, "rank 0", "recv", "operation 0", "rank 1", "1.0"));
  expect_blamed(world, 0, status, 0, LossCause::kGaveUp);
}

TEST(CommunicatorLoss, CountsThatDifferAreAMismatchOnBothSides) {
  for (const std::size_t longer : {1001u, 2000u, 400000u}) {
    World world(2, kAmple);
    const auto outcomes =
        outcomes_of(world, [&](int r) { return sum(world.at(r), r == 0 ? 1000 : longer); });
    for (const Outcome& outcome : outcomes) {
      EXPECT_THAT(outcome.first, fails(Code::kRankMismatch, "all_reduce", std::to_string(longer)));
      EXPECT_LT(outcome.seconds, kAmple / 2);
    }
  }
}

TEST(CommunicatorLoss, DtypesThatDifferAreAMismatchAtTheDeadline) {
  World world(2, kShort);
  const auto outcomes = outcomes_of(world, [&](int r) {
    std::vector<float> floats(8);
    std::vector<std::int32_t> ints(8);
    const TensorView tensor = r == 0 ? view_of(std::span(floats)) : view_of(std::span(ints));
    return wait_for(world.at(r).all_reduce(tensor, ReduceOp::kSum));
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.first, fails(Code::kRankMismatch, "all_reduce", "8", "f32", "i32"));
    EXPECT_LT(outcome.seconds, kAmple / 2);
  }
}

// Every rank says that ranks disagree, which is another code than that of a loss, and names what
// one of them runs beside what it runs itself.
template <typename... Words>
void expect_mismatch(const std::vector<Outcome>& outcomes, const Words&... words) {
  for (const Outcome& outcome : outcomes) {
    EXPECT_LT(outcome.seconds, kAmple / 2);
    EXPECT_THAT(outcome.first, fails(Code::kRankMismatch, words...));
  }
}

TEST(CommunicatorLoss, ReductionsThatDifferAreAMismatch) {
  World world(3, kShort);
  expect_mismatch(
      outcomes_of(world,
                  [&](int r) {
                    std::vector<float> data(8, 1.0f);
                    const ReduceOp op = r == 1 ? ReduceOp::kMax : ReduceOp::kSum;
                    return wait_for(world.at(r).all_reduce(view_of(std::span(data)), op));
                  }),
      "all_reduce", "8", "f32", "sum", "max");
}

TEST(CommunicatorLoss, RootsThatDifferAreAMismatch) {
  World world(2, kShort);  // of three, one might have got what it wanted
  expect_mismatch(outcomes_of(world,
                              [&](int r) {
                                std::vector<float> data(8, 1.0f);
                                return wait_for(world.at(r).broadcast(view_of(std::span(data)),
                                                                      r == 1 ? 1 : 0));
                              }),
                  "broadcast", "8", "f32", "root 0", "root 1");
}

TEST(CommunicatorLoss, AnotherOrderIsAMismatch) {
  World world(2, kShort);
  expect_mismatch(outcomes_of(world,
                              [&](int r) {
                                std::vector<float> data(8, 1.0f);
                                const TensorView all = view_of(std::span(data));
                                if (r == 0) {
                                  const Status first = wait_for(world.at(0).barrier());
                                  if (!first.ok()) return first;
                                  return wait_for(world.at(0).all_reduce(all, ReduceOp::kSum));
                                }
                                const Status first =
                                    wait_for(world.at(1).all_reduce(all, ReduceOp::kSum));
                                if (!first.ok()) return first;
                                return wait_for(world.at(1).barrier());
                              }),
                  "barrier", "all_reduce", "8", "f32", "sum");
}

TEST(CommunicatorLoss, CountsThatDifferAreReportedWithBoth) {
  World world(2, kAmple);
  expect_mismatch(outcomes_of(world, [&](int r) { return sum(world.at(r), r == 0 ? 1000 : 1001); }),
                  "all_reduce", "1000", "1001", "f32", "sum");
}

// The clause that has `rank` for its subject.
std::string said_of(const Status& status, int rank) {
  const std::string all = text(status);
  const std::size_t begin = all.find("rank " + std::to_string(rank) + " ");
  if (begin == all.npos) return "";
  return all.substr(begin, all.find_first_of(",;", begin) - begin);
}

TEST(CommunicatorLoss, AnOperationThatOthersDoNotRunIsAMismatch) {
  World world(3, kShort);
  const auto outcomes = outcomes_of(
      world, [&](int r) { return r == 1 ? wait_for(world.at(r).barrier()) : sum(world.at(r)); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_THAT(outcome.first, fails(Code::kRankMismatch, "rank 1", "barrier", "all_reduce"));
    EXPECT_THAT(said_of(outcome.first, 1), tells("barrier"));
    EXPECT_THAT(said_of(outcome.first, 1), Not(tells("all_reduce")));
  }
}

// Rank 2 takes no part in it.
TEST(CommunicatorLoss, ADisagreementOfOthersIsToldAsOne) {
  World world(3, kAmple);
  const auto outcomes = outcomes_of(world, [&](int r) {
    std::vector<float> data(r == 1 ? 1001 : 1000);
    const TensorView tensor = view_of(std::span(data));
    return wait_for(r == 1 ? world.at(1).send(tensor, 0)
                           : world.at(r).recv(tensor, r == 0 ? 1 : 0));
  });
  EXPECT_THAT(outcomes[2].first, fails(Code::kRankMismatch, "recv", "operation 0", "rank 0", "4004",
                                       "rank 1", "4000"));
  // Its transport, too, knows that ranks disagree, and who found it out.
  const std::optional<LostPeer> lost = world.hook(2).lost();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->cause, LossCause::kDisagreement);
  EXPECT_EQ(lost->reporter, 0);
}

TEST(CommunicatorLoss, AFlightRecordThatCannotBeWrittenIsMentionedOnce) {
  std::mutex mutex;
  std::vector<std::string> warnings;
  CommunicatorOptions options{.deadline_seconds = kAmple, .flight_folder = "/proc/nothing/here"};
  options.warn = [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    warnings.emplace_back(line);
  };
  {
    auto made = make_inproc_communicators(2, options);
    ASSERT_TRUE(made.has_value());
    auto& worlds = made.value();
    (void)on_threads<Status>(
        2, [&](int r) { return sum(*worlds[static_cast<std::size_t>(r)], r == 0 ? 1000 : 1001); });
  }
  ASSERT_EQ(warnings.size(), 2u);
  std::ranges::sort(warnings);
  EXPECT_THAT(warnings[0], tells("/proc/nothing/here/rank-0.json"));
  EXPECT_THAT(warnings[1], tells("/proc/nothing/here/rank-1.json"));
}

TEST(CommunicatorLoss, AWaitThatEndsEarlyLeavesTheOperationAlone) {
  World world(2, kAmple);
  std::vector<float> a(10, 1.0f);
  std::vector<float> b(10, 1.0f);
  auto first = world.at(0).all_reduce(view_of(std::span(a)), ReduceOp::kSum);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first.value().wait(deadline_in(0.05)).code(), Code::kTimedOut);
  EXPECT_FALSE(first.value().done());
  EXPECT_TRUE(world.at(0).status().ok());
  auto second = world.at(1).all_reduce(view_of(std::span(b)), ReduceOp::kSum);
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(first.value().wait().ok());
  EXPECT_TRUE(second.value().wait().ok());
  EXPECT_EQ(a, std::vector<float>(10, 2.0f));
}

TEST(CommunicatorLoss, AnOperationMakesProgressWithoutBeingWaitedFor) {
  World world(2, kAmple);
  std::vector<float> a(200000, 1.0f);
  std::vector<float> b(200000, 2.0f);
  auto first = world.at(0).all_reduce(view_of(std::span(a)), ReduceOp::kSum);
  auto second = world.at(1).all_reduce(view_of(std::span(b)), ReduceOp::kSum);
  ASSERT_TRUE(first.has_value() && second.has_value());
  const Deadline until = deadline_in(kAmple);
  const auto both = [&] { return first.value().done() && second.value().done(); };
  while (!both() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(both());
  EXPECT_EQ(a, b);
}

TEST(CommunicatorLoss, ADestroyedWorkFinishesTheCommunicator) {
  World world(2, kAmple);
  std::vector<float> data(10);
  { auto work = world.at(0).all_reduce(view_of(std::span(data)), ReduceOp::kSum); }
  EXPECT_EQ(world.at(0).status().code(), Code::kCancelled);
  EXPECT_EQ(sum(world.at(0)).code(), Code::kCancelled);
  // The other rank learns who gave up instead of waiting for its deadline.
  const Status other = sum(world.at(1));
  EXPECT_THAT(other, fails(Code::kPeerLost, "rank 0", "gave up", "all_reduce"));
  expect_blamed(world, 1, other, 0, LossCause::kGaveUp);
}

TEST(CommunicatorLoss, AWorkOutlivesItsCommunicator) {
  World world(2, kAmple);
  std::vector<float> data(10);
  auto work = world.at(0).all_reduce(view_of(std::span(data)), ReduceOp::kSum);
  ASSERT_TRUE(work.has_value());
  world.worlds[0].reset();
  EXPECT_TRUE(work.value().done());
  EXPECT_EQ(work.value().wait().code(), Code::kCancelled);
}

TEST(CommunicatorLoss, ARankMayLeaveAfterItsLastOperation) {
  World world(3, kAmple);
  const auto outcomes = outcomes_of(world, [&](int r) {
    const Status status = sum(world.at(r));
    if (r != 0) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return status;
  });
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.first.ok());
}

TEST(CommunicatorLoss, OperationsOfAllCommunicatorsEndTogether) {
  World world(3, kAmple);
  std::barrier<> together(3);  // the others have their groups, too, when rank 2 dies
  const auto outcomes = outcomes_of(world, [&](int r) {
    auto pair = world.at(r).split(r == 2 ? 1 : 0, 0);
    together.arrive_and_wait();
    if (!pair.has_value()) return pair.error();
    if (r == 2) {
      kill_rank(world.hook(2));
      return Status();
    }
    // Rank 2 is no member of the pair, but the job is over: rank 0 waits for rank 1, which waits
    // for rank 2.
    return r == 0 ? sum(*pair.value()) : wait_for(world.at(1).barrier());
  });
  for (const int r : {0, 1}) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    EXPECT_THAT(outcome.first,
                fails(Code::kPeerLost, r == 0 ? "all_reduce" : "barrier", "killed", "60.0"));
    expect_blamed(world, r, outcome.first, 2, LossCause::kConnection);
  }
}

}  // namespace
}  // namespace gradwire
