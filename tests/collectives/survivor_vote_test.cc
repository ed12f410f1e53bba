// The vote alone, on a network that is a list of messages: any order of deaths, discoveries and
// deliveries.
#include "collectives/failure/survivor_vote.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace gradwire::survivor_vote_test {
namespace {

using State = SurvivorVote::State;

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

TEST(SurvivorVote, NobodyLost) {
  SurvivorVote a(0, {0, 1}, 0), b(1, {0, 1}, 4);
  EXPECT_EQ(a.absent(), std::vector<int>{1});
  a.hear(1, b.proposal());
  b.hear(0, a.proposal());  // a is ready already
  a.hear(1, b.proposal());
  EXPECT_EQ(a.state(), State::kAgreed);
  EXPECT_EQ(b.state(), State::kAgreed);
  EXPECT_EQ(a.survivors(), first_ranks(2));
  EXPECT_EQ(a.next_generation(), 5u);
  EXPECT_EQ(b.next_generation(), 5u);
}

TEST(SurvivorVote, WhatOneKnowsAllTakeOver) {
  SurvivorVote a(0, {0, 1, 2}, 0), b(1, {0, 1, 2}, 0);
  a.lose(2, true);
  b.hear(0, a.proposal());
  EXPECT_EQ(b.proposal().lost, std::vector<int>{2});
  EXPECT_TRUE(b.proposal().ready);
  a.hear(1, b.proposal());
  EXPECT_EQ(a.state(), State::kAgreed);
  b.hear(0, a.proposal());
  EXPECT_EQ(b.state(), State::kAgreed);
}

// The others may have ended it with the same before the news was out.
TEST(SurvivorVote, NewsAfterTheAgreementChangesNothing) {
  SurvivorVote vote(2, first_ranks(4), 0);
  vote.lose(0, true);
  for (const int from : {1, 3}) vote.hear(from, {.ready = true, .lost = {0}, .certain = {0}});
  ASSERT_EQ(vote.state(), State::kAgreed);
  vote.hear(1, {.generation = 7, .lost = {0, 3}, .certain = {0, 3}});
  vote.lose(1, true);
  EXPECT_EQ(vote.survivors(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(vote.proposal().lost, std::vector<int>{0});
  EXPECT_EQ(vote.next_generation(), 1u);
}

TEST(SurvivorVote, OneThatDiesDuringTheVoteIsLeftOut) {
  SurvivorVote a(0, {0, 1, 2, 3}, 0), b(1, {0, 1, 2, 3}, 0), c(2, {0, 1, 2, 3}, 0);
  for (SurvivorVote* vote : {&a, &b, &c}) vote->lose(3, true);
  a.hear(1, b.proposal());
  a.hear(2, c.proposal());
  EXPECT_TRUE(a.proposal().ready);
  EXPECT_EQ(a.state(), State::kOpen);  // the others have not said that they are
  a.lose(2, true);
  EXPECT_FALSE(a.proposal().ready);
  b.hear(0, a.proposal());
  a.hear(1, b.proposal());
  b.hear(0, a.proposal());
  EXPECT_EQ(a.survivors(), first_ranks(2));
  EXPECT_EQ(a.state(), State::kAgreed);
  EXPECT_EQ(b.state(), State::kAgreed);
}

TEST(SurvivorVote, OneThatTheOthersHaveGivenUpIsIsolated) {
  SurvivorVote late(2, {0, 1, 2}, 0);
  late.hear(0, {.lost = {2}, .certain = {2}});
  EXPECT_EQ(late.state(), State::kOpen);  // rank 1 may be on its side
  late.hear(1, {.lost = {2}, .certain = {2}});
  EXPECT_EQ(late.state(), State::kIsolated);
}

// Which side goes on when a network falls apart.
struct Split {
  std::vector<int> side;  // of the rank that is looked at
  bool goes_on;
};
TEST(SurvivorVote, TheLargerSideOrTheLowestRankGoesOn) {
  const std::vector<Split> splits{{{0, 1, 2}, true}, {{3}, false},   {{1, 2, 3}, true},
                                  {{0}, false},      {{0, 3}, true}, {{1, 2}, false}};
  for (const Split& split : splits) {
    const int self = split.side.front();
    SurvivorVote vote(self, first_ranks(4), 0);
    for (int r = 0; r < 4; ++r) {
      if (std::ranges::find(split.side, r) == split.side.end()) vote.lose(r, false);
    }
    for (const int other : vote.audience()) {
      Proposal same = vote.proposal();
      same.ready = true;
      vote.hear(other, same);
    }
    EXPECT_EQ(vote.state(), split.goes_on ? State::kAgreed : State::kIsolated) << "rank " << self;
  }
}

TEST(SurvivorVote, RanksWhoseEndIsCertainAreOnNoSide) {
  SurvivorVote vote(3, first_ranks(4), 0);
  vote.lose(0, true);
  vote.lose(1, true);
  vote.lose(2, true);
  EXPECT_EQ(vote.state(), State::kAgreed);
  EXPECT_FALSE(vote.contested());
  // Of five, 0 has ended, and 1, 2 are apart from 3, 4: the half with the lowest goes on.
  SurvivorVote half(1, first_ranks(5), 0);
  half.lose(0, true);
  half.lose(3, false);
  half.lose(4, false);
  Proposal same = half.proposal();
  same.ready = true;
  half.hear(2, same);
  EXPECT_EQ(half.state(), State::kAgreed);
  EXPECT_TRUE(half.contested());
}

// Be it the lowest of two: the other may think the same of itself.
TEST(SurvivorVote, OneAloneGoesOnOnlyIfAskedOrWhereAllOthersHaveEnded) {
  for (const bool asked : {false, true}) {
    SurvivorVote vote(0, {0, 1}, 0, {.allow_lone = asked});
    vote.lose(1, false);
    EXPECT_EQ(vote.state(), asked ? State::kAgreed : State::kIsolated);
    SurvivorVote of_four(3, first_ranks(4), 0, {.allow_lone = asked});
    for (const int r : {0, 1, 2}) of_four.lose(r, false);
    EXPECT_EQ(of_four.state(), asked ? State::kAgreed : State::kIsolated);
  }
  SurvivorVote known(1, {0, 1}, 0);
  known.lose(0, true);
  EXPECT_EQ(known.state(), State::kAgreed);
}

// Both sides come to an agreement, and it is the token that decides between them.
TEST(SurvivorVote, WhereATokenDecidesSizeDoesNot) {
  SurvivorVote vote(3, first_ranks(4), 0, {.by_token = true});
  for (const int r : {0, 1, 2}) vote.lose(r, false);
  EXPECT_EQ(vote.state(), State::kAgreed);
  EXPECT_TRUE(vote.contested());
}

// What is left of a try that failed is no agreement with the next one.
TEST(SurvivorVote, AllProposeOneGeneration) {
  SurvivorVote again(0, {0, 1}, 1), late(1, {0, 1}, 0);
  again.hear(1, {.generation = 0, .ready = true});
  EXPECT_EQ(again.state(), State::kOpen);
  late.hear(0, again.proposal());
  EXPECT_EQ(late.proposal().generation, 1u);
  again.hear(1, late.proposal());
  late.hear(0, again.proposal());
  EXPECT_EQ(again.state(), State::kAgreed);
  EXPECT_EQ(late.state(), State::kAgreed);
  EXPECT_EQ(again.next_generation(), 2u);
  EXPECT_EQ(late.next_generation(), 2u);
}

// Ranks, and messages on their way; each rank does what ProgressEngine and Shrinking do.
class Network {
 public:
  Network(int size, std::uint64_t seed) : size_(size), stream_(seed, RandomUse::kTest, 0, 0, 0, 0) {
    for (int r = 0; r < size; ++r) ranks_.push_back(Rank{SurvivorVote(r, first_ranks(size), 0)});
  }

  void kill(int rank) { dead_.insert(rank); }
  bool alive(int rank) const { return !dead_.contains(rank); }
  std::size_t draw(std::size_t below) { return draw_raw() % below; }

  // One random event; false when there is none left.
  bool step() {
    for (int r = 0; r < size_; ++r) speak(r);
    std::vector<std::pair<int, int>> open;  // channels with messages
    for (auto& [channel, queue] : queues_) {
      if (!queue.empty()) open.push_back(channel);
    }
    std::vector<std::pair<int, int>> blind;  // (who, whom it does not know to be dead)
    for (int r = 0; r < size_; ++r) {
      for (const int dead : dead_) {
        if (alive(r) && !ranks_[at(r)].knows.contains(dead)) blind.emplace_back(r, dead);
      }
    }
    if (open.empty() && blind.empty()) return repeat();
    const std::size_t pick = draw(open.size() + blind.size());
    if (pick < open.size()) {
      deliver(open[pick]);
    } else {
      const auto [rank, dead] = blind[pick - open.size()];
      ranks_[at(rank)].knows.insert(dead);
      lose(rank, dead);
    }
    return true;
  }

  // Where the living ranks have come to.
  void expect_agreement() {
    std::vector<int> living;
    for (int r = 0; r < size_; ++r) {
      if (alive(r)) living.push_back(r);
    }
    std::optional<std::uint32_t> generation;
    for (const int r : living) {
      const Rank& rank = ranks_[at(r)];
      ASSERT_TRUE(rank.agreed.has_value()) << "rank " << r;
      EXPECT_EQ(rank.agreed->first, living) << "rank " << r;
      if (!generation) generation = rank.agreed->second;
      EXPECT_EQ(rank.agreed->second, *generation) << "rank " << r;
    }
  }

 private:
  struct Rank {
    SurvivorVote vote;
    std::set<int> knows = {};  // to be dead
    Proposal told = {.generation = ~0u};
    std::optional<std::pair<std::vector<int>, std::uint32_t>> agreed = {};
    std::vector<int> left_behind = {};
  };
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  std::uint32_t draw_raw() { return stream_.block(drawn_++)[0]; }

  void speak(int r) {
    Rank& rank = ranks_[at(r)];
    if (!alive(r) || rank.told == rank.vote.proposal()) return;
    rank.told = rank.vote.proposal();
    for (const int to : rank.vote.audience()) queues_[{r, to}].push_back(rank.told);
    settle(r);
  }
  void settle(int r) {
    Rank& rank = ranks_[at(r)];
    ASSERT_NE(rank.vote.state(), State::kIsolated) << "rank " << r;
    if (rank.vote.state() != State::kAgreed || rank.agreed) return;
    rank.agreed = {rank.vote.survivors(), rank.vote.next_generation()};
    rank.left_behind = rank.vote.proposal().lost;
  }
  // The new communicator fails, and its rank votes again.
  void restart(int r) {
    Rank& rank = ranks_[at(r)];
    rank.vote = SurvivorVote(r, first_ranks(size_), rank.agreed->second);
    rank.agreed.reset();
    for (const int dead : rank.left_behind) rank.vote.lose(dead, true);
    for (const int dead : rank.knows) rank.vote.lose(dead, true);
  }
  void lose(int r, int dead) {
    Rank& rank = ranks_[at(r)];
    if (rank.agreed && !std::ranges::binary_search(rank.left_behind, dead)) return restart(r);
    rank.vote.lose(dead, true);
  }
  void deliver(std::pair<int, int> channel) {
    const Proposal proposal = queues_[channel].front();
    queues_[channel].pop_front();
    const auto [from, to] = channel;
    if (!alive(to)) return;
    Rank& rank = ranks_[at(to)];
    if (rank.agreed) {
      const bool old = proposal.generation < rank.agreed->second &&
                       std::ranges::includes(rank.left_behind, proposal.lost);
      if (old) return;
      restart(to);
    }
    rank.vote.hear(from, proposal);
    speak(to);
    settle(to);
  }
  // Those who still vote tell it again.
  bool repeat() {
    bool any = false;
    for (int r = 0; r < size_; ++r) {
      if (!alive(r) || ranks_[at(r)].agreed || repeats_ > 20) continue;
      any = true;
      for (const int to : ranks_[at(r)].vote.audience()) {
        queues_[{r, to}].push_back(ranks_[at(r)].vote.proposal());
      }
      settle(r);
    }
    ++repeats_;
    return any;
  }

  int size_;
  RandomStream stream_;
  std::uint64_t drawn_ = 0;
  int repeats_ = 0;
  std::vector<Rank> ranks_;
  std::set<int> dead_;
  std::map<std::pair<int, int>, std::deque<Proposal>> queues_;
};

TEST(SurvivorVote, AgreesUnderAnyOrderOfDeathsAndMessages) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const int size = 2 + static_cast<int>(seed % 6);
    Network network(size, seed);
    int deaths = static_cast<int>(network.draw(static_cast<std::size_t>(size)));
    bool more = true;
    for (int i = 0; i < 20000 && more; ++i) {
      if (deaths > 0 && network.draw(8) == 0) {
        network.kill(static_cast<int>(network.draw(static_cast<std::size_t>(size))));
        --deaths;
      }
      more = network.step();
      if (!more && deaths > 0) {
        network.kill(static_cast<int>(network.draw(static_cast<std::size_t>(size))));
        --deaths;
        more = true;
      }
    }
    ASSERT_FALSE(more) << "seed " << seed;
    network.expect_agreement();
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace gradwire::survivor_vote_test
