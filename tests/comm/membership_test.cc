#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "comm/membership.h"
#include "tests/support/fails.h"

namespace gradwire::comm::membership_test {
namespace {

using std::chrono::milliseconds;
using State = Membership::State;
using Kind = Control::Kind;

// A process that does nothing.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void end() {
    if (std::exchange(ended_, true)) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
  bool ended_ = false;
};

// Rank 0 of 4; a heartbeat each second, patience of 5 s.
class MembershipTest : public ::testing::Test, public Membership::Carrier {
 protected:
  struct Sent {
    int rank;
    Control message;
  };
  void send(int rank, const Control& message) override { sent_.push_back({rank, message}); }
  void cut(int rank) override { cut_.push_back(rank); }

  static Deadline at(int ms) { return Deadline{} + milliseconds(ms); }
  void hear(Control message, int from, int ms) {
    message.from = from;
    members_.receive(message, at(ms));
  }
  std::vector<int> receivers_of(Kind kind) const {
    std::vector<int> ranks;
    for (const Sent& sent : sent_) {
      if (sent.message.kind == kind) ranks.push_back(sent.rank);
    }
    return ranks;
  }
  // tend() each 100 ms; ranks in `talking` are heard each time.
  void run(int from, int to, std::initializer_list<int> talking) {
    for (int ms = from; ms <= to; ms += 100) {
      members_.tend(at(ms));
      for (const int rank : talking) members_.heard(rank);
    }
  }

  std::vector<Sent> sent_;
  std::vector<int> cut_;
  Child first_, second_;  // the processes of ranks 1 and 2
  std::vector<std::string> logged_;
  Membership members_{
      *this,
      Members(0, {{}, {.pid = first_.pid()}, {.pid = second_.pid()}, {}}, 3),
      {.heartbeat = milliseconds(1000),
       .patience = milliseconds(5000),
       .log = Log(LogLevel::kWarn,
                  [this](LogLevel, std::string_view line) { logged_.emplace_back(line); })},
      at(0)};
};

TEST_F(MembershipTest, HeartbeatsGoToAllOthers) {
  run(0, 0, {});
  EXPECT_EQ(receivers_of(Kind::kHeartbeat), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(sent_[0].message.epoch, 3);
  EXPECT_EQ(sent_[0].message.from, 0);
  EXPECT_LE(members_.next_event(at(10)), at(1000));
}

TEST_F(MembershipTest, ASilentRankIsLostAndAllHearOfIt) {
  members_.heard(2);
  run(0, 5200, {1, 3});
  ASSERT_TRUE(members_.lost().has_value());
  EXPECT_EQ(members_.lost()->rank, 2);
  EXPECT_EQ(members_.state(2), State::kLost);
  EXPECT_EQ(members_.state(1), State::kLive);
  EXPECT_EQ(receivers_of(Kind::kVerdict), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(cut_, (std::vector<int>{2}));
  EXPECT_TRUE(members_.take_changed());
  EXPECT_FALSE(members_.take_changed());
  EXPECT_EQ(members_.why(2).code(), Code::kPeerLost);
}

TEST_F(MembershipTest, ASuspicionRipensUnlessSomethingExplainsIt) {
  members_.suspect(1, "connection reset", at(0));
  members_.suspect(2, "connection reset", at(0));
  members_.suspect(3, "connection reset", at(0));
  // Rank 2 left in good order, rank 3 because of rank 1.
  hear({.kind = Kind::kGoodbye}, 2, 50);
  members_.data_over(2, "connection closed", at(50));
  EXPECT_EQ(members_.state(2), State::kClosed);
  EXPECT_FALSE(members_.lost().has_value());
  hear({.kind = Kind::kGoodbye, .flag = true, .about = 1, .reporter = 3, .text = "gone"}, 3, 60);
  ASSERT_TRUE(members_.lost().has_value());
  EXPECT_EQ(members_.lost()->rank, 1);
  EXPECT_EQ(members_.lost()->reason, "reported by rank 3: gone");
  run(100, 400, {});
  EXPECT_EQ(members_.lost()->rank, 1);
  EXPECT_EQ(members_.state(3), State::kLive);  // until its data is over
}

TEST_F(MembershipTest, ASuspicionThatNothingExplainsIsALoss) {
  members_.heard(1);
  members_.suspect(1, "connection reset", at(0));
  run(0, 100, {1, 2, 3});
  EXPECT_FALSE(members_.lost().has_value());
  run(200, 200, {1, 2, 3});
  ASSERT_TRUE(members_.lost().has_value());
  EXPECT_EQ(members_.lost()->reason, "connection reset");
}

// Something between two live ranks may reset their connections.
TEST_F(MembershipTest, AConnectionThatEndsProvesNothingButTheProcessTableDoes) {
  second_.end();
  members_.suspect(1, "Connection reset by peer", at(0));
  members_.suspect(2, "Connection reset by peer", at(0));
  run(0, 400, {3});
  const auto lost = members_.all_lost();
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].rank, 1);
  EXPECT_FALSE(lost[0].certain);
  EXPECT_EQ(lost[0].cause, LossCause::kConnection);
  EXPECT_TRUE(lost[1].certain);
  first_.end();  // its process was about to end when the connection did
  EXPECT_TRUE(members_.all_lost()[0].certain);
}

// A rank of another host has seen no more than that a connection ended.
TEST_F(MembershipTest, ALossBecomesCertainWhenAnyRankKnowsIt) {
  members_.heard(1);
  members_.suspect(1, "Connection reset by peer", at(0));
  run(0, 400, {2, 3});
  ASSERT_EQ(members_.all_lost().size(), 1u);
  EXPECT_FALSE(members_.all_lost()[0].certain);
  EXPECT_TRUE(members_.take_changed());
  const std::size_t sent = sent_.size();

  hear({.kind = Kind::kVerdict,
        .about = 1,
        .reporter = 3,
        .certain = true,
        .cause = LossCause::kSilence,
        .text = "its process has ended"},
       3, 450);
  ASSERT_EQ(members_.all_lost().size(), 1u);
  EXPECT_TRUE(members_.all_lost()[0].certain);
  EXPECT_TRUE(members_.lost()->certain);
  // What was said of it first stays, and nobody is told twice.
  EXPECT_EQ(members_.all_lost()[0].reason, "Connection reset by peer");
  EXPECT_EQ(members_.all_lost()[0].cause, LossCause::kConnection);
  EXPECT_EQ(members_.all_lost()[0].reporter, -1);
  EXPECT_FALSE(members_.take_changed());
  EXPECT_EQ(cut_, (std::vector<int>{1}));
  EXPECT_EQ(sent_.size(), sent);

  members_.announce({.rank = 1, .reason = "a doubt"});  // which takes nothing back
  EXPECT_TRUE(members_.all_lost()[0].certain);
}

TEST_F(MembershipTest, ARankThatLeavesPassesOnThatALossIsCertain) {
  hear({.kind = Kind::kVerdict, .about = 1, .reporter = 2, .text = "reset"}, 2, 0);
  hear({.kind = Kind::kVerdict, .about = 1, .reporter = 3, .certain = true, .text = "ended"}, 3,
       10);
  members_.say_goodbye();
  ASSERT_EQ(receivers_of(Kind::kGoodbye), (std::vector<int>{2, 3}));
  EXPECT_TRUE(sent_.back().message.certain);
  EXPECT_EQ(sent_.back().message.text, "reset");
}

// Another rank may not have read its goodbye before the connection ended.
TEST_F(MembershipTest, ARankThatHasClosedIsStillCertainlyGoneWhenItIsReportedLost) {
  hear({.kind = Kind::kGoodbye}, 1, 0);
  members_.data_over(1, "connection closed", at(10));
  ASSERT_EQ(members_.state(1), State::kClosed);
  hear({.kind = Kind::kVerdict, .about = 1, .reporter = 2, .text = "reset"}, 2, 20);
  ASSERT_EQ(members_.state(1), State::kLost);
  EXPECT_TRUE(members_.all_lost()[0].certain);
}

// The words of a reason are anybody's: programs go by the fields.
TEST_F(MembershipTest, WhatAnotherRankReportsKeepsItsFields) {
  hear({.kind = Kind::kVerdict,
        .about = 1,
        .reporter = 3,
        .gone = false,
        .cause = LossCause::kGaveUp,
        .operation = 41,
        .text = "check failed: ranks disagree: closed"},
       3, 0);
  ASSERT_TRUE(members_.lost().has_value());
  EXPECT_EQ(members_.lost()->cause, LossCause::kGaveUp);
  EXPECT_EQ(members_.lost()->reporter, 3);
  EXPECT_EQ(members_.lost()->operation, std::optional<std::uint64_t>(41));
}

// It said goodbye to those alone with whom it had a connection.
TEST_F(MembershipTest, ARankThatWasNeverHeardOfMayHaveClosedAsOthersKnow) {
  members_.suspect(2, "Connection refused", at(0));
  ASSERT_EQ(receivers_of(Kind::kClosed), (std::vector<int>{3, 1}));
  EXPECT_EQ(sent_.back().message.about, 2);
  hear({.kind = Kind::kClosed, .about = 2}, 3, 10);
  EXPECT_EQ(members_.state(2), State::kClosed);
  EXPECT_FALSE(members_.lost().has_value());
  // Who knows answers; who does not says nothing.
  sent_.clear();
  hear({.kind = Kind::kClosed, .flag = true, .about = 2}, 1, 20);
  hear({.kind = Kind::kClosed, .flag = true, .about = 3}, 1, 20);
  ASSERT_EQ(receivers_of(Kind::kClosed), (std::vector<int>{1}));
  EXPECT_FALSE(sent_.back().message.flag);
  // One that was heard of is not closed by others' word.
  hear({.kind = Kind::kClosed, .about = 3}, 1, 30);
  EXPECT_EQ(members_.state(3), State::kLive);
}

TEST_F(MembershipTest, ARankThatWasNeverHeardOfIsAskedForBeforeItsSilenceIsALoss) {
  run(0, 5100, {1, 3});
  EXPECT_FALSE(members_.lost().has_value());
  EXPECT_EQ(receivers_of(Kind::kClosed), (std::vector<int>{3, 1}));
  run(5200, 5400, {1, 3});
  ASSERT_TRUE(members_.lost().has_value());
  EXPECT_EQ(members_.lost()->rank, 2);
  EXPECT_EQ(members_.lost()->cause, LossCause::kSilence);
}

TEST_F(MembershipTest, AConnectionThatNobodyTakesSaysWhatThatMayMean) {
  members_.suspect(2, "Connection refused", at(0));
  run(0, 400, {1, 3});
  ASSERT_EQ(members_.all_lost().size(), 1u);
  EXPECT_EQ(members_.all_lost()[0].reason,
            "no connection with it, which may have closed: Connection refused");
}

TEST_F(MembershipTest, AGoodbyeIsAnsweredAndIsNoLoss) {
  hear({.kind = Kind::kGoodbye}, 1, 0);
  EXPECT_EQ(receivers_of(Kind::kFarewell), (std::vector<int>{1}));
  EXPECT_TRUE(members_.leaving(1));
  EXPECT_EQ(members_.state(1), State::kLive);  // data may still come
  members_.data_over(1, "connection closed", at(10));
  EXPECT_EQ(members_.state(1), State::kClosed);
  run(100, 9000, {2, 3});
  EXPECT_FALSE(members_.lost().has_value());
  members_.need(1);
  EXPECT_EQ(members_.lost()->rank, 1);
  EXPECT_THAT(members_.why(1), fails(Code::kPeerLost, "rank 1", "closed"));
}

TEST_F(MembershipTest, TheFirstVerdictStays) {
  hear({.kind = Kind::kVerdict, .about = 2, .reporter = 1, .text = "silent"}, 1, 0);
  members_.announce({3, "my own reason"});
  EXPECT_EQ(members_.lost()->rank, 2);
  EXPECT_EQ(members_.state(3), State::kLost);
  EXPECT_EQ(receivers_of(Kind::kVerdict), (std::vector<int>{1, 2, 3}));  // passed on once
}

// Who is stopped counts for no side. Continued, it must not go on with others like it.
TEST_F(MembershipTest, EachThatCountsForNoSideIsToldSo) {
  members_.announce({.rank = 1, .reason = "killed", .certain = true});
  sent_.clear();
  for (const int rank : {2, 3}) {
    members_.announce({.rank = rank,
                       .reason = "no heartbeat for 5.0 s",
                       .certain = true,
                       .cause = LossCause::kSilence});
  }
  ASSERT_EQ(receivers_of(Kind::kVerdict), (std::vector<int>{2, 3, 3}));
  std::erase_if(sent_, [](const Sent& sent) { return sent.message.about != sent.rank; });
  ASSERT_EQ(sent_.size(), 2u);
  for (const Sent& sent : sent_) {
    EXPECT_EQ(sent.message.cause, LossCause::kSilence);
    EXPECT_TRUE(sent.message.gone && sent.message.certain);
  }
  EXPECT_EQ(members_.lost()->rank, 1);
  EXPECT_EQ(cut_, (std::vector<int>{1, 2, 3}));
}

// Who may be out of reach is another side, and goes on by its own rule.
TEST_F(MembershipTest, OneThatMayLiveOutOfReachIsNotToldThatItIsGivenUp) {
  members_.announce({.rank = 1, .reason = "killed", .certain = true});
  sent_.clear();
  members_.announce({.rank = 2, .reason = "reset", .cause = LossCause::kConnection});
  EXPECT_EQ(receivers_of(Kind::kVerdict), (std::vector<int>{3}));
}

TEST_F(MembershipTest, WhoIsGivenUpAfterALossOfAnotherKnowsBoth) {
  hear({.kind = Kind::kVerdict, .about = 3, .reporter = 1, .certain = true, .text = "ended"}, 1, 0);
  hear({.kind = Kind::kVerdict, .about = 0, .reporter = 1, .certain = true, .text = "late"}, 1, 10);
  EXPECT_EQ(members_.lost()->rank, 3);
  const auto lost = members_.all_lost();
  ASSERT_EQ(lost.size(), 4u);
  EXPECT_EQ(lost[0].rank, 0);
}

TEST_F(MembershipTest, OnlyWhoIsGoneIsLoggedAsLost) {
  const std::string why = "rank 1 runs barrier, rank 0 runs all_reduce of 8 f32 sum";
  members_.announce({.rank = 0, .reason = why, .gone = false, .cause = LossCause::kDisagreement});
  EXPECT_EQ(logged_,
            (std::vector<std::string>{"operations end, no rank is lost, ranks disagree: " + why}));
  members_.announce({.rank = 2, .reason = "killed"});  // the first verdict stays
  EXPECT_EQ(logged_.size(), 1u);
}

TEST_F(MembershipTest, WhatAnotherRankSaysOfADisagreementIsLoggedAsThat) {
  const Control verdict{.kind = Kind::kVerdict,
                        .about = 1,
                        .reporter = 1,
                        .gone = false,
                        .cause = LossCause::kDisagreement,
                        .text = "rank 0 runs barrier, rank 1 runs broadcast"};
  hear(verdict, 1, 0);
  EXPECT_EQ(logged_, (std::vector<std::string>{
                         "operations end, no rank is lost, ranks disagree: reported by rank 1: " +
                         verdict.text}));
  EXPECT_EQ(members_.state(1), State::kLive);
}

TEST_F(MembershipTest, WhoIsGivenUpReachesNobody) {
  hear({.kind = Kind::kVerdict, .about = 0, .reporter = 1, .text = "silent"}, 1, 0);
  for (const int rank : {1, 2, 3}) EXPECT_EQ(members_.state(rank), State::kLost);
  EXPECT_EQ(cut_, (std::vector<int>{1, 2, 3}));
}

// Though it lives for longer than its patience with the others, and suspected one of them.
TEST_F(MembershipTest, WhoIsGivenUpLivesOn) {
  members_.suspect(2, "connection reset", at(0));
  hear({.kind = Kind::kVerdict, .about = 0, .reporter = 1, .text = "silent"}, 1, 0);
  run(100, 9000, {});
  EXPECT_EQ(members_.lost()->rank, 0);
  EXPECT_EQ(members_.all_lost().size(), 4u);
  EXPECT_GT(members_.next_event(at(9000)), at(9020));  // nobody is suspected any more
}

// Those who are told close their end of the connection, and go on with the others.
TEST_F(MembershipTest, WhoLeavesHoldsNobodyForLost) {
  for (const int rank : {1, 2, 3}) members_.heard(rank);
  members_.say_goodbye();
  hear({.kind = Kind::kFarewell}, 1, 100);
  members_.data_over(1, "connection closed", at(100));
  members_.suspect(2, "connection reset", at(100));
  run(100, 7000, {});
  EXPECT_FALSE(members_.lost().has_value());
  EXPECT_EQ(receivers_of(Kind::kVerdict), std::vector<int>());
}

TEST_F(MembershipTest, FarewellsAreAwaited) {
  members_.say_goodbye();
  EXPECT_EQ(receivers_of(Kind::kGoodbye), (std::vector<int>{1, 2, 3}));
  EXPECT_TRUE(members_.awaits_farewell());
  hear({.kind = Kind::kFarewell}, 1, 10);
  hear({.kind = Kind::kGoodbye}, 2, 10);
  members_.data_over(2, "connection closed", at(10));
  EXPECT_TRUE(members_.awaits_farewell());
  members_.suspect(3, "connection reset", at(20));
  EXPECT_FALSE(members_.awaits_farewell());
}

// A job of so many ranks, whose control messages arrive at once; those that are `dead` take none.
class Job {
 public:
  explicit Job(int size) : dead_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      lines_.push_back(std::make_unique<Lines>(*this));
      ranks_.push_back(std::make_unique<Membership>(
          *lines_.back(), Members(rank, std::vector<Member>(static_cast<std::size_t>(size)), 3),
          MembershipOptions{milliseconds(1000), milliseconds(5000), {}}, Deadline{}));
    }
  }
  Membership& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  void kill(int rank) { dead_[static_cast<std::size_t>(rank)] = true; }
  bool is_dead(int rank) const { return dead_[static_cast<std::size_t>(rank)]; }
  // tend() of all each 100 ms, until `ms`. Returns how many messages there were.
  std::size_t run(int ms) {
    const std::size_t before = messages_;
    for (; ms_ < ms; ms_ += 100) {
      for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
        if (!is_dead(rank)) at(rank).tend(Deadline{} + milliseconds(ms_));
      }
      while (!mail_.empty()) {
        const auto [to, message] = mail_.front();
        mail_.pop_front();
        if (!is_dead(to)) at(to).receive(message, Deadline{} + milliseconds(ms_));
      }
    }
    return messages_ - before;
  }

 private:
  struct Lines : Membership::Carrier {
    explicit Lines(Job& owner) : job(owner) {}
    void send(int rank, const Control& message) override {
      ++job.messages_;
      job.mail_.emplace_back(rank, message);
    }
    void cut(int) override {}
    Job& job;
  };
  std::vector<bool> dead_;
  std::vector<std::unique_ptr<Lines>> lines_;
  std::vector<std::unique_ptr<Membership>> ranks_;
  std::deque<std::pair<int, Control>> mail_;
  std::size_t messages_ = 0;
  int ms_ = 0;
};

TEST(MembershipOfMany, HeartbeatsOfAnIdleJobAreFourARankAndSecond) {
  for (const int size : {8, 64, 256}) {
    Job job(size);
    job.run(1000);
    EXPECT_LE(job.run(11'000), std::size_t{10} * 4 * static_cast<std::size_t>(size)) << size;
    EXPECT_EQ(job.at(size / 2).lost(), std::nullopt);
  }
}

TEST(MembershipOfMany, WhatItsNeighboursNoticeAllHear) {
  constexpr int kSize = 64;
  Job job(kSize);
  job.run(3000);
  for (const int dead : {20, 21, 22, 50}) job.kill(dead);  // the middle one has lost its neighbours
  job.run(20'000);
  for (const int rank : {0, 19, 23, 63}) {
    EXPECT_EQ(job.at(rank).all_lost().size(), 4u) << rank;
    EXPECT_EQ(job.at(rank).all_lost()[1].rank, 21);
    EXPECT_EQ(job.at(rank).all_lost()[1].cause, LossCause::kSilence);
  }
}

// Two that are no neighbours: the one that waits asks, the other one answers.
TEST(MembershipOfMany, WhomARankWaitsForIsWatchedToo) {
  Job job(64);
  job.at(0).watch_also([] { return std::vector{0, 32, 32}; });
  const std::size_t idle = Job(64).run(10'000);
  EXPECT_EQ(job.run(10'000), idle + 2 * 10);
  EXPECT_EQ(job.at(0).lost(), std::nullopt);
}

}  // namespace
}  // namespace gradwire::comm::membership_test
