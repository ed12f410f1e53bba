// How ranks go on after a failure: shrink() and abort() over ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
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

struct World {
  // A starved thread is silent too: silence is short only where a rank is stopped.
  explicit World(int ranks, double deadline_seconds = 10, double silence_seconds = 10) {
    auto transports = make_inproc_transports(ranks, {.silence_seconds = silence_seconds});
    for (auto& transport : transports.value()) {
      hooks.push_back(transport.get());
      auto made = make_communicator(std::move(transport), {.deadline_seconds = deadline_seconds});
      worlds.push_back(std::move(made).value());
    }
  }
  Communicator& at(int r) { return *worlds[static_cast<std::size_t>(r)]; }
  Transport& hook(int r) { return *hooks[static_cast<std::size_t>(r)]; }
  int size() const { return static_cast<int>(worlds.size()); }

  std::vector<Transport*> hooks;
  std::vector<std::unique_ptr<Communicator>> worlds;
};

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

// Sums (job rank + 1) * (i + 1) and checks it against the group that `world` says it is.
Status sum(Communicator& world, std::size_t elems = 1000) {
  const int self = world.job_rank(world.rank());
  std::vector<float> data(elems);
  for (std::size_t i = 0; i < elems; ++i) {
    data[i] = static_cast<float>(self + 1) * static_cast<float>(i % 50 + 1);
  }
  const Status status = wait_for(world.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
  if (!status.ok()) return status;
  int ranks = 0;
  for (int r = 0; r < world.size(); ++r) ranks += world.job_rank(r) + 1;
  for (std::size_t i = 0; i < elems; ++i) {
    if (data[i] != static_cast<float>(ranks) * static_cast<float>(i % 50 + 1)) {
      return {Code::kInternal, "wrong sum"};
    }
  }
  return {};
}

Status sum_until_error(Communicator& world) {
  for (int i = 0; i < 100000; ++i) {
    if (const Status status = sum(world, 20000); !status.ok()) return status;
  }
  return {Code::kInternal, "no error came"};
}

std::vector<int> members(const Communicator& world) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(world.job_rank(r));
  return ranks;
}

// What a rank did: empty when all went as it should.
using Text = std::string;

Text shrink_and_work(Communicator& failed, const std::vector<int>& expected,
                     std::unique_ptr<Communicator>* keep = nullptr) {
  auto shrunk = failed.shrink();
  if (!shrunk.has_value()) return "shrink: " + Text(shrunk.error().message());
  Communicator& world = *shrunk.value();
  if (members(world) != expected) return "other survivors";
  for (int i = 0; i < 100; ++i) {
    if (const Status status = sum(world); !status.ok()) return "sum: " + Text(status.message());
  }
  auto half = world.split(world.rank() % 2, 0);
  if (!half.has_value()) return "split: " + Text(half.error().message());
  if (const Status status = sum(*half.value()); !status.ok()) return Text(status.message());
  if (failed.status().ok()) return "the failed communicator forgot its failure";
  if (keep != nullptr) {
    *keep = std::move(shrunk).value();
    return "";
  }
  const Status last = wait_for(world.barrier());
  return Text(last.ok() ? "" : last.message());
}

void expect_all_well(const std::vector<Text>& texts) {
  for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], "") << "rank " << r;
}

// Whether an error has `rank` for its subject, beside all that are named as those who found it out.
bool is_about(const Status& status, int rank) {
  return status.message().starts_with("rank " + std::to_string(rank) + " ");
}

enum class How { kKilled, kStopped };

void survivors_go_on(int size, const std::vector<int>& victims, How how) {
  World world(size, 10, how == How::kStopped ? 1 : 10);
  std::vector<int> expected;
  for (int r = 0; r < size; ++r) {
    if (std::ranges::find(victims, r) == victims.end()) expected.push_back(r);
  }
  expect_all_well(on_threads<Text>(size, [&](int r) -> Text {
    (void)sum(world.at(r));  // may fail already: a victim need not wait for the others
    if (std::ranges::find(victims, r) != victims.end()) {
      how == How::kKilled ? kill_rank(world.hook(r)) : stop_rank(world.hook(r));
      return "";
    }
    (void)sum_until_error(world.at(r));
    return shrink_and_work(world.at(r), expected);
  }));
}

TEST(CommunicatorShrink, GoesOnWithoutAKilledRank) {
  for (const int victim : {0, 1, 3}) survivors_go_on(4, {victim}, How::kKilled);
  survivors_go_on(2, {0}, How::kKilled);
  survivors_go_on(2, {1}, How::kKilled);
}

TEST(CommunicatorShrink, GoesOnWithoutAStoppedRank) {
  survivors_go_on(3, {0}, How::kStopped);
  survivors_go_on(2, {0}, How::kStopped);
}

TEST(CommunicatorShrink, GoesOnWithoutSeveral) {
  survivors_go_on(5, {0, 3}, How::kKilled);
  survivors_go_on(4, {1, 2, 3}, How::kKilled);
  survivors_go_on(5, {2, 4}, How::kStopped);
}

TEST(CommunicatorShrink, ShrinksTwice) {
  World world(4);
  std::atomic<int> done{0};
  expect_all_well(on_threads<Text>(4, [&](int r) -> Text {
    if (r == 1) {
      kill_rank(world.hook(1));
      return "";
    }
    (void)sum_until_error(world.at(r));
    std::unique_ptr<Communicator> three;
    if (Text text = shrink_and_work(world.at(r), {0, 2, 3}, &three); !text.empty()) return text;
    ++done;
    if (r == 3) {
      const Deadline until = deadline_in(20);
      while (done < 3 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
      kill_rank(world.hook(3));
      return "";
    }
    const Status second = sum_until_error(*three);
    const std::optional<LostPeer> lost = world.hook(r).lost();
    if (second.code() != Code::kPeerLost || !is_about(second, 3) || !lost || lost->rank != 3 ||
        lost->cause != LossCause::kConnection) {
      return "second loss: " + Text(second.message());
    }
    return shrink_and_work(*three, {0, 2});
  }));
}

TEST(CommunicatorShrink, ARankThatIsKilledDuringShrinkIsLeftOut) {
  for (int delay_us = 0; delay_us < 2000; delay_us += 100) {
    World world(4);
    expect_all_well(on_threads<Text>(4, [&](int r) -> Text {
      if (r == 0) {
        kill_rank(world.hook(0));
        return "";
      }
      (void)sum_until_error(world.at(r));
      if (r == 2) {
        std::thread killer([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
          kill_rank(world.hook(2));
        });
        auto ignored = world.at(2).shrink();
        killer.join();
        return "";
      }
      // It may die after the others have agreed with it; then they shrink again.
      Communicator* failed = &world.at(r);
      std::unique_ptr<Communicator> current;
      for (int round = 0; round < 3; ++round) {
        auto shrunk = failed->shrink();
        if (!shrunk.has_value()) return "shrink: " + Text(shrunk.error().message());
        current = std::move(shrunk).value();
        failed = current.get();
        if (members(*current) == std::vector<int>{1, 3}) break;
        (void)sum_until_error(*current);
      }
      if (members(*current) != std::vector<int>{1, 3}) return "other survivors";
      for (int i = 0; i < 20; ++i) {
        if (const Status status = sum(*current); !status.ok()) return Text(status.message());
      }
      return "";
    }));
    if (HasFailure()) FAIL() << "killed after " << delay_us << " us";
  }
}

TEST(CommunicatorShrink, OneThatNeverCameIsLeftBehindAndLearnsOfIt) {
  World world(3, 1.5);
  std::atomic<int> left{0};
  std::barrier<> together(3);
  expect_all_well(on_threads<Text>(3, [&](int r) -> Text {
    together.arrive_and_wait();
    if (r == 0) {  // busy with something else
      const Deadline until = deadline_in(20);
      while (left < 2 && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      const Status late = sum(world.at(0));
      if (late.code() != Code::kPeerLost) return "late: " + Text(late.message());
      auto alone = world.at(0).shrink();
      if (alone.has_value()) return "went on alone";
      return alone.error().code() == Code::kPeerLost ? "" : Text(alone.error().message());
    }
    const Status status = sum(world.at(r));
    if (!is_about(status, 0) || !names_all(status.message(), "lost", "all_reduce")) {
      ++left;
      return Text(status.message());
    }
    const Text text = shrink_and_work(world.at(r), {1, 2});
    ++left;
    return text;
  }));
}

TEST(CommunicatorShrink, OneThatDoesNotShrinkIsLeftBehindAtTheDeadline) {
  World world(3);
  expect_all_well(on_threads<Text>(3, [&](int r) -> Text {
    if (r == 1) {
      kill_rank(world.hook(1));
      return "";
    }
    (void)sum_until_error(world.at(r));
    if (r == 2) return "";  // does not care to go on
    auto shrunk = world.at(0).shrink(deadline_in(0.3));
    if (!shrunk.has_value()) return Text(shrunk.error().message());
    return members(*shrunk.value()) == std::vector<int>{0} ? "" : "other survivors";
  }));
}

TEST(CommunicatorShrink, NeedsAFailure) {
  World world(2);
  auto shrunk = world.at(0).shrink();
  EXPECT_THAT(shrunk.error(), fails(Code::kInvalidArgument, "shrink", "failed"));
}

TEST(CommunicatorShrink, AnAbortReachesAllAndAllGoOn) {
  World world(3);
  expect_all_well(on_threads<Text>(3, [&](int r) -> Text {
    Status other = sum(world.at(r));  // may fail already: rank 1 need not wait for the others
    if (r == 1) {
      if (!other.ok()) return Text(other.message());
      std::vector<float> data(10);
      auto open = world.at(1).recv(view_of(std::span(data)), 0);
      world.at(1).abort("out of disk");
      const Status own = open.value().wait();
      if (own.code() != Code::kCancelled) return "own code: " + Text(own.message());
      if (!names(own.message(), "out of disk")) return Text(own.message());
    } else {
      if (other.ok()) other = sum(world.at(r));
      if (other.code() != Code::kPeerLost) return "other's code: " + Text(other.message());
      if (!is_about(other, 1) || !names(other.message(), "out of disk")) {
        return Text(other.message());
      }
    }
    return shrink_and_work(world.at(r), {0, 1, 2});
  }));
}

// Whatever its words are: nobody issued another operation.
TEST(CommunicatorShrink, AnAbortInWordsOfADisagreementIsAnAbort) {
  for (const std::string why :
       {"check failed: ranks disagree: loss", "closed", "reported by rank 2: out of disk"}) {
    World world(3);
    expect_all_well(on_threads<Text>(3, [&](int r) -> Text {
      Status status = sum(world.at(r));  // may fail already: rank 1 need not wait for the others
      if (r == 1) {
        if (!status.ok()) return Text(status.message());
        world.at(1).abort(why);
        status = world.at(1).status();
        if (status.code() != Code::kCancelled) return "own code: " + Text(status.message());
      } else {
        if (status.ok()) status = sum_until_error(world.at(r));
        if (status.code() != Code::kPeerLost) return "other's code: " + Text(status.message());
        if (!is_about(status, 1) || !names_all(status.message(), "gave up", why)) {
          return Text(status.message());
        }
      }
      return shrink_and_work(world.at(r), {0, 1, 2});
    }));
  }
}

// Who has nothing open hears first that the rank that gave up shrinks.
TEST(CommunicatorShrink, AnAbortBetweenOperationsIsAnAbort) {
  World world(3);
  std::barrier<> together(3);
  expect_all_well(on_threads<Text>(3, [&](int r) -> Text {
    const Status before = sum(world.at(r));
    together.arrive_and_wait();
    if (!before.ok()) return Text(before.message());
    if (r == 1) {
      world.at(1).abort("out of disk");
    } else {
      const Deadline until = deadline_in(20);
      while (world.at(r).status().ok() && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const Status next = sum(world.at(r));
      if (!is_about(next, 1) || !names_all(next.message(), "gave up", "out of disk")) {
        return Text(next.message());
      }
    }
    return shrink_and_work(world.at(r), {0, 1, 2});
  }));
}

TEST(CommunicatorShrink, AGroupShrinksByItself) {
  World world(4);
  std::barrier<> together(4);  // a rank whose split is done may die while others still split
  expect_all_well(on_threads<Text>(4, [&](int r) -> Text {
    auto half = world.at(r).split(r / 2, 0);
    together.arrive_and_wait();
    if (!half.has_value()) return Text(half.error().message());
    if (r == 3) {
      kill_rank(world.hook(3));
      return "";
    }
    (void)sum_until_error(*half.value());
    return shrink_and_work(*half.value(), r == 2 ? std::vector<int>{2} : std::vector<int>{0, 1});
  }));
}

}  // namespace
}  // namespace gradwire
