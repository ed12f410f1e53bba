// What a peer that is out of order may say about messages, on one end of its connections.
#include "comm/tcp/tickets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>

#include "comm/membership.h"
#include "comm/tcp/peers.h"

namespace gradwire::tcp::tcp_tickets_test {
namespace {

using Bytes = std::vector<std::byte>;
using comm::Control;

constexpr std::uint8_t kEpoch = 7;
// Two of these are more than a peer has room for.
constexpr std::size_t kMessage = std::size_t{20} << 20;

Deadline now() { return std::chrono::steady_clock::now(); }

// Rank 0 of 2; the other one is the test.
class TcpTickets : public ::testing::Test {
 protected:
  TcpTickets()
      : peers_(0, 2),
        membership_(peers_, comm::Members(0, std::vector<comm::Member>(2), kEpoch),
                    {std::chrono::seconds(60), std::chrono::seconds(600), {}}, now()),
        tickets_(peers_, membership_) {
    EXPECT_TRUE(peers_.start(kEpoch).ok());
    EXPECT_TRUE(peers_.open(1, LinkKind::kBulk, pair(bulk_)).ok());
    EXPECT_TRUE(peers_.open(1, LinkKind::kControl, pair(control_)).ok());
  }

  static rendezvous::Fd pair(rendezvous::Fd& other) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    other = rendezvous::Fd(ends[1]);
    return rendezvous::Fd(ends[0]);
  }

  Ticket post(Transfer::Kind kind, std::uint32_t operation, Bytes& data) {
    const Transfer transfer{kind, 1, Tag::make(0, operation, 0).value(), data, {}};
    return tickets_.post({&transfer, 1});
  }
  void hear(Control::Kind kind, std::uint64_t id) {
    tickets_.on_message({.kind = kind, .epoch = kEpoch, .from = 1, .id = id});
  }

  // Reads all that this rank writes; how much that was, and the last eight bytes of it.
  std::pair<std::size_t, std::uint64_t> drain() {
    Bytes all, chunk(1 << 20);
    for (int idle = 0; idle < 3;) {
      const ssize_t got = read(bulk_.get(), chunk.data(), chunk.size());
      if (got > 0) all.insert(all.end(), chunk.begin(), chunk.begin() + got);
      EXPECT_TRUE(peers_.look({}).ok());
      idle = tickets_.move(now()) || got > 0 ? 0 : idle + 1;
    }
    std::uint64_t last = 0;
    if (all.size() >= sizeof last) {
      std::memcpy(&last, all.data() + all.size() - sizeof last, sizeof last);
    }
    return {all.size(), last};
  }

  rendezvous::Fd bulk_, control_;
  Peers peers_;
  comm::Membership membership_;
  Tickets tickets_;
};

constexpr std::size_t kFrame = 16 + kMessage;
constexpr std::size_t kAnnouncement = 24;

// The message is its owner's again: what is left of it is not read any more.
TEST_F(TcpTickets, AMessageThatIsTakenBeforeItWasAnnouncedIsNotAnnounced) {
  Bytes data(kMessage);
  post(Transfer::Kind::kSend, 0, data);
  const Ticket second = post(Transfer::Kind::kSend, 1, data);
  hear(Control::Kind::kTaken, 1);
  EXPECT_TRUE(tickets_.poll(second).has_value());
  post(Transfer::Kind::kSend, 2, data);
  const auto [bytes, last] = drain();
  EXPECT_EQ(bytes, kFrame + kAnnouncement);
  EXPECT_EQ(last, 2u);
}

TEST_F(TcpTickets, AMessageIsAnnouncedBehindWhatGoesAtOnce) {
  Bytes data(kMessage);
  post(Transfer::Kind::kSend, 0, data);
  const Ticket second = post(Transfer::Kind::kSend, 1, data);
  EXPECT_EQ(drain(), std::pair(kFrame + kAnnouncement, std::uint64_t{1}));
  EXPECT_FALSE(tickets_.poll(second).has_value());
  hear(Control::Kind::kWant, 1);
  EXPECT_EQ(drain().first, kFrame);
  EXPECT_TRUE(tickets_.poll(second).has_value());
}

TEST_F(TcpTickets, WhatIsGatheredLeavesTogether) {
  Bytes data(100), some(1000);
  tickets_.gather(true);
  const Ticket first = post(Transfer::Kind::kSend, 0, data);
  post(Transfer::Kind::kSend, 1, data);
  EXPECT_LT(read(bulk_.get(), some.data(), some.size()), 0);
  EXPECT_FALSE(tickets_.poll(first).has_value());
  tickets_.gather(false);
  EXPECT_EQ(read(bulk_.get(), some.data(), some.size()), ssize_t{2 * (16 + 100)});
  EXPECT_TRUE(tickets_.poll(first).has_value());
  post(Transfer::Kind::kSend, 2, data);  // at once, as ever
  EXPECT_EQ(read(bulk_.get(), some.data(), some.size()), ssize_t{16 + 100});
}

// A full connection is asked for room once nothing comes any more.
TEST_F(TcpTickets, WhatHasComeIsReadBeforeMoreIsWritten) {
  Bytes large(4 << 20), small(100);
  post(Transfer::Kind::kSend, 0, large);
  for (int turns = 0; turns < 10; ++turns) (void)tickets_.move(now());
  const Ticket first = post(Transfer::Kind::kRecv, 1, small);
  post(Transfer::Kind::kRecv, 2, small);
  EXPECT_FALSE(tickets_.ask());
  const std::uint64_t tag = Tag::make(0, 1, 0).value().bits();
  const Header header{std::uint64_t{kEpoch} << 56 | std::uint64_t{1} << 40 | tag, small.size()};
  ASSERT_EQ(write(bulk_.get(), &header, sizeof header), ssize_t{sizeof header});
  ASSERT_EQ(write(bulk_.get(), small.data(), small.size()), ssize_t{100});
  EXPECT_FALSE(tickets_.ask());
  EXPECT_TRUE(tickets_.move(now()));
  EXPECT_TRUE(tickets_.poll(first).has_value());
  EXPECT_TRUE(tickets_.runnable());
  EXPECT_TRUE(tickets_.ask());
  EXPECT_FALSE(tickets_.move(now()));
  EXPECT_FALSE(tickets_.ask());
  tickets_.cancel_all();
}

TEST_F(TcpTickets, AWithdrawalOfNothingEndsNoReceive) {
  Bytes data(100);
  const Ticket receive = post(Transfer::Kind::kRecv, 0, data);
  hear(Control::Kind::kWithdraw, 0);
  EXPECT_FALSE(tickets_.poll(receive).has_value());
  tickets_.cancel_all();
}

// With 63 others that say nothing: only whom something waits for is looked at, and then no more.
TEST(TcpTicketsOfMany, ATurnLooksAtThoseAloneThatHaveSomething) {
  constexpr int kRanks = 64;
  Peers peers(0, kRanks);
  comm::Membership membership(peers, comm::Members(0, std::vector<comm::Member>(kRanks), kEpoch),
                              {std::chrono::seconds(60), std::chrono::seconds(600), {}}, now());
  Tickets tickets(peers, membership);
  ASSERT_TRUE(peers.start(kEpoch).ok());
  std::vector<rendezvous::Fd> others(2 * kRanks);  // by rank, for messages; then for control
  for (int rank = 1; rank < kRanks; ++rank) {
    for (const LinkKind kind : {LinkKind::kBulk, LinkKind::kControl}) {
      int ends[2] = {-1, -1};
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
      ASSERT_TRUE(peers.open(rank, kind, rendezvous::Fd(ends[0])).ok());
      const int place = rank + (kind == LinkKind::kBulk ? 0 : kRanks);
      others[static_cast<std::size_t>(place)] = rendezvous::Fd(ends[1]);
    }
  }
  const auto turn = [&] {
    EXPECT_TRUE(peers.look({}).ok());
    tickets.move(now());
    peers.heard().visit([](int) { return false; });
  };
  for (int i = 0; i < 4; ++i) turn();
  EXPECT_TRUE(peers.active().ranks().empty());
  EXPECT_TRUE(peers.heard().ranks().empty());
  EXPECT_FALSE(tickets.ask());

  Bytes data(100), sent(100);
  const Transfer wanted{Transfer::Kind::kRecv, 5, Tag::make(0, 0, 0).value(), data, {}};
  const Ticket receive = tickets.post({&wanted, 1});
  EXPECT_TRUE(tickets.ask());
  EXPECT_EQ(std::vector(peers.active().ranks().begin(), peers.active().ranks().end()),
            std::vector{5});
  turn();
  EXPECT_TRUE(peers.active().ranks().empty());
  const Header header{std::uint64_t{kEpoch} << 56 | std::uint64_t{5} << 40, sent.size()};
  ASSERT_EQ(write(others[5].get(), &header, sizeof header), ssize_t{sizeof header});
  ASSERT_EQ(write(others[5].get(), sent.data(), sent.size()), ssize_t{100});
  for (int i = 0; i < 4; ++i) turn();
  EXPECT_TRUE(tickets.poll(receive).has_value());
  EXPECT_TRUE(peers.active().ranks().empty());
  EXPECT_FALSE(tickets.ask());
}

}  // namespace
}  // namespace gradwire::tcp::tcp_tickets_test
