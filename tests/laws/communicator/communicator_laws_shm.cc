// The laws of Communicator where ranks share memory: as processes over UCX, and as threads whose
// messages are in-process. The programs are the same as without, and those that name no algorithm
// go through memory; beside them stand those that promise what memory alone does: sums in rank
// order with one rounding, from tensors of the arena and from others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <array>
#include <atomic>
#include <thread>

#include <csignal>
#include <cstring>
#include <semaphore>
#include <vector>

#include "base/elements.h"
#include "base/text.h"
#include "comm/inproc/inproc_transport.h"
#include "tests/laws/communicator/communicator_process_laws.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/laws/communicator/shm_programs.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"
#include "tests/support/short_run.h"
#include "tests/support/thread_ranks.h"

namespace gradwire {
namespace {

using Program = std::string (*)(Communicator& world);

void expect_no_fault(const std::vector<std::string>& faults) {
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

class CommunicatorLawsShmThreads : public testing::TestWithParam<int> {
 protected:
  void run(const std::vector<Program>& programs) {
    auto transports = make_inproc_transports(GetParam());
    ASSERT_TRUE(transports.has_value());
    expect_no_fault(on_threads<std::string>(GetParam(), [&](int r) -> std::string {
      auto world =
          make_sharing_communicator(std::move(transports.value()[static_cast<std::size_t>(r)]));
      if (!world.has_value()) return std::string(world.error().message());
      for (const Program program : programs) {
        if (std::string fault = program(*world.value()); !fault.empty()) return fault;
      }
      return "";
    }));
  }
};

TEST_P(CommunicatorLawsShmThreads, Reductions) {
  run({shares_memory, reduce_in_rank_order, reduce_large_in_rank_order, keep_nans});
}
TEST_P(CommunicatorLawsShmThreads, Movements) {
  run({move_everything, move_shared_tensors, reduce_in_memory, move_to_and_from_root});
}
TEST_P(CommunicatorLawsShmThreads, Forms) {
  run({work_in_place_and_apart, run_again_and_again, run_batches, reduce_fused});
}
TEST_P(CommunicatorLawsShmThreads, Groups) {
  run({rows_and_columns, split_and_split_again, groups_of_members, end_amid_operations,
       many_outstanding, sizes_side_by_side, refuse_bad_arguments, count_shared_bytes});
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorLawsShmThreads, testing::Values(3, 5));

class CommunicatorLawsShm : public testing::TestWithParam<int> {
 protected:
  void run(const std::vector<Program>& programs) {
    const auto outcomes = on_processes(
        GetParam(), {}, 120,
        [&](std::unique_ptr<Communicator> world) {
          for (const Program program : programs) {
            if (std::string fault = program(*world); !fault.empty()) return fault;
          }
          return std::string();
        },
        {}, "auto");
    EXPECT_THAT(outcomes, ended_cleanly(GetParam()));
  }
};

TEST_P(CommunicatorLawsShm, Reductions) {
  run({shares_memory, reduce_in_rank_order, reduce_large_in_rank_order, reduce_in_memory,
       keep_nans});
}
TEST_P(CommunicatorLawsShm, Movements) {
  run({move_everything, move_large, move_shared_tensors, move_to_and_from_root});
}
class CommunicatorMessagesShm : public CommunicatorLawsShm {};
class CommunicatorAheadShm : public CommunicatorLawsShm {};

TEST_P(CommunicatorMessagesShm, ManyMessages) { run({send_many_large}); }
TEST_P(CommunicatorMessagesShm, ProbeWithoutEnd) { run({probe_without_end}); }
TEST_P(CommunicatorAheadShm, RunAhead) { run({run_ahead}); }
TEST_P(CommunicatorMessagesShm, AnAbortAmidMessages) { run({abort_amid_messages}); }
TEST_P(CommunicatorLawsShm, Forms) {
  run({work_in_place_and_apart, run_again_and_again, run_batches, reduce_fused});
}
TEST_P(CommunicatorLawsShm, Groups) {
  run({rows_and_columns, split_and_split_again, groups_of_members, end_amid_operations,
       many_outstanding, sizes_side_by_side, refuse_bad_arguments, count_shared_bytes});
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorLawsShm, testing::Values(1, 2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorMessagesShm, testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorAheadShm, testing::ValuesIn(sample_of<int>({4, 2}, 2)));

// Where one operation stands when a rank goes.
struct Loss {
  std::size_t bytes;
  bool shared;
  int signal_number;
  bool messages = false;  // to the next rank and from the one before, instead of sums
};

// Sums until it fails, a bounded number of times; the error as text. Counted once it has begun.
std::string sum_until_error(Communicator& world, const Loss& loss, const ProcessCount& begun) {
  std::vector<float> own;
  Buffer shared;
  TensorView tensor;
  const std::size_t elems = loss.bytes / sizeof(float);
  if (loss.shared) {
    auto memory = world.allocate(loss.bytes);
    if (!memory.has_value()) return std::string(memory.error().message());
    shared = std::move(memory).value();
    tensor = shared.tensor(Shape::vector(static_cast<std::int64_t>(elems)), DType::kF32);
  } else {
    own.resize(elems);
    tensor = view_of(std::span(own));
  }
  std::vector<float> got(loss.messages ? elems : 0);
  const std::array messages{
      OpCall::send(tensor, (world.rank() + 1) % world.size(), 7),
      OpCall::recv(view_of(std::span(got)), (world.rank() + world.size() - 1) % world.size(), 7)};
  for (long i = 0; i < 100'000'000; ++i) {
    auto work =
        loss.messages ? world.start_all(messages) : world.all_reduce(tensor, ReduceOp::kSum);
    const Status status = work.has_value() ? work.value().wait() : work.error();
    if (!status.ok())
      return std::string(to_string(status.code())) + ": " + std::string(status.message());
    if (i == 0) begun.come();
  }
  return "no error";
}

class CommunicatorLossShm : public testing::TestWithParam<Loss> {};

TEST_P(CommunicatorLossShm, ARankThatGoesIsNamedByAll) {
  constexpr std::size_t kVictim = 2;
  const Loss loss = GetParam();
  const ProcessCount begun;
  const auto outcomes = on_processes(
      4, {.deadline_seconds = 6}, 60,
      [&](std::unique_ptr<Communicator> world) { return sum_until_error(*world, loss, begun); },
      [&](const std::vector<pid_t>& pids) {
        EXPECT_TRUE(begun.await(4, 60));
        kill(pids[kVictim], loss.signal_number);
      },
      "auto");
  EXPECT_THAT(outcomes,
              survivors_ended_saying(
                  4, kVictim, tells("peer lost: rank 2", loss.messages ? "" : "all_reduce")));
}

INSTANTIATE_TEST_SUITE_P(
    Losses, CommunicatorLossShm,
    testing::Values(Loss{4000, false, SIGKILL}, Loss{4000, false, SIGSTOP},
                    Loss{16 << 20, false, SIGKILL}, Loss{16 << 20, true, SIGSTOP},
                    Loss{16 << 20, true, SIGKILL}, Loss{4000, false, SIGKILL, true},
                    Loss{16 << 20, false, SIGSTOP, true}, Loss{16 << 20, true, SIGKILL, true}),
    [](const auto& info) {
      const Loss& loss = info.param;
      return std::string(loss.signal_number == SIGKILL ? "Killed" : "Stopped") +
             (loss.messages ? "Messages" : "") + (loss.shared ? "Shared" : "Private") +
             std::to_string(loss.bytes);
    });

// A program runs on each of two ranks as threads; what each returned.
std::vector<Status> on_two_ranks(double deadline_seconds,
                                 const std::function<Status(Communicator& world)>& program) {
  auto transports = make_inproc_transports(2);
  return on_threads<Status>(2, [&](int r) -> Status {
    GW_ASSIGN(auto world,
              make_sharing_communicator(std::move(transports.value()[static_cast<std::size_t>(r)]),
                                        {.deadline_seconds = deadline_seconds}));
    return program(*world);
  });
}

Status sum(Communicator& world, std::size_t elems) {
  std::vector<float> data(elems, 1.0f);
  GW_ASSIGN(Work work, world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
  return work.wait();
}

TEST(CommunicatorShm, CountsThatDifferAreAMismatchOnBothSides) {
  for (const std::size_t longer : {1001u, 2000u, 400000u}) {
    const auto outcomes = on_two_ranks(
        5, [&](Communicator& world) { return sum(world, world.rank() == 0 ? 1000 : longer); });
    for (const Status& outcome : outcomes) {
      EXPECT_THAT(outcome,
                  fails(Code::kRankMismatch, "all_reduce", "1000", std::to_string(longer)));
    }
  }
}

TEST(CommunicatorShm, AnotherOperationIsAMismatch) {
  const auto outcomes = on_two_ranks(5, [&](Communicator& world) -> Status {
    if (world.rank() == 0) return sum(world, 10);
    GW_ASSIGN(Work work, world.barrier());
    return work.wait();
  });
  for (const Status& outcome : outcomes) {
    EXPECT_EQ(outcome.code(), Code::kRankMismatch) << outcome.message();
  }
}

TEST(CommunicatorShm, AnotherWayIsAMismatchAtTheDeadline) {
  const auto outcomes = on_two_ranks(1, [&](Communicator& world) -> Status {
    if (world.rank() == 0) return sum(world, 10);
    std::vector<std::int32_t> data(7);
    GW_ASSIGN(Work work, world.all_reduce(view_of(std::span(data)), ReduceOp::kSum,
                                          {.algorithm = "ring", .deadline = {}, .stream = {}}));
    return work.wait();
  });
  for (const Status& outcome : outcomes) {
    EXPECT_EQ(outcome.code(), Code::kRankMismatch) << outcome.message();
  }
}

// Long before the deadline, which is what a rank that is merely late has.
TEST(CommunicatorShm, ARankThatClosesIsNamedAtOnce) {
  constexpr double kDeadline = 40;
  for (const std::size_t elems : {10u, 900'000u}) {
    const auto start = std::chrono::steady_clock::now();
    const auto outcomes = on_two_ranks(kDeadline, [&](Communicator& world) -> Status {
      GW_TRY(sum(world, 10));
      return world.rank() == 1 ? Status() : sum(world, elems);
    });
    EXPECT_THAT(outcomes[0], fails(Code::kPeerLost, "rank 1", "all_reduce", "closed"));
    EXPECT_TRUE(outcomes[1].ok()) << outcomes[1].message();
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::duration<double>(kDeadline / 2));
  }
}

Status finish(Result<Work> started) {
  GW_ASSIGN(Work work, std::move(started));
  return work.wait();
}

// Short ones, and others that are copied from where they are.
TEST(CommunicatorShm, MessagesOfAnotherLengthAreAMismatch) {
  for (const std::size_t elems : {1000u, 400000u}) {
    const auto outcomes = on_two_ranks(5, [&](Communicator& world) {
      std::vector<float> data(elems + static_cast<std::size_t>(world.rank()), 1.0f);
      const TensorView tensor = view_of(std::span(data));
      return finish(world.rank() == 0 ? world.send(tensor, 1) : world.recv(tensor, 0));
    });
    EXPECT_THAT(outcomes[1], fails(Code::kRankMismatch, "recv", "rank 0", std::to_string(4 * elems),
                                   std::to_string(4 * elems + 4)));
  }
}

// What it sent before it closed is there; what it did not send is not waited for.
TEST(CommunicatorShm, MessagesOfARankThatClosesArriveAndEnd) {
  constexpr double kDeadline = 40;
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = on_two_ranks(kDeadline, [&](Communicator& world) -> Status {
    std::vector<float> data(100, static_cast<float>(world.rank()));
    const TensorView tensor = view_of(std::span(data));
    if (world.rank() == 1) return finish(world.send(tensor, 0));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    GW_TRY(finish(world.recv(tensor, 1)));
    if (data.front() != 1) return {Code::kInternal, "another message"};
    return finish(world.recv(tensor, 1));
  });
  EXPECT_THAT(outcomes[0], fails(Code::kPeerLost, "rank 1", "recv", "closed"));
  EXPECT_TRUE(outcomes[1].ok()) << outcomes[1].message();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(kDeadline / 2));
}

// The receiver does something else; its engine copies what comes.
TEST(CommunicatorShm, MessagesArriveWhileNobodyWaits) {
  constexpr std::size_t kElems = 3 << 20;
  constexpr int kLooks = 20000;
  std::atomic<bool> sent{false};
  const auto outcomes = on_two_ranks(20, [&](Communicator& world) -> Status {
    std::vector<float> data(kElems, static_cast<float>(world.rank()));
    const TensorView tensor = view_of(std::span(data));
    if (world.rank() == 1) {
      const Status status = finish(world.send(tensor, 0));
      sent = true;
      return status;
    }
    GW_ASSIGN(Work work, world.recv(tensor, 1));
    for (int look = 0; !sent && look < kLooks; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!sent) return {Code::kInternal, "nobody received"};
    GW_TRY(work.wait());
    return data.back() == 1 ? Status() : Status(Code::kInternal, "another message");
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CommunicatorShm, AMessageIsDoneThoughNobodyWaits) {
  constexpr int kLooks = 20000;
  const auto outcomes = on_two_ranks(20, [&](Communicator& world) -> Status {
    std::vector<float> data(10, static_cast<float>(world.rank()));
    const TensorView tensor = view_of(std::span(data));
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return finish(world.send(tensor, 0));
    }
    GW_ASSIGN(Work work, world.recv(tensor, 1));
    for (int look = 0; !work.done() && look < kLooks; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return work.done() ? work.wait() : Status(Code::kInternal, "not done");
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CommunicatorShm, PreparedMessagesRunAgainAndAgain) {
  constexpr int kRuns = 1000;
  const auto outcomes = on_two_ranks(20, [&](Communicator& world) -> Status {
    std::vector<std::int32_t> out(300), in(300);
    GW_ASSIGN(PersistentWork send,
              world.prepare(OpCall::send(view_of(std::span(out)), 1 - world.rank(), 3)));
    GW_ASSIGN(PersistentWork recv,
              world.prepare(OpCall::recv(view_of(std::span(in)), 1 - world.rank(), 3)));
    for (int run = 0; run < kRuns; ++run) {
      std::ranges::fill(out, 2 * run + world.rank());
      GW_ASSIGN(Work receiving, recv.start());
      GW_TRY(finish(send.start()));
      GW_TRY(receiving.wait());
      if (in.front() != 2 * run + 1 - world.rank() || in.back() != in.front()) {
        return {Code::kInternal, "run " + std::to_string(run) + ": another message"};
      }
    }
    return {};
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

// A message each way between two ranks that share memory, or not.
Status talk(Communicator& group) {
  std::vector<std::int32_t> out(100, group.rank()), in(100, -1);
  const std::array calls{OpCall::send(view_of(std::span(out)), 1 - group.rank()),
                         OpCall::recv(view_of(std::span(in)), 1 - group.rank())};
  GW_TRY(finish(group.start_all(calls)));
  return in == std::vector<std::int32_t>(100, 1 - group.rank())
             ? Status()
             : Status(Code::kInternal, "another message");
}

// One after another.
Status come_and_go(Communicator& world, bool share) {
  constexpr int kGroups = 80;
  constexpr std::string_view kSays = "collectives in shared memory, and messages";
  for (int k = 0; k < kGroups; ++k) {
    GW_ASSIGN(const auto group, world.create_group(std::array{0, 1}));
    GW_TRY(talk(*group));
    const std::string how = group->describe();
    if (share != (how.find(kSays) != std::string::npos)) {
      return {Code::kInternal, "group " + std::to_string(k) + ": " + how};
    }
  }
  return {};
}

// Of 64 MiB that a rank may share each takes more than 8 at rank 0, and 1 at rank 1.
TEST(CommunicatorShm, GroupsGiveTheirMemoryBack) {
  constexpr std::size_t kShare = 64 << 20;
  constexpr std::size_t kPiece = 1 << 20;
  auto transports = make_inproc_transports(2);
  ASSERT_TRUE(transports.has_value());
  const auto outcomes = on_threads<Status>(2, [&](int r) -> Status {
    GW_ASSIGN(auto world,
              make_sharing_communicator(std::move(transports.value()[static_cast<std::size_t>(r)]),
                                        {.deadline_seconds = 60, .shared_bytes = 2 * kShare}));
    // At first rank 0 has no room for its part; what rank 1 takes is of no use then.
    std::vector<Buffer> all;
    for (std::size_t taken = 0; r == 0 && taken < kShare; taken += kPiece) {
      GW_ASSIGN(Buffer piece, world->allocate(kPiece));
      all.push_back(std::move(piece));
    }
    GW_TRY(come_and_go(*world, false));
    all.clear();
    return come_and_go(*world, true);
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

// Where each of many ranks may share little, slots are smaller; there are no messages instead.
TEST(CommunicatorShm, ManyRanksShareLittleMemory) {
  constexpr int kRanks = 8;
  auto transports = make_inproc_transports(kRanks);
  ASSERT_TRUE(transports.has_value());
  const auto outcomes = on_threads<Status>(kRanks, [&](int r) -> Status {
    GW_ASSIGN(auto world,  // the least: 16 MiB each
              make_sharing_communicator(std::move(transports.value()[static_cast<std::size_t>(r)]),
                                        {.deadline_seconds = 60, .shared_bytes = 1}));
    if (world->shared_memory() != SharedMemory::kAllRanks) {
      return {Code::kInternal, "no shared memory: " + world->describe()};
    }
    for (const std::size_t elems : {std::size_t{1}, std::size_t{10'000}, std::size_t{3'000'001}}) {
      std::vector<float> data(elems, static_cast<float>(r + 1));
      GW_ASSIGN(Work work, world->all_reduce(view_of(std::span(data)), ReduceOp::kSum));
      GW_TRY(work.wait());
      constexpr float kSum = kRanks * (kRanks + 1) / 2;
      if (std::ranges::count(data, kSum) != std::ssize(data)) {
        return {Code::kInternal, "a sum of " + std::to_string(elems) + " elements is wrong"};
      }
    }
    return {};
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CommunicatorShm, AlgorithmsAreNamed) {
  const auto outcomes = on_two_ranks(10, [&](Communicator& world) -> Status {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kGatherV,
                              OpKind::kScatter, OpKind::kExclusiveScan, OpKind::kBarrier}) {
      GW_ASSIGN(const std::string_view taken, world.algorithm_for(kind, 1000));
      if (taken != "shm") return {Code::kInternal, std::string(taken)};
    }
    GW_ASSIGN(const std::string_view ring, world.algorithm_for(OpKind::kAllReduce, 1000, "ring"));
    GW_ASSIGN(const std::string_view rows, world.algorithm_for(OpKind::kAllToAllV, 1000));
    return ring == "ring" && rows != "shm" ? Status() : Status(Code::kInternal, "not of messages");
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CommunicatorShm, ARankThatComesLateIsNamedAndCannotGoOn) {
  std::binary_semaphore given_up(0);
  const auto outcomes = on_two_ranks(1, [&](Communicator& world) -> Status {
    if (world.rank() == 1) (void)given_up.try_acquire_for(std::chrono::seconds(60));
    const Status outcome = sum(world, 10);
    if (world.rank() == 0) given_up.release();
    return outcome;
  });
  EXPECT_THAT(outcomes[0], fails(Code::kTimedOut, "rank 1", "all_reduce"));
  EXPECT_FALSE(outcomes[1].ok());
}

TEST(CommunicatorShm, AWaitThatEndsEarlyLeavesTheOperationAlone) {
  std::binary_semaphore ended(0);
  const auto outcomes = on_two_ranks(120, [&](Communicator& world) -> Status {
    std::vector<float> data(10, 1.0f);
    if (world.rank() == 1) (void)ended.try_acquire_for(std::chrono::seconds(60));
    GW_ASSIGN(Work work, world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
    if (world.rank() == 0) {
      const Code early = work.wait(deadline_in(0.02)).code();
      ended.release();
      if (early != Code::kTimedOut) return {Code::kInternal, "the wait did not end early"};
    }
    GW_TRY(work.wait());
    return data == std::vector<float>(10, 2.0f) ? Status() : Status(Code::kInternal, "wrong sum");
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

TEST(CommunicatorShm, AnOperationMakesProgressWithoutBeingWaitedFor) {
  const auto outcomes = on_two_ranks(10, [&](Communicator& world) -> Status {
    std::vector<float> data(3'000'000, 1.0f);
    GW_ASSIGN(Work work, world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
    const Deadline until = deadline_in(8);
    while (!work.done() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return work.done() ? work.wait() : Status(Code::kInternal, "no progress");
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

INSTANTIATE_TEST_SUITE_P(Shm, CommunicatorProcessForks, testing::Values(ProcessJob{"auto", 3}));

TEST(CommunicatorShm, MemoryOutlivesTheCommunicator) {
  const auto outcomes = on_two_ranks(10, [&](Communicator& world) -> Status {
    GW_ASSIGN(Buffer buffer, world.allocate(100000));
    GW_ASSIGN(auto part, world.split(world.rank(), 0));
    part.reset();
    std::memset(buffer.bytes().data(), 1, buffer.bytes().size());
    return sum(world, 5);
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.message();
}

}  // namespace
}  // namespace gradwire
