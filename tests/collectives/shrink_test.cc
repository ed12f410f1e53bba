// Which side goes on when ranks lose each other: shrinks over a network of notes that the test
// cuts, and a launcher's store that is a map.
#include "collectives/failure/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/engine/outcomes.h"
#include "tests/support/thread_ranks.h"

namespace gradwire::shrink_test {
namespace {

using Ranks = std::vector<int>;

// Carries notes between ranks, and knows whom each of them holds for lost.
class Net {
 public:
  explicit Net(int size) : ranks_(static_cast<std::size_t>(size)) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  // Connections between `side` and the rest were reset: all live, and each calls the other lost.
  void part(const std::set<int>& side) {
    for (int a = 0; a < size(); ++a) {
      for (int b = 0; b < size(); ++b) {
        if (side.contains(a) != side.contains(b)) lose(a, b, false);
      }
    }
  }
  // The process table of its host says so to everybody.
  void end(int rank) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank) lose(r, rank, true);
    }
  }

  void lose(int at_rank, int lost, bool certain) {
    const std::lock_guard lock(mutex_);
    at(at_rank).lost[lost] = at(at_rank).lost[lost] || certain;
  }
  std::map<int, bool> lost(int rank) {
    const std::lock_guard lock(mutex_);
    return at(rank).lost;
  }
  void tell(int from, int to, ConstByteSpan note) {
    const std::lock_guard lock(mutex_);
    if (at(from).lost.contains(to) || at(to).lost.contains(from)) return;
    at(to).notes.push_back({from, {note.begin(), note.end()}});
  }
  std::vector<Note> take(int rank) {
    const std::lock_guard lock(mutex_);
    return std::exchange(at(rank).notes, {});
  }

 private:
  struct Rank {
    std::vector<Note> notes = {};
    std::map<int, bool> lost = {};  // certain?
  };
  Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::mutex mutex_;
  std::vector<Rank> ranks_;
};

using OnRebuild = std::function<Status(int rank, std::uint32_t generation)>;

class Wire final : public Transport {
 public:
  Wire(Net& net, int rank, const OnRebuild& on_rebuild)
      : net_(net), rank_(rank), on_rebuild_(on_rebuild) {}
  int rank() const override { return rank_; }
  int size() const override { return net_.size(); }
  TransportCaps caps() const override { return {.notes = true}; }
  TransportStats stats() const override { return {}; }
  std::string describe() const override { return "wire"; }
  Result<Ticket> post(std::span<const Transfer>) override {
    return Status(Code::kUnsupported, "no data");
  }
  Result<int> progress() override { return 0; }
  std::optional<Status> poll(Ticket) override { return Status(); }
  std::size_t received(Ticket, std::size_t) const override { return 0; }
  void cancel(Ticket) override {}
  std::optional<LostPeer> lost() const override { return {}; }
  void announce(const LostPeer& lost) override { net_.lose(rank_, lost.rank, lost.certain); }
  Status wait(Deadline) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  }
  void wake() override {}
  void tell(int peer, ConstByteSpan note) override { net_.tell(rank_, peer, note); }
  std::vector<Note> take_notes() override { return net_.take(rank_); }
  std::vector<LostPeer> all_lost() const override {
    std::vector<LostPeer> lost;
    for (const auto& [rank, certain] : net_.lost(rank_)) {
      lost.push_back({.rank = rank, .reason = "lost", .certain = certain});
    }
    return lost;
  }
  Status rebuild(std::span<const int>, std::uint32_t generation, Deadline) override {
    return on_rebuild_ ? on_rebuild_(rank_, generation) : Status();
  }

 private:
  Net& net_;
  int rank_;
  const OnRebuild& on_rebuild_;
};

// A launcher's store.
class Tokens {
 public:
  TakeToken taker() {
    return [this](const std::string& name, const std::string& holder, Deadline) {
      const std::lock_guard lock(mutex_);
      return Result<std::string>(held_.emplace(name, holder).first->second);
    };
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> held_;
};

struct Shrinks {
  Net& net;
  TakeToken take_token = {};
  double seconds = 20;
  bool allow_lone = false;
  std::map<int, Proposal> attempts = {};  // of each rank; none yet
  OnRebuild on_rebuild = {};

  Result<Survivors> one(int rank, Ranks group, Ranks left_behind) {
    Wire wire(net, rank, on_rebuild);
    const FlightRecorder recorder(16);
    Proposal& attempt = attempts.at(rank);
    return agree_and_rebuild(
        wire,
        {std::move(group), std::move(left_behind), 0, Status(Code::kPeerLost, "lost"),
         deadline_in(seconds), attempt, allow_lone, take_token},
        recorder);
  }

  // "0,1" for ranks that have gone on with these, else the code; by rank.
  std::map<int, std::string> run(const Ranks& callers, const Ranks& group,
                                 const Ranks& left_behind = {}) {
    for (const int rank : callers) attempts.try_emplace(rank);
    const auto said = on_threads<std::string>(static_cast<int>(callers.size()), [&](int i) {
      const auto left = one(callers[static_cast<std::size_t>(i)], group, left_behind);
      if (!left.has_value()) return std::string(to_string(left.error().code()));
      std::string text;
      for (const int rank : left.value().ranks) {
        text += (text.empty() ? "" : ",") + std::to_string(rank);
      }
      return text;
    });
    std::map<int, std::string> by_rank;
    for (std::size_t i = 0; i < callers.size(); ++i) by_rank[callers[i]] = said[i];
    return by_rank;
  }
};

using Said = std::map<int, std::string>;

const std::string kIsolated(to_string(Code::kPeerLost));
const std::string kKilled(to_string(Code::kInternal));

TEST(Shrink, OfTwoSidesOneGetsTheToken) {
  // Also where one of them has tried before, and numbers what it tries now otherwise.
  for (const std::uint32_t tried : {0u, 3u}) {
    Net net(4);
    net.part({0, 1});
    Tokens tokens;
    Shrinks shrinks{.net = net, .take_token = tokens.taker()};
    for (const int rank : {0, 1}) shrinks.attempts[rank].generation = tried;
    const Said said = shrinks.run({0, 1, 2, 3}, {0, 1, 2, 3});
    const Said low{{0, "0,1"}, {1, "0,1"}, {2, kIsolated}, {3, kIsolated}};
    const Said high{{0, kIsolated}, {1, kIsolated}, {2, "2,3"}, {3, "2,3"}};
    EXPECT_TRUE(said == low || said == high) << ::testing::PrintToString(said);
  }
}

// Nobody contested it: all others held rank 2 for ended or left behind. It lives.
TEST(Shrink, OneThatWasLeftOutUncontestedGetsNoTokenLater) {
  Net net(3);
  for (const int rank : {0, 1}) net.lose(rank, 2, true);
  for (const int rank : {0, 1}) net.lose(2, rank, false);
  Tokens tokens;
  Shrinks shrinks{.net = net, .take_token = tokens.taker()};
  EXPECT_EQ(shrinks.run({0, 1}, {0, 1, 2}), (Said{{0, "0,1"}, {1, "0,1"}}));
  EXPECT_EQ(shrinks.run({2}, {0, 1, 2}), (Said{{2, kIsolated}}));
  // Nor when it has tried often, or asked for other ranks than it did.
  shrinks.attempts[2].generation = 7;
  EXPECT_EQ(shrinks.run({2}, {0, 1, 2}), (Said{{2, kIsolated}}));
}

// Ranks that had a token together fall apart: one after the other, each part asks for the next.
TEST(Shrink, AHolderThatIncludesThisRankIsNoReasonToEnd) {
  Net net(4);
  net.end(3);
  Tokens tokens;
  Shrinks shrinks{.net = net, .take_token = tokens.taker()};
  EXPECT_EQ(shrinks.run({0, 1, 2}, {0, 1, 2, 3}), (Said{{0, "0,1,2"}, {1, "0,1,2"}, {2, "0,1,2"}}));
  net.part({2, 3});
  EXPECT_EQ(shrinks.run({2}, {0, 1, 2}, {3}), (Said{{2, "2"}}));
  EXPECT_EQ(shrinks.run({0, 1}, {0, 1, 2}, {3}), (Said{{0, kIsolated}, {1, kIsolated}}));
  // Rank 2 is still in its first communicator where the others went on before it died.
  EXPECT_EQ(shrinks.run({2}, {0, 1, 2, 3}), (Said{{2, "2"}}));
}

TEST(Shrink, OneThatEndsWhileItsSideHasTheTokenTakesItFromNobody) {
  Net net(4);
  net.part({0, 1});
  Tokens tokens;
  Shrinks shrinks{.net = net, .take_token = tokens.taker()};
  shrinks.on_rebuild = [&](int rank, std::uint32_t) -> Status {
    if (rank == 3) return {Code::kInternal, "killed"};
    if (net.lost(2).contains(3)) return {};
    net.end(3);
    return {Code::kPeerLost, "rank 3 lost"};
  };
  EXPECT_EQ(shrinks.run({2, 3}, {0, 1, 2, 3}), (Said{{2, "2"}, {3, kKilled}}));
  EXPECT_EQ(shrinks.run({0, 1}, {0, 1, 2, 3}), (Said{{0, kIsolated}, {1, kIsolated}}));
}

// What is left of a try, addresses and greetings, bears its number: the next one has another, in
// the same shrink and in a later one of the same communicator.
TEST(Shrink, EveryTryHasANumberOfItsOwn) {
  Net net(3);
  net.end(2);
  std::mutex mutex;
  std::map<int, std::vector<std::uint32_t>> tried;
  Shrinks shrinks{.net = net};
  shrinks.on_rebuild = [&](int rank, std::uint32_t generation) -> Status {
    const std::lock_guard lock(mutex);
    tried[rank].push_back(generation);
    switch (tried[rank].size()) {
      case 1: return {Code::kPeerLost, "somebody gave the try up"};
      case 2: return {Code::kTimedOut, "and then it took too long"};
      default: return {};
    }
  };
  const std::string late(to_string(Code::kTimedOut));
  EXPECT_EQ(shrinks.run({0, 1}, {0, 1, 2}), (Said{{0, late}, {1, late}}));
  EXPECT_EQ(shrinks.run({0, 1}, {0, 1, 2}), (Said{{0, "0,1"}, {1, "0,1"}}));
  for (const int rank : {0, 1}) EXPECT_EQ(tried[rank], (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST(Shrink, AStoreThatDoesNotAnswerEndsOnlyThoseWhoNeedIt) {
  const TakeToken dead = [](const std::string&, const std::string&, Deadline) {
    return Result<std::string>(Status(Code::kPeerLost, "refused"));
  };
  Net uncontested(3);
  uncontested.end(2);
  Shrinks with_dead{.net = uncontested, .take_token = dead};
  EXPECT_EQ(with_dead.run({0, 1}, {0, 1, 2}), (Said{{0, "0,1"}, {1, "0,1"}}));
  Net contested(3);
  contested.part({2});
  Shrinks with_lost{.net = contested, .take_token = dead};
  EXPECT_EQ(with_lost.run({0, 1}, {0, 1, 2}), (Said{{0, kIsolated}, {1, kIsolated}}));
}

TEST(Shrink, OneAloneThatMayGoOnNeedsNoStoreThatAnswersButHeedsOneThatDoes) {
  const TakeToken dead = [](const std::string&, const std::string&, Deadline) {
    return Result<std::string>(Status(Code::kPeerLost, "refused"));
  };
  for (const bool asked : {false, true}) {
    Net net(2);
    net.part({1});
    Shrinks alone{.net = net, .take_token = dead, .allow_lone = asked};
    EXPECT_EQ(alone.run({1}, {0, 1}), (Said{{1, asked ? "1" : kIsolated}}));
  }
  Net net(4);
  net.part({0, 1});
  Shrinks two{.net = net, .take_token = dead, .allow_lone = true};
  EXPECT_EQ(two.run({0, 1}, {0, 1, 2, 3}), (Said{{0, kIsolated}, {1, kIsolated}}));
  Net taken(2);
  taken.part({1});
  Tokens tokens;
  Shrinks both{.net = taken, .take_token = tokens.taker(), .allow_lone = true};
  EXPECT_EQ(both.run({0}, {0, 1}), (Said{{0, "0"}}));
  EXPECT_EQ(both.run({1}, {0, 1}), (Said{{1, kIsolated}}));
}

// It waits a second at most, and ends within one of the deadline.
TEST(Shrink, AStoreThatIsSlowIsGivenAtMostASecond) {
  Net net(2);
  net.end(1);
  std::vector<double> given;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  Shrinks shrinks{.net = net};
  shrinks.take_token = [&](const std::string&, const std::string&, Deadline until) {
    given.push_back(std::chrono::duration<double>(until - now()).count());
    return Result<std::string>(Status(Code::kTimedOut, "slow"));
  };
  EXPECT_EQ(shrinks.run({0}, {0, 1}), (Said{{0, "0"}}));
  shrinks.seconds = -0.6;
  EXPECT_EQ(shrinks.run({0}, {0, 1}), (Said{{0, "0"}}));
  ASSERT_EQ(given.size(), 2u);
  EXPECT_LE(given[0], 1.0);
  EXPECT_LE(given[1], 0.4);
}

// Ranks that wait for each other in two operations are each absent from the other's.
TEST(Shrink, OneThatDoesNotComeToAnOperationMayLiveAndGoOn) {
  Net net(4);
  const OnRebuild nothing;
  const Wire wire(net, 0, nothing);
  Operation operation;
  operation.signature.name = "barrier";
  operation.number = 7;
  Failure failure{.cause = Status(Code::kTimedOut, "late"), .reported = {}};
  failure.call.absent = {2};
  failure.call.silent = {3};
  const auto reports = reports_of(&operation, failure, wire);
  ASSERT_EQ(reports.size(), 2u);
  for (const LostPeer& report : reports) {
    EXPECT_EQ(report.cause, LossCause::kNoPart);
    EXPECT_FALSE(report.certain) << "rank " << report.rank;
    EXPECT_EQ(report.operation, std::optional<std::uint64_t>(7));
  }
}

// Who does not come by the deadline may live, and come later: then with the same rule.
TEST(Shrink, OneThatDoesNotComeIsAnotherSide) {
  Net two(2);
  Shrinks alone{.net = two, .seconds = 0.3};
  EXPECT_EQ(alone.run({0}, {0, 1}), (Said{{0, kIsolated}}));
  EXPECT_FALSE(two.lost(0).at(1));
  Net three(3);
  Shrinks more{.net = three, .seconds = 0.6};
  EXPECT_EQ(more.run({1, 2}, {0, 1, 2}), (Said{{1, "1,2"}, {2, "1,2"}}));
  three.part({0});
  (void)three.take(0);  // it has heard nothing
  EXPECT_EQ(more.run({0}, {0, 1, 2}), (Said{{0, kIsolated}}));
}

// One says who is missing at the moment in which the other's deadline passes.
TEST(Shrink, RanksWhoseDeadlinesAreNearlyOneGoOnTogether) {
  for (int round = 0; round < 10; ++round) {
    Net net(4);
    Shrinks shrinks{.net = net, .seconds = 0.3};
    ASSERT_EQ(shrinks.run({1, 2, 3}, {0, 1, 2, 3}),
              (Said{{1, "1,2,3"}, {2, "1,2,3"}, {3, "1,2,3"}}))
        << "round " << round;
  }
}

TEST(Shrink, ThoseThatComeLateGoOnIfTheyAreMore) {
  Net net(5);
  Shrinks shrinks{.net = net, .seconds = 0.3};
  EXPECT_EQ(shrinks.run({3, 4}, {0, 1, 2, 3, 4}), (Said{{3, kIsolated}, {4, kIsolated}}));
  net.part({3, 4});
  for (const int rank : {0, 1, 2}) (void)net.take(rank);
  EXPECT_EQ(shrinks.run({0, 1, 2}, {0, 1, 2, 3, 4}),
            (Said{{0, "0,1,2"}, {1, "0,1,2"}, {2, "0,1,2"}}));
}

TEST(Shrink, OneThatDoesNotComeIsLeftOutByTheToken) {
  Net net(2);
  Tokens tokens;
  Shrinks shrinks{.net = net, .take_token = tokens.taker(), .seconds = 0.3};
  EXPECT_EQ(shrinks.run({0}, {0, 1}), (Said{{0, "0"}}));
  net.part({1});
  (void)net.take(1);
  EXPECT_EQ(shrinks.run({1}, {0, 1}), (Said{{1, kIsolated}}));
}

}  // namespace
}  // namespace gradwire::shrink_test
