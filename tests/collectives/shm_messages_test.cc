// Messages in shared memory without a communicator: each rank's end is driven by hand, while its
// engine is held, so that nobody else looks for it.
#include "collectives/shm/messages.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/biased_lock.h"
#include "base/elements.h"
#include "collectives/engine/progress.h"
#include "collectives/group_communicator.h"
#include "collectives/shm/setup.h"
#include "comm/inproc/inproc_transport.h"
#include "tests/support/fails.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::shm_messages_test {
namespace {

using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

constexpr double kDeadline = 0.5;  // seconds, of an operation
constexpr int kNever = 9;          // a tag that nobody sends

struct Rank {
  std::shared_ptr<ShmBoards> boards;
  std::shared_ptr<ProgressEngine> engine;
  std::unique_ptr<Group> group;
  std::shared_ptr<ShmMessages> messages;

  // Of a call alone, or, with `work`, of one in a batch.
  Result<Work> start(const OpCall& call, const std::shared_ptr<WorkState>& work = nullptr) const {
    const OpOptions options;
    GW_ASSIGN(const Extent extent, check_call(call, options, group->rank(), group->size()));
    return messages->start({call, options, extent}, work);
  }
  // True where it is over when the call returns.
  bool send(std::span<float> data, int to, int tag, std::vector<Work>& open) const {
    return begin(OpCall::send(view_of(data), to, tag), open);
  }
  bool recv(std::span<float> data, int from, int tag, std::vector<Work>& open) const {
    return begin(OpCall::recv(view_of(data), from, tag), open);
  }

 private:
  bool begin(const OpCall& call, std::vector<Work>& open) const {
    auto work = start(call);
    EXPECT_TRUE(work.has_value()) << work.error().message();
    if (!work.has_value()) return false;
    const bool over = work.value().state() == nullptr;
    if (!over) open.push_back(std::move(work).value());
    return over;
  }
};

// So many ranks of this process, which share an arena.
void make_ranks(int count, std::vector<Rank>& ranks) {
  auto transports = make_inproc_transports(count);
  ASSERT_TRUE(transports.has_value());
  auto first = shm::Arena::create(0, count);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  std::vector<int> places;
  std::vector<std::uint64_t> outboxes;
  for (int r = 0; r < count; ++r) {
    auto arena = r == 0 ? first : shm::Arena::open(first.value()->token(), r, count);
    ASSERT_TRUE(arena.has_value()) << arena.error().message();
    const std::vector<std::int64_t> processes(static_cast<std::size_t>(count), getpid());
    Rank& rank = ranks.emplace_back();
    rank.boards = std::make_shared<ShmBoards>(arena.value(), false, std::vector<int>(), processes);
    const auto outbox = rank.boards->make(ShmOutbox::bytes(count), count);
    ASSERT_TRUE(outbox.has_value()) << outbox.error().message();
    outboxes.push_back(outbox.value());
    places.push_back(r);
    rank.engine = std::make_shared<ProgressEngine>(
        std::move(transports.value()[static_cast<std::size_t>(r)]));
    rank.engine->listen_to({arena.value(), &arena.value()->bell(r)});
    ASSERT_TRUE(rank.engine->claim_id(0));
  }
  for (int r = 0; r < count; ++r) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    rank.group = std::make_unique<Group>(
        rank.engine, places, 0, CommunicatorOptions{.deadline_seconds = kDeadline}, Segmentation{});
    rank.messages = std::make_shared<ShmMessages>(*rank.group, rank.boards, places, outboxes);
  }
}

// Until it is true, or for long.
bool await(const std::function<bool()>& enough, double seconds = 20) {
  const Deadline until = deadline_in(seconds);
  while (!enough() && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return enough();
}

// A turn that does not end before it is told to.
class Standing final : public Runnable {
 public:
  Standing(std::atomic<bool>& stands, const std::atomic<bool>& over)
      : stands_(stands), over_(over) {}
  Result<bool> advance(Transport&, ScratchPool&) override {
    stands_ = true;
    (void)await([&] { return over_.load(); }, 60);
    return true;
  }
  bool done() const override { return true; }
  void cancel(Transport&) override {}
  bool settled(Transport&) override { return true; }
  void release(ScratchPool&) override {}
  std::vector<int> waiting_for(const Transport&) const override { return {}; }
  const Route& route() const override { return route_; }
  std::uint64_t bytes_sent() const override { return 0; }

 private:
  std::atomic<bool>& stands_;
  const std::atomic<bool>& over_;
  Route route_{std::make_shared<const std::vector<int>>(std::vector{0}), 0, 0, 0};
};

// As long as it is there, the engine takes operations, but nobody drives it.
class Held {
 public:
  explicit Held(const std::shared_ptr<ProgressEngine>& engine)
      : thread_([this, engine] {
          (void)engine->submit(std::make_unique<Operation>(
              Operation{.signature = {.name = "standing"},
                        .collective = false,
                        .started = Clock::now(),
                        .deadline = deadline_in(120),
                        .execution = std::make_unique<Standing>(stands_, over_),
                        .work = std::make_shared<WorkState>(engine),
                        .bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0)}));
        }) {
    EXPECT_TRUE(await([&] { return stands_.load(); }));
  }
  ~Held() {
    over_ = true;
    thread_.join();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::atomic<bool> stands_{false};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

bool has_operation(ProgressEngine& engine, std::string_view name) {
  return std::ranges::any_of(engine.recorder().records(), [&](const FlightRecord& record) {
    return record.signature.name == name;
  });
}

// The engine asks again and again, and each time something else has moved.
TEST(ShmMessages, WhatDoesNotMoveReachesTheEngineWhileOthersMove) {
  constexpr int kAsked = 1000;
  std::vector<Rank> ranks;
  ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
  Floats never(4), data(4, 1.0f), got(4);
  std::vector<Work> open, moving;
  std::optional<Held> held(ranks[0].engine);
  EXPECT_FALSE(ranks[0].recv(never, 1, kNever, open));
  bool handed = false;
  for (int asked = 0; asked < kAsked && !handed; ++asked) {
    EXPECT_FALSE(ranks[0].recv(got, 1, 1, moving));
    EXPECT_TRUE(ranks[1].send(data, 0, 1, moving));
    ranks[0].messages->look();
    ASSERT_TRUE(moving.back().state()->done());
    moving.clear();
    (void)ranks[0].messages->hand_over(*ranks[0].engine);
    handed = has_operation(*ranks[0].engine, "recv");
  }
  EXPECT_TRUE(handed);
  held.reset();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_THAT(open[0].wait(deadline_in(20)), fails(Code::kTimedOut, "recv", "rank 1"));
}

// A long message moves at every look.
TEST(ShmMessages, AWaitAndAProbeEndInTimeWhileOthersMove) {
  constexpr std::size_t kElems = 16 << 20;
  constexpr int kLooks = 10000;
  std::vector<Rank> ranks;
  ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
  Floats never(4), data(kElems, 1.0f), got(kElems);
  std::vector<Work> open;
  const Held held(ranks[0].engine), other(ranks[1].engine);
  EXPECT_FALSE(ranks[0].recv(never, 1, kNever, open));
  EXPECT_FALSE(ranks[0].recv(got, 1, 1, open));
  EXPECT_FALSE(ranks[1].send(data, 0, 1, open));
  ASSERT_EQ(open.size(), 3u);
  Work& stays = open[0];
  const WorkState& moves = *open[1].state();
  EXPECT_EQ(stays.wait(Clock::now()).code(), Code::kTimedOut);
  EXPECT_FALSE(moves.done()) << "the wait lasted as long as the other message";
  const auto found = ranks[0].messages->probe(1, kNever + 1, Clock::now());
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found.value(), -1);
  EXPECT_FALSE(moves.done()) << "the probe lasted as long as the other message";
  for (int look = 0; look < kLooks && !moves.done(); ++look) ranks[0].messages->look();
  EXPECT_TRUE(moves.done());
  EXPECT_EQ(got, data);
}

// Such messages take a line of the ring, and more where they are kept.
TEST(ShmMessages, FewBytesCountAmongWhatAReceiverLetsPileUp) {
  constexpr std::uint64_t kMostUntaken = 4 << 20;
  for (const std::size_t bytes : {0u, 1u, 63u}) {
    std::vector<Rank> ranks;
    ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
    const std::size_t most =
        (kMostUntaken + MessageRing::kBytes) / MessageRing::size_with(bytes) + 2;
    std::vector<std::uint8_t> data(bytes, 1), got(bytes);
    Floats never(4);
    std::vector<Work> open;
    const Held held(ranks[0].engine), other(ranks[1].engine);
    EXPECT_FALSE(ranks[0].recv(never, 1, kNever, open));  // so that it looks
    std::optional<Work> last;
    std::size_t sent = 0;
    for (; sent < most && !last; ++sent) {
      auto work = ranks[1].start(OpCall::send(view_of(std::span(data)), 0, 1));
      ASSERT_TRUE(work.has_value()) << work.error().message();
      if (work.value().state() != nullptr) last = std::move(work).value();
      if (sent % 1000 == 0) ranks[0].messages->look();
    }
    EXPECT_TRUE(last.has_value()) << sent << " messages of " << bytes << " bytes piled up";
    for (std::size_t received = 0; received < sent; ++received) {
      std::ranges::fill(got, 0);
      auto work = ranks[0].start(OpCall::recv(view_of(std::span(got)), 1, 1));
      ASSERT_TRUE(work.has_value()) << work.error().message();
      ranks[0].messages->look();
      ASSERT_TRUE(work.value().done()) << "message " << received << " of " << sent;
      ASSERT_EQ(got, data);
    }
    ranks[1].messages->look();
    EXPECT_TRUE(!last || last->state()->done());
  }
}

// Rank 2's message is here before the receive, and would fit.
TEST(ShmMessages, AReceiveFromAnyRankEndsWithItsFirstMismatch) {
  for (const std::size_t other : {4u, 6u}) {
    std::vector<Rank> ranks;
    ASSERT_NO_FATAL_FAILURE(make_ranks(3, ranks));
    Floats never(4), five(5, 1.0f), others(other, 2.0f), got(4, 0.0f);
    std::vector<Work> open;
    {
      const Held held(ranks[0].engine);
      EXPECT_FALSE(ranks[0].recv(never, 2, kNever, open));
      EXPECT_TRUE(ranks[1].send(five, 0, 1, open));
      EXPECT_TRUE(ranks[2].send(others, 0, 1, open));
      ranks[0].messages->look();
      EXPECT_FALSE(ranks[0].recv(got, kAnySource, 1, open));
    }
    ASSERT_EQ(open.size(), 2u);
    EXPECT_THAT(open[1].wait(deadline_in(20)),
                fails(Code::kRankMismatch, "recv", "rank 1", "20", "16"));
    EXPECT_EQ(got, Floats(4, 0.0f)) << "it took another message";
    EXPECT_EQ(open[1].source(), 1);
  }
}

// Whoever is told of an end may begin the next operation, and another thread may look meanwhile.
TEST(ShmMessages, WhoIsToldOfAnEndBeginsTheNextOperation) {
  constexpr int kRounds = 100;
  std::vector<Rank> ranks;
  ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
  Floats data(4, 1.0f), got(4, 0.0f);
  std::vector<Work> open;
  const Held held(ranks[0].engine);
  int told = 0;
  std::atomic<bool> looked{false};
  std::function<void()> next = [&] {
    if (told++ == 0) {
      std::thread([&] {
        ranks[0].messages->look();
        looked = true;
      }).detach();
      EXPECT_TRUE(await([&] { return looked.load(); })) << "the lock was held";
    }
    if (told == kRounds) return;
    auto state = std::make_shared<WorkState>(ranks[0].engine);
    EXPECT_TRUE(ranks[0].start(OpCall::recv(view_of(std::span(got)), 1, 1), state).has_value());
    state->on_done(next);
  };
  auto state = std::make_shared<WorkState>(ranks[0].engine);
  EXPECT_TRUE(ranks[0].start(OpCall::recv(view_of(std::span(got)), 1, 1), state).has_value());
  state->on_done(next);
  for (int round = 0; round < kRounds; ++round) {
    data.assign(4, static_cast<float>(round));
    EXPECT_TRUE(ranks[1].send(data, 0, 1, open));
    ranks[0].messages->look();
    EXPECT_EQ(told, round + 1);
    EXPECT_EQ(got, data);
  }
  EXPECT_TRUE(await([&] { return looked.load(); }));
}

TEST(ShmMessages, ThousandsThatWereOpenAreNotKept) {
  constexpr std::size_t kOpen = 4000;
  constexpr std::ptrdiff_t kMostKept = 256;
  std::vector<Rank> ranks;
  ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
  Floats got(kOpen);
  std::vector<std::weak_ptr<WorkState>> seen;
  const Held held(ranks[0].engine);
  for (int round = 0; round < 3; ++round) {
    std::vector<Work> open, none;
    for (float& one : got) {
      one = -1;
      EXPECT_FALSE(ranks[0].recv(std::span(&one, 1), 1, 1, open));
      seen.emplace_back(open.back().state());
    }
    for (std::size_t i = 0; i < kOpen; ++i) {
      float number = static_cast<float>(i);
      EXPECT_TRUE(ranks[1].send(std::span(&number, 1), 0, 1, none));
      if (i % 1000 == 999) ranks[0].messages->look();
    }
    for (std::size_t i = 0; i < kOpen; ++i) {
      ASSERT_TRUE(open[i].state()->done()) << "message " << i;
      ASSERT_EQ(got[i], static_cast<float>(i));
    }
    open.clear();
    (void)ranks[0].messages->hand_over(*ranks[0].engine);
    const auto kept = std::ranges::count_if(seen, [](const auto& one) { return !one.expired(); });
    EXPECT_LE(kept, kMostKept) << "of " << kOpen << " in round " << round;
  }
}

// Serves all_to_all_v, when it is told to, which memory does not: by that its engine fails, which
// refuses the others then.
class FailingPath final : public CallPath {
 public:
  explicit FailingPath(Group& group) : group_(group) {}
  bool serves(const OpCall& call, const OpOptions&) const override {
    return armed && call.kind == OpKind::kAllToAllV;
  }
  Result<std::optional<std::string_view>> algorithm_for(OpKind, std::int64_t,
                                                        std::string_view) override {
    return std::optional<std::string_view>();
  }
  Result<std::unique_ptr<PreparedCall>> prepare(const CheckedCall&) override {
    return std::unique_ptr<PreparedCall>(std::make_unique<Run>(*this));
  }
  std::string describe() const override { return ""; }
  Result<std::unique_ptr<CallPath>> for_group(const GroupMembers&) override {
    return std::unique_ptr<CallPath>();
  }

  bool armed = false;
  std::shared_ptr<WorkState> work;  // of the batch

 private:
  class Run final : public PreparedCall {
   public:
    explicit Run(FailingPath& path) : PreparedCall(path.group_), path_(path) {}
    Status start(const std::shared_ptr<WorkState>& work, const std::optional<Deadline>&) override {
      path_.work = work;
      group().engine()->abort("enough");
      work->finish(group().status());
      return group().status();
    }

   private:
    FailingPath& path_;
  };

  Group& group_;
};

// A batch of a receive and of what makes the engine fail, in either order.
std::string start_a_batch(std::unique_ptr<Transport> transport, bool failing_first,
                          std::barrier<>& over) {
  auto made = make_group_communicator(std::move(transport), {.deadline_seconds = 60});
  if (!made.has_value()) return std::string(made.error().message());
  Communicator& world = *made.value();
  auto failing = std::make_unique<FailingPath>(made.value()->members().group);
  FailingPath& path = *failing;
  if (!failing_first) made.value()->add_path(std::move(failing));
  auto memory = share_memory(made.value()->members(), 0);
  if (!memory.has_value()) return std::string(memory.error().message());
  made.value()->add_path(std::move(memory).value());
  if (failing_first) made.value()->add_path(std::move(failing));
  Floats got(4), nothing;
  const std::vector<std::int64_t> none(2, 0);
  const std::array calls{OpCall::recv(view_of(std::span(got)), 1, kNever),
                         OpCall{.kind = OpKind::kAllToAllV,
                                .in = view_of(std::span(nothing)),
                                .out = view_of(std::span(nothing)),
                                .counts = none,
                                .recv_counts = none}};
  std::string fault;
  if (world.rank() == 0) {
    path.armed = true;
    const auto work = world.start_all(calls);
    if (work.has_value()) {
      fault = "it was taken";
    } else if (work.error().code() != Code::kCancelled) {
      fault = work.error().message();
    } else if (!path.work->done()) {
      fault = "its receive goes on";
    }
  }
  over.arrive_and_wait();
  return fault;
}

TEST(ShmMessages, NothingOfARefusedBatchGoesOn) {
  for (const bool failing_first : {false, true}) {
    auto transports = make_inproc_transports(2);
    ASSERT_TRUE(transports.has_value());
    std::barrier<> over(2);
    const auto faults = on_threads<std::string>(2, [&](int r) {
      return start_a_batch(std::move(transports.value()[static_cast<std::size_t>(r)]),
                           failing_first, over);
    });
    for (const std::string& fault : faults) EXPECT_EQ(fault, "") << failing_first;
  }
}

// Its owner goes while the engine's thread hands over what is open.
TEST(ShmMessages, AnEngineEndsWhileItsThreadHandsOver) {
  std::vector<Rank> ranks;
  ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
  Rank& rank = ranks[0];
  rank.engine->abort("enough");  // so that it refuses what it is given, and says so at once
  const std::weak_ptr<ProgressEngine> engine = rank.engine;
  std::atomic<bool> told{false}, gone{false};
  auto state = std::make_shared<WorkState>(rank.engine);
  state->on_done([&] {
    told = true;
    gone = await([&] { return engine.expired(); }, 5);
  });
  Floats got(4);
  ASSERT_TRUE(rank.start(OpCall::recv(view_of(std::span(got)), 1, 1), state).has_value());
  EXPECT_TRUE(await([&] { return told.load(); }));
  rank.group.reset();
  rank.engine.reset();
  EXPECT_TRUE(await([&] { return gone.load(); })) << "its own thread keeps it";
}

// A thread is stopped where it is: most often inside, since it does nothing but look.
std::atomic<bool> stop_here{false};
std::atomic<bool> has_stopped{false};
extern "C" void stand_still(int) {
  has_stopped = true;
  const Deadline until = deadline_in(60);  // longer than anybody awaits what it holds up
  while (stop_here && Clock::now() < until) {
  }
  has_stopped = false;
}

bool can_bias() {
  BiasedLock lock;
  lock.lock();
  lock.unlock();
  const std::lock_guard guard(lock);
  return lock.is_owner_inside();
}

TEST(ShmMessages, AnEngineIsPutOffByOneThatLooksButNotForEver) {
  constexpr int kTries = 200;
  constexpr int kMostVisits = 200;
  std::vector<Rank> ranks;
  ASSERT_NO_FATAL_FAILURE(make_ranks(2, ranks));
  if (!can_bias()) return;  // nobody knows then who is inside
  ShmMessages& messages = *ranks[0].messages;
  ProgressEngine& engine = *ranks[0].engine;
  struct sigaction action = {}, before = {};
  action.sa_handler = stand_still;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  Floats never(4);
  std::vector<Work> open;
  const Held held(ranks[0].engine);
  std::atomic<bool> over{false};
  std::atomic<long> looks{0};
  std::thread looking([&] {  // the first, which has the bias
    while (!over) {
      messages.look();
      ++looks;
    }
  });
  EXPECT_TRUE(await([&] { return looks > 0; }));
  int put_off = 0;
  for (int i = 0; i < kTries && put_off < kMostVisits / 2; ++i) {
    EXPECT_FALSE(ranks[0].recv(never, 1, kNever + i, open));
    // Else it may be where it was the last time, or inside without its bias, which it lent just
    // now.
    const long seen = looks;
    EXPECT_TRUE(await([&] { return looks > seen + 1; }));
    stop_here = true;
    EXPECT_EQ(pthread_kill(looking.native_handle(), SIGUSR1), 0);
    EXPECT_TRUE(await([&] { return has_stopped.load(); }));
    std::atomic<int> visits{0};
    std::atomic<bool> handed{false};
    std::thread visiting([&] {
      for (int visit = 0; visit < 100 * kMostVisits && !handed; ++visit) {
        handed = !messages.hand_over(engine);
        ++visits;
      }
    });
    const bool goes_on = await([&] { return visits >= kMostVisits - 1 || handed; });
    EXPECT_TRUE(goes_on) << "it waits for the one that looks";
    // More visits than may be put off.
    if (!handed) (void)await([&] { return visits >= kMostVisits; }, 0.05);
    put_off = handed ? 0 : visits.load();
    stop_here = false;
    EXPECT_TRUE(await([&] { return !has_stopped; }));
    visiting.join();
    EXPECT_TRUE(handed) << "after " << visits << " visits";
    if (!goes_on) break;
  }
  EXPECT_EQ(put_off, kMostVisits - 1);
  over = true;
  looking.join();
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace gradwire::shm_messages_test
