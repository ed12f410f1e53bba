// What a progress engine owes to others while it is busy, and to operations whose communicator has
// gone.
#include "collectives/engine/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/elements.h"
#include "collectives/engine/executor.h"
#include "collectives/failure/notes.h"
#include "collectives/schedules/selection.h"
#include "comm/inproc/inproc_transport.h"
#include "gradwire/communicator.h"
#include "tests/support/passing_transport.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::engine_test {
namespace {

// Without messages, among so many ranks.
class Local : public Runnable {
 public:
  explicit Local(std::vector<int> ranks)
      : route_{std::make_shared<const std::vector<int>>(std::move(ranks)), 0, 0, 0} {}
  void cancel(Transport&) override {}
  bool settled(Transport&) override { return true; }
  void release(ScratchPool&) override {}
  std::vector<int> waiting_for(const Transport&) const override { return {}; }
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return 0; }

 private:
  Route route_;
};

// Something to do at every turn, until told to stop.
class Busy final : public Local {
 public:
  explicit Busy(std::atomic<bool>& over) : Local({0, 1}), over_(over) {}
  Result<bool> advance(Transport&, ScratchPool&) override { return true; }
  bool done() const override { return over_; }
  Awaited awaited() const override { return {.memory = true}; }

 private:
  std::atomic<bool>& over_;
};

// Rank 0 asks what rank 1 is doing, as ranks do that look for who keeps them waiting.
TEST(ProgressEngine, AnswersWhileItIsBusy) {
  auto transports = make_inproc_transports(2);
  ASSERT_TRUE(transports.has_value());
  Transport& asking = *transports.value()[0];
  std::atomic<bool> over{false};
  const auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[1]));
  auto work = std::make_shared<WorkState>(engine);
  ASSERT_TRUE(engine
                  ->submit(std::make_unique<Operation>(
                      Operation{.signature = {.name = "busy"},
                                .started = std::chrono::steady_clock::now(),
                                .deadline = deadline_in(60),
                                .execution = std::make_unique<Busy>(over),
                                .work = work,
                                .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}))
                  .ok());
  asking.tell(1, encode(EngineNote{.kind = EngineNote::Kind::kAsk}));
  bool answered = false;
  for (const Deadline until = deadline_in(5);
       !answered && std::chrono::steady_clock::now() < until;) {
    ASSERT_TRUE(asking.progress().has_value());
    answered = !asking.take_notes().empty();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  over = true;
  EXPECT_TRUE(engine->wait(*work, deadline_in(10)));
  EXPECT_TRUE(answered);
}

// Writes its name down at every turn; done after `turns` of them.
class Logging final : public Local {
 public:
  Logging(char name, int turns, std::string& log)
      : Local({0}), name_(name), turns_(turns), log_(log) {}
  Result<bool> advance(Transport&, ScratchPool&) override {
    log_ += name_;
    --turns_;
    return true;
  }
  bool done() const override { return turns_ == 0; }
  Awaited awaited() const override { return {.nothing = true}; }

 private:
  char name_;
  int turns_;
  std::string& log_;
};

// What is urgent has a turn before each one of what is not, and what is large does not starve.
TEST(ProgressEngine, SmallOperationsHaveATurnBetweenThoseOfLargeOnes) {
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  const auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[0]));
  auto work = std::make_shared<WorkState>(engine, 4);
  std::string log;
  const auto submit = [&](char name, int turns, Queue queue) {
    ASSERT_TRUE(engine
                    ->submit(std::make_unique<Operation>(
                        Operation{.signature = {.name = "logging"},
                                  .queue = queue,
                                  .started = std::chrono::steady_clock::now(),
                                  .deadline = deadline_in(60),
                                  .execution = std::make_unique<Logging>(name, turns, log),
                                  .work = work,
                                  .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}))
                    .ok());
  };
  submit('b', 2000, Queue::kBulk);
  submit('c', 2000, Queue::kBulk);
  submit('p', 50, Queue::kPipeline);
  submit('u', 50, Queue::kLatency);
  ASSERT_TRUE(engine->wait(*work, deadline_in(30)));
  ASSERT_EQ(log.size(), 4100u);
  const std::size_t first = log.find('u'), last = log.rfind('u');
  for (std::size_t i = first; i < last; ++i) {
    const bool urgent = log[i] == 'u' || log[i + 1] == 'u';
    EXPECT_TRUE(urgent) << log.substr(i, 2) << " at " << i << " of " << first << " to " << last;
  }
  // All of them have turns: the large ones end together, within a few.
  const auto before = [&](char a, char b) { return log.rfind(a) < log.rfind(b); };
  EXPECT_TRUE(before('u', 'b') && before('p', 'b') && before('u', 'c') && before('p', 'c')) << log;
}

// Asks for turns until told to stop, or for so many of them that last a while; notes who takes
// them.
class Watched final : public Local {
 public:
  Watched(std::atomic<std::thread::id>& last, const std::atomic<bool>& over, int turns)
      : Local({0}), last_(last), over_(over), turns_(turns) {}
  Result<bool> advance(Transport&, ScratchPool&) override {
    if (turns_ > 0 && --turns_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    last_ = std::this_thread::get_id();
    return true;
  }
  bool done() const override { return over_ || turns_ == 0; }
  Awaited awaited() const override { return {.memory = true}; }

 private:
  std::atomic<std::thread::id>& last_;
  const std::atomic<bool>& over_;
  int turns_;
};

// A hand-over would stop the large one: who waits for a small one leaves both to the engine's
// thread. On a busy machine the small one may take too long for that, now and then.
TEST(ProgressEngine, ItsThreadGoesOnWhileASmallOperationBesideOthersIsAwaited) {
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  std::atomic<std::thread::id> large{}, small{};
  std::atomic<bool> over{false}, never{false};
  const auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[0]));
  const auto submit = [&](auto& last, auto& stop, int turns, Queue queue, auto work) {
    return engine->submit(std::make_unique<Operation>(
        Operation{.signature = {.name = "watched"},
                  .queue = queue,
                  .started = std::chrono::steady_clock::now(),
                  .deadline = deadline_in(60),
                  .execution = std::make_unique<Watched>(last, stop, turns),
                  .work = work,
                  .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}));
  };
  const auto bulk = std::make_shared<WorkState>(engine);
  ASSERT_TRUE(submit(large, over, -1, Queue::kBulk, bulk).ok());
  const auto own = std::this_thread::get_id();
  bool left = false;
  for (int round = 0; round < 50 && !left; ++round) {
    for (const Deadline until = deadline_in(10);
         large.load() == own && std::chrono::steady_clock::now() < until;) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const auto work = std::make_shared<WorkState>(engine);
    ASSERT_TRUE(submit(small, never, 6, Queue::kLatency, work).ok());
    ASSERT_TRUE(engine->wait(*work, deadline_in(10)));
    left = small.load() != own;
  }
  EXPECT_TRUE(left);
  over = true;
  EXPECT_TRUE(engine->wait(*bulk, deadline_in(10)));
}

// Ends with its first turn, and counts.
class Counting final : public Local {
 public:
  explicit Counting(std::atomic<int>& count) : Local({0}), count_(count) {}
  Result<bool> advance(Transport&, ScratchPool&) override {
    begun_ = true;
    ++count_;
    return true;
  }
  bool done() const override { return begun_; }

 private:
  std::atomic<int>& count_;
  bool begun_ = false;
};

// Those that wait for company begin though no more come and nobody waits for them.
TEST(ProgressEngine, BriefOperationsBeginThoughNobodyWaits) {
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  const auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[0]));
  std::atomic<int> begun{0};
  for (const int operations : {1, 2, 10, 100}) {
    begun = 0;
    auto work = std::make_shared<WorkState>(engine, static_cast<std::size_t>(operations));
    for (int i = 0; i < operations; ++i) {
      const Status submitted = engine->submit(std::make_unique<Operation>(
          Operation{.signature = {.name = "counting", .elems = 1},
                    .collective = false,
                    .brief = true,
                    .queue = Queue::kPipeline,
                    .started = std::chrono::steady_clock::now(),
                    .deadline = deadline_in(60),
                    .execution = std::make_unique<Counting>(begun),
                    .work = work,
                    .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}));
      ASSERT_TRUE(submitted.ok());
    }
    for (const Deadline until = deadline_in(30);
         begun < operations && std::chrono::steady_clock::now() < until;) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(begun, operations);
    EXPECT_TRUE(engine->wait(*work, deadline_in(30)));
  }
}

// A thread waits for messages and for memory; another one of its host writes there and rings.
TEST(Waiter, WakesForMemoryWhileItSleepsForMessages) {
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  const auto bell = std::make_shared<shm::Bell>();
  Waiter waiter;
  waiter.listen_to(bell);
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> written{false};
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(round));
      written = true;
      bell->ring();
    });
    const Deadline until = deadline_in(30);
    while (!written && std::chrono::steady_clock::now() < until) {
      const Status status = waiter.sleep(*transports.value()[0], {.messages = true, .memory = true},
                                         until, [&] { return written.load(); });
      EXPECT_TRUE(status.ok()) << status.message();
    }
    other.join();
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "round " << round;
  }
}

// Never ends by itself, and takes its time to be cancelled.
class Lingering final : public Local {
 public:
  explicit Lingering(std::function<void()> cancelled)
      : Local({0}), cancelled_(std::move(cancelled)) {}
  Result<bool> advance(Transport&, ScratchPool&) override { return false; }
  bool done() const override { return false; }
  void cancel(Transport&) override { cancelled_(); }

 private:
  std::function<void()> cancelled_;
};

void await(const std::atomic<bool>& flag) {
  for (const Deadline until = deadline_in(10); !flag && std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// One thread lets the last communicator go, and another waits for an operation of it.
TEST(ProgressEngine, AWaitLastsUntilTheEndOfAnEngineThatIsBeingDestroyed) {
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  std::atomic<bool> ending{false}, waits{false};
  auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[0]));
  auto state = std::make_shared<WorkState>(engine);
  const auto cancelled = [&] {
    ending = true;
    await(waits);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // now it waits
  };
  ASSERT_TRUE(engine
                  ->submit(std::make_unique<Operation>(
                      Operation{.signature = {.name = "lingering"},
                                .started = std::chrono::steady_clock::now(),
                                .deadline = deadline_in(60),
                                .execution = std::make_unique<Lingering>(cancelled),
                                .work = state,
                                .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}))
                  .ok());
  Status seen;
  std::thread other([&, work = Work(state)]() mutable {
    await(ending);
    waits = true;
    seen = work.wait(deadline_in(20));
  });
  engine.reset();
  other.join();
  EXPECT_EQ(seen.code(), Code::kCancelled) << seen.message();
}

// Sleeps as the transport below, and says how long it was to sleep at most.
class Sleeping final : public PassingTransport {
 public:
  Sleeping(std::unique_ptr<Transport> inner, std::function<void(Deadline until)> sleeps)
      : PassingTransport(std::move(inner)), sleeps_(std::move(sleeps)) {}
  Status wait(Deadline until) override {
    sleeps_(until);
    return inner_->wait(until);
  }

 private:
  std::function<void(Deadline)> sleeps_;
};

// Never ends by itself; something else happens once, when the engine lies down.
class Interrupted final : public Local {
 public:
  explicit Interrupted(std::function<void()> lies_down)
      : Local({0}), lies_down_(std::move(lies_down)) {}
  Result<bool> advance(Transport&, ScratchPool&) override { return false; }
  bool done() const override { return false; }
  bool single() const override { return true; }
  Awaited awaited() const override {
    if (lies_down_) std::exchange(lies_down_, nullptr)();
    return {.messages = true};
  }

 private:
  mutable std::function<void()> lies_down_;
};

// Open until it has been asked so often.
class Asked final : public QuickWork {
 public:
  explicit Asked(int times) : left_(times) {}
  void look() override {}
  bool wait_briefly(const WorkState& work, const std::optional<Deadline>&) override {
    return work.done();
  }
  bool hand_over(ProgressEngine&) override { return --left_ > 0; }
  bool open() const { return left_ > 0; }

 private:
  std::atomic<int> left_;
};

// It begins just when the engine's thread has seen that there is none, and nobody waits.
TEST(ProgressEngine, AsksSoonForWhatIsAttendedWhileItLiesDown) {
  constexpr std::chrono::milliseconds kSoon{100};
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  const auto quick = std::make_shared<Asked>(20);
  std::atomic<bool> attended{false}, slept_long{false};
  auto engine = std::make_shared<ProgressEngine>(
      std::make_unique<Sleeping>(std::move(transports.value()[0]), [&](Deadline until) {
        const bool is_long = until - std::chrono::steady_clock::now() > kSoon;
        if (attended && quick->open() && is_long) slept_long = true;
      }));
  auto work = std::make_shared<WorkState>(engine);
  ASSERT_TRUE(engine
                  ->submit(std::make_unique<Operation>(
                      Operation{.signature = {.name = "interrupted"},
                                .started = std::chrono::steady_clock::now(),
                                .deadline = deadline_in(60),
                                .execution = std::make_unique<Interrupted>([&] {
                                  engine->attend(quick);
                                  attended = true;
                                }),
                                .work = work,
                                .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}))
                  .ok());
  for (const Deadline until = deadline_in(20);
       quick->open() && std::chrono::steady_clock::now() < until;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(attended);
  EXPECT_FALSE(quick->open());
  EXPECT_FALSE(slept_long);
  engine.reset();
  EXPECT_TRUE(work->done());
}

// Whoever is told may ask it something, and so may another thread meanwhile.
TEST(ProgressEngine, IsNotLockedWhileItTellsOfWhatItRefuses) {
  auto transports = make_inproc_transports(1);
  ASSERT_TRUE(transports.has_value());
  const auto engine = std::make_shared<ProgressEngine>(std::move(transports.value()[0]));
  engine->abort("enough");
  std::atomic<bool> asked{false};
  bool answered = false;
  std::thread other;
  auto work = std::make_shared<WorkState>(engine);
  work->on_done([&] {
    other = std::thread([&] {
      (void)engine->stats();
      asked = true;
    });
    await(asked);
    answered = asked;
  });
  std::atomic<int> begun{0};
  const Status refused = engine->submit(std::make_unique<Operation>(
      Operation{.signature = {.name = "counting"},
                .started = std::chrono::steady_clock::now(),
                .deadline = deadline_in(60),
                .execution = std::make_unique<Counting>(begun),
                .work = work,
                .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}));
  ASSERT_TRUE(other.joinable());
  other.join();
  EXPECT_EQ(refused.code(), Code::kCancelled) << refused.message();
  EXPECT_TRUE(answered);
  EXPECT_EQ(begun, 0);
}

// A turn ends after so much was combined, for others' sake. What it combined is on its way by then:
// the peer takes it while more is combined here.
TEST(ProgressEngine, WhatATurnHasCombinedLeavesInIt) {
  constexpr std::int64_t kElems = 3 * (128 << 10);  // three cuts of as much as ends a turn
  auto transports = make_inproc_transports(2);
  ASSERT_TRUE(transports.has_value());
  const auto group = std::make_shared<const std::vector<int>>(std::vector<int>{0, 1});
  std::vector<std::vector<float>> tensors{std::vector<float>(kElems, 1),
                                          std::vector<float>(kElems, 2)};
  std::vector<Execution> ranks;
  for (int r = 0; r < 2; ++r) {
    std::byte* data = reinterpret_cast<std::byte*>(tensors[static_cast<std::size_t>(r)].data());
    ranks.emplace_back(
        std::make_shared<const Layout>(make_schedule(OpKind::kAllReduce, "tree", r, 2, kElems),
                                       DType::kF32, Segmentation()),
        Operands{.in = data, .out = data}, Route{.group = group});
  }
  ScratchPool pools[2];
  int shared_turns = 0;
  for (int turn = 0; turn < 1000 && !(ranks[0].done() && ranks[1].done()); ++turn) {
    for (std::size_t r = 0; r < 2; ++r) {
      Transport& transport = *transports.value()[r];
      ASSERT_TRUE(transport.progress().has_value());
      const std::uint64_t before = ranks[r].bytes_sent();
      if (ranks[r].done()) continue;
      ASSERT_TRUE(ranks[r].advance(transport, pools[r]).has_value());
      if (!ranks[r].awaited().nothing) continue;
      ++shared_turns;
      EXPECT_GT(ranks[r].bytes_sent(), before) << "turn " << turn << " of rank " << r;
    }
  }
  EXPECT_GT(shared_turns, 0);
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(tensors[r], std::vector<float>(kElems, 3)) << "rank " << r;
    ranks[r].release(pools[r]);
  }
}

std::string wait_for(Result<Work> work) {
  const Status status = work.has_value() ? work.value().wait() : work.error();
  return status.ok() ? "" : std::string(status.message());
}

// Rank 0's receive is open when both let their group go. A message of the next group is not its.
TEST(ProgressEngine, KeepsTheIdOfACommunicatorThatEndsWhileItsOperationsRun) {
  auto made = make_inproc_communicators(2, {.deadline_seconds = 20});
  ASSERT_TRUE(made.has_value());
  std::atomic<int> ended{0};
  const auto faults = on_threads<std::string>(2, [&](int r) -> std::string {
    const auto world = std::move(made.value()[static_cast<std::size_t>(r)]);
    auto first = world->split(0, 0);
    if (!first.has_value()) return std::string(first.error().message());
    std::vector<float> old(4, 0.0f);
    std::vector<float> news(4, r == 0 ? 0.0f : 7.0f);
    std::optional<Work> open;
    if (r == 0) {
      auto receiving = first.value()->start(OpCall::recv(view_of(std::span(old)), 1));
      if (!receiving.has_value()) return std::string(receiving.error().message());
      open.emplace(std::move(receiving).value());
    }
    first.value().reset();
    auto second = world->split(0, 0);
    if (!second.has_value()) return std::string(second.error().message());
    const auto view = view_of(std::span(news));
    const OpCall call = r == 0 ? OpCall::recv(view, 1) : OpCall::send(view, 0);
    if (std::string fault = wait_for(second.value()->start(call)); !fault.empty()) return fault;
    if (news != std::vector<float>(4, 7.0f)) return "the message went elsewhere";
    if (open && open->done()) return "the old receive has it";
    const std::string fault = wait_for(world->barrier());
    // The old receive is cancelled when it goes out of scope, which would end the other's barrier.
    ++ended;
    for (const Deadline until = deadline_in(10);
         ended < 2 && std::chrono::steady_clock::now() < until;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return fault;
  });
  for (std::size_t r = 0; r < faults.size(); ++r) EXPECT_EQ(faults[r], "") << "rank " << r;
}

}  // namespace
}  // namespace gradwire::engine_test
