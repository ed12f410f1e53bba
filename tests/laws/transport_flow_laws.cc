// The laws of Transport about senders that run ahead of their receivers: what piles up is bounded,
// and messages that had to wait are received in any order, and end as any others do.
#include <algorithm>
#include <string>

#include "tests/laws/transport_laws.h"
#include "tests/laws/transport_steps.h"
#include "tests/support/peak_memory.h"

namespace gradwire::laws {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kMostGrowth = 64 * kMiB;
constexpr std::size_t kMessage = 4 * kMiB;
constexpr std::uint64_t kMessages = 64;
constexpr double kLate = 1;  // seconds

// Message i: a part of one buffer, other for each i.
constexpr std::size_t kShift = 4096;
Bytes all_messages(Transport& transport) {
  return pattern(kMessage + kMessages * kShift, 3, &transport);
}
Transfer part(Transfer::Kind kind, int peer, Tag name, Bytes& all, std::uint64_t i,
              std::size_t bytes = kMessage) {
  return {kind, peer, name, ByteSpan(all).subspan(i * kShift, bytes), {}};
}
bool is_part(const Bytes& got, const Bytes& all, std::uint64_t i) {
  return std::equal(got.begin(), got.end(), all.begin() + static_cast<std::ptrdiff_t>(i * kShift));
}

// Posts all messages to `peer`, with tags of their own.
std::vector<Ticket> send_ahead(Transport& transport, int peer, Bytes& all) {
  std::vector<Ticket> tickets;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    tickets.push_back(post(transport, {part(Transfer::Kind::kSend, peer, tag(i), all, i)}));
  }
  return tickets;
}

// Of the messages that send_ahead() sends some have to wait for their receives: one that is open
// though this rank has been driven for a while.
Ticket one_that_waits(Transport& transport, const std::vector<Ticket>& tickets) {
  idle(transport, kLate / 2);
  for (const Ticket ticket : tickets) {
    if (!transport.poll(ticket)) return ticket;
  }
  ADD_FAILURE() << "all were sent to a rank that received none";
  return {};
}

TEST_P(TransportLaws, AReceiverThatComesLateKeepsLittle) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage);
    const PeakMemory memory;
    if (transport->rank() == 0) {
      for (const Ticket ticket : send_ahead(*transport, peer, all)) {
        EXPECT_EQ(settle(*transport, ticket, soon()).message(), "ok");
      }
    } else {
      idle(*transport, kLate);
      for (std::uint64_t i = kMessages; i-- > 0;) {  // the last one first
        ASSERT_EQ(exchange(*transport, {recv(peer, tag(i), got)}, soon()).message(), "ok");
        ASSERT_TRUE(is_part(got, all, i)) << i;
      }
    }
    EXPECT_LT(memory.growth(), kMostGrowth);
  });
}

TEST_P(TransportLaws, BothMayRunAhead) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage);
    const std::vector<Ticket> sent = send_ahead(*transport, peer, all);
    for (std::uint64_t k = 0; k < kMessages; ++k) {
      const std::uint64_t i = (k * 37 + 11) % kMessages;
      ASSERT_EQ(exchange(*transport, {recv(peer, tag(i), got)}, soon()).message(), "ok");
      ASSERT_TRUE(is_part(got, all, i)) << i;
    }
    for (const Ticket ticket : sent) {
      EXPECT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    }
  });
}

// One at a time, and many of them: a sender whose messages end where nobody takes them would not
// stop of itself.
TEST_P(TransportLaws, SmallMessagesPileUpLittleToo) {
  constexpr int kCount = 40'000;
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes data(3000);
    const PeakMemory memory;
    if (transport->rank() == 1) idle(*transport, kLate);
    for (std::uint64_t i = 0; i < kCount; ++i) {
      const Transfer one =
          transport->rank() == 0 ? send(peer, tag(i), data) : recv(peer, tag(i), data);
      ASSERT_EQ(exchange(*transport, {one}, soon()).message(), "ok") << i;
    }
    EXPECT_LT(memory.growth(), kMostGrowth);
  });
}

TEST_P(TransportLaws, EqualTagsKeepTheirOrderWhenTheyHaveToWait) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage);
    std::vector<Ticket> tickets;
    const auto bytes_of = [](std::uint64_t i) { return i % 3 == 0 ? std::size_t{100} : kMiB; };
    if (transport->rank() == 1) idle(*transport, kLate);
    for (std::uint64_t i = 0; i < kMessages; ++i) {
      if (transport->rank() == 0) {
        tickets.push_back(
            post(*transport, {part(Transfer::Kind::kSend, peer, tag(3), all, i, bytes_of(i))}));
        continue;
      }
      got.resize(bytes_of(i));
      ASSERT_EQ(exchange(*transport, {recv(peer, tag(3), got)}, soon()).message(), "ok");
      ASSERT_TRUE(is_part(got, all, i)) << i;
    }
    for (const Ticket ticket : tickets) {
      EXPECT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    }
  });
}

TEST_P(TransportLaws, AMessageThatWaitsMayBeTooLongOrShort) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), small(kMessage - 1), large(kMessage + 1), got(kMessage);
    constexpr std::uint64_t kTooLong = kMessages - 2, kShort = kMessages - 1;
    if (transport->rank() == 0) {
      for (const Ticket ticket : send_ahead(*transport, peer, all)) {
        EXPECT_EQ(settle(*transport, ticket, soon()).message(), "ok");
      }
      return;
    }
    idle(*transport, kLate);
    EXPECT_EQ(exchange(*transport, {recv(peer, tag(kTooLong), small)}, soon()).code(),
              Code::kRankMismatch);
    const Ticket ticket = post(*transport, {recv(peer, tag(kShort), large)});
    EXPECT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    large.resize(kMessage);
    EXPECT_TRUE(is_part(large, all, kShort));
    for (std::uint64_t i = 0; i < kTooLong; ++i) {
      ASSERT_EQ(exchange(*transport, {recv(peer, tag(i), got)}, soon()).message(), "ok");
    }
  });
}

TEST_P(TransportLaws, AMessageThatWaitsMayBeCancelled) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage), token(1);
    if (transport->rank() == 0) {
      const std::vector<Ticket> tickets = send_ahead(*transport, peer, all);
      const Ticket waits = one_that_waits(*transport, tickets);
      transport->cancel(waits);
      EXPECT_EQ(settle(*transport, waits, soon()).code(), Code::kCancelled);
      EXPECT_EQ(exchange(*transport, {recv(peer, tag(900), token)}, soon()).message(), "ok");
      for (const Ticket ticket : tickets) transport->cancel(ticket);
      return;
    }
    idle(*transport, kLate);
    // Whatever became of that one: the others are none the worse for it.
    EXPECT_EQ(exchange(*transport, {recv(peer, tag(kMessages - 1), got)}, soon()).message(), "ok");
    EXPECT_TRUE(is_part(got, all, kMessages - 1));
    EXPECT_EQ(exchange(*transport, {send(peer, tag(900), token)}, soon()).message(), "ok");
  });
}

// Rank 1 of 3 ends while messages to it wait: they end, and rank 2 gets its own.
void waiting_messages_end(const TransportBackend& backend, Fate fate) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    Bytes token(1);
    if (transport->rank() > 0) {
      ASSERT_EQ(exchange(*transport, {recv(0, tag(901), token)}, deadline_in(20)).message(), "ok");
    }
    if (transport->rank() == 1 && fate != Fate::kReturns) return backend.end(*transport, fate);
    if (transport->rank() == 1) return;
    Bytes all = all_messages(*transport), got(kMessage);
    if (transport->rank() == 2) {
      idle(*transport, kLate);
      for (std::uint64_t i = kMessages; i-- > 0;) {
        ASSERT_EQ(exchange(*transport, {recv(0, tag(i), got)}, deadline_in(30)).message(), "ok");
        ASSERT_TRUE(is_part(got, all, i)) << i;
      }
      return;
    }
    const std::vector<Ticket> lost = send_ahead(*transport, 1, all);
    const std::vector<Ticket> kept = send_ahead(*transport, 2, all);
    for (const int peer : {1, 2}) {
      ASSERT_EQ(exchange(*transport, {send(peer, tag(901), token)}, deadline_in(20)).message(),
                "ok");
    }
    EXPECT_EQ(settle(*transport, lost.back(), deadline_in(backend.notice_seconds)).code(),
              Code::kPeerLost);
    for (const Ticket ticket : kept) {
      EXPECT_EQ(settle(*transport, ticket, deadline_in(30)).message(), "ok");
    }
  };
  backend.run(3, body, {{1, fate}}, 100);
}

TEST_P(TransportLaws, MessagesThatWaitForAKilledRankEnd) {
  waiting_messages_end(GetParam(), Fate::kKilled);
}
TEST_P(TransportLaws, MessagesThatWaitForAStoppedRankEnd) {
  waiting_messages_end(GetParam(), Fate::kStopped);
}
TEST_P(TransportLaws, MessagesThatWaitForARankThatLeavesEnd) {
  waiting_messages_end(GetParam(), Fate::kReturns);
}

}  // namespace
}  // namespace gradwire::laws
