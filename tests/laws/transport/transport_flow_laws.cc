// The laws of Transport about senders that run ahead of their receivers: what piles up is bounded,
// and messages that had to wait are received in any order, and end as any others do.
#include <algorithm>
#include <chrono>
#include <string>

#include "tests/laws/transport/transport_laws.h"
#include "tests/laws/transport/transport_steps.h"
#include "tests/support/peak_memory.h"
#include "tests/support/short_run.h"

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

// Of the messages that send_ahead() sends some have to wait for their receives: the last but one is
// open though this rank has been driven for a while.
std::uint64_t one_that_waits(Transport& transport, const std::vector<Ticket>& tickets) {
  idle(transport, kLate / 2);
  const std::uint64_t i = tickets.size() - 2;
  if (!transport.poll(tickets[i])) return i;
  ADD_FAILURE() << "all were sent to a rank that received none";
  return 0;
}

// Receives with a tag of which an earlier message, `old`, was cancelled, until message kMessages
// comes. The earlier one ends a receive with kCancelled, or comes, whole, or neither.
void receive_the_fresh_one(Transport& transport, Tag name, const Bytes& all, std::uint64_t old,
                           std::size_t bytes) {
  for (int cancelled = 0; cancelled <= 1; ++cancelled) {
    Bytes got(bytes);
    const Status status =
        exchange(transport, {recv(1 - transport.rank(), name, got)}, deadline_in(20));
    if (status.ok() && is_part(got, all, kMessages)) return;
    if (!status.ok()) {
      ASSERT_EQ(status.code(), Code::kCancelled) << status.message();
    } else {
      ASSERT_TRUE(is_part(got, all, old)) << "neither message " << old << " nor what follows it";
    }
  }
  FAIL() << "more messages than were sent";
}

// All messages, and little beside them. Since construction: the first may come while this rank
// still makes its own.
void expect_counted(std::uint64_t bytes) {
  EXPECT_GE(bytes, kMessages * kMessage);
  EXPECT_LT(bytes, kMessages * kMessage + kMiB);
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
      expect_counted(transport->stats().bytes_sent);
    } else {
      idle(*transport, kLate);
      for (std::uint64_t i = kMessages; i-- > 0;) {  // the last one first
        ASSERT_EQ(exchange(*transport, {recv(peer, tag(i), got)}, soon()).message(), "ok");
        ASSERT_TRUE(is_part(got, all, i)) << i;
      }
      expect_counted(transport->stats().bytes_received);
    }
    EXPECT_LT(memory.growth(), kMostGrowth);
  });
}

// Whether it is so within some seconds, in which the transport is driven.
bool comes(Transport& transport, Tag name, std::uint64_t any) {
  const Deadline until = deadline_in(20);
  while (!transport.has_message(1 - transport.rank(), name, any)) {
    if (std::chrono::steady_clock::now() >= until || !transport.progress().has_value())
      return false;
    if (!transport.wait(until).ok()) return false;
  }
  return true;
}

// Messages that come whole, and messages that wait and are announced.
TEST_P(TransportLaws, AReceiverKnowsWhatHasComeBeforeItReceives) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage);
    if (transport->rank() == 0) {
      for (const Ticket ticket : send_ahead(*transport, peer, all)) {
        EXPECT_EQ(settle(*transport, ticket, soon()).message(), "ok");
      }
      return;
    }
    for (std::uint64_t i = kMessages; i-- > 0;) {  // the last one first
      ASSERT_TRUE(comes(*transport, tag(i), 0)) << i;
      ASSERT_EQ(exchange(*transport, {recv(peer, tag(i), got)}, soon()).message(), "ok");
      EXPECT_FALSE(transport->has_message(peer, tag(i), 0)) << i;
    }
    EXPECT_FALSE(transport->has_message(peer, tag(kMessages), 0));
  });
}

TEST_P(TransportLaws, AMessageIsKnownByAPartOfItsTag) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes data(10);
    if (transport->rank() == 0) {
      EXPECT_EQ(exchange(*transport, {send(peer, tag(5), data)}, soon()).message(), "ok");
      return;
    }
    const auto channel = [](std::uint32_t one) { return Tag::make(1, 5, one).value(); };
    ASSERT_TRUE(comes(*transport, channel(0x35), 0x7f));
    EXPECT_TRUE(transport->has_message(peer, channel(0), 0));
    EXPECT_FALSE(transport->has_message(peer, channel(0x35), 0x3));
    EXPECT_FALSE(transport->has_message(peer, tag(4), 0x7f));
    EXPECT_EQ(exchange(*transport, {recv(peer, tag(5), data)}, soon()).message(), "ok");
    EXPECT_FALSE(transport->has_message(peer, tag(5), 0x7f));
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
  constexpr int kCount = 30'000;  // of 3,000 bytes: more than may pile up
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

// All at once: some go ahead, of the others the announcements do. In either run more bytes than may
// pile up; what UCX looks through grows by the square of the count.
TEST_P(TransportLaws, ManyMessagesThatWaitPileUpLittle) {
  const std::uint64_t count = is_short_run() ? 2000 : 4000;
  const std::size_t bytes = is_short_run() ? 45'000 : 30'000;
  on_ranks(2, [count, bytes](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes data(bytes);
    const PeakMemory memory;
    std::vector<Ticket> tickets;
    if (transport->rank() == 1) idle(*transport, kLate);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (transport->rank() == 0) {
        tickets.push_back(post(*transport, {send(peer, tag(i), data)}));
      } else {
        ASSERT_EQ(exchange(*transport, {recv(peer, tag(i), data)}, soon()).message(), "ok") << i;
      }
    }
    for (const Ticket ticket : tickets) {
      ASSERT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    }
    EXPECT_LT(memory.growth(), kMostGrowth);
  });
}

TEST(PeakMemory, IsWithinNoBoundWhereTheSystemDoesNotTell) {
  EXPECT_EQ(PeakMemory("/dev/null").growth(), SIZE_MAX);
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

// Their memory is free then, however they have ended.
void cancel_all(Transport& transport, const std::vector<Ticket>& tickets) {
  for (const Ticket ticket : tickets) transport.cancel(ticket);
  for (const Ticket ticket : tickets) {
    ASSERT_NE(settle(transport, ticket, deadline_in(20)).code(), Code::kTimedOut);
  }
}

TEST_P(TransportLaws, AMessageThatWaitsMayBeCancelled) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage), token(1);
    if (transport->rank() == 0) {
      const std::vector<Ticket> tickets = send_ahead(*transport, peer, all);
      // Once its peer has the last one, the one before has been announced.
      EXPECT_EQ(exchange(*transport, {recv(peer, tag(902), token)}, soon()).message(), "ok");
      const std::uint64_t i = one_that_waits(*transport, tickets);
      transport->cancel(tickets[i]);
      EXPECT_EQ(settle(*transport, tickets[i], soon()).code(), Code::kCancelled);
      token[0] = static_cast<std::byte>(i);
      EXPECT_EQ(exchange(*transport, {send(peer, tag(900), token)}, soon()).message(), "ok");
      const Transfer fresh = part(Transfer::Kind::kSend, peer, tag(i), all, kMessages);
      EXPECT_EQ(exchange(*transport, {fresh}, soon()).message(), "ok");
      EXPECT_EQ(exchange(*transport, {recv(peer, tag(901), token)}, soon()).message(), "ok");
      return cancel_all(*transport, tickets);
    }
    idle(*transport, kLate);
    EXPECT_EQ(exchange(*transport, {recv(peer, tag(kMessages - 1), got)}, soon()).message(), "ok");
    EXPECT_TRUE(is_part(got, all, kMessages - 1));
    EXPECT_EQ(exchange(*transport, {send(peer, tag(902), token)}, soon()).message(), "ok");
    EXPECT_EQ(exchange(*transport, {recv(peer, tag(900), token)}, soon()).message(), "ok");
    const auto i = std::to_integer<std::uint64_t>(token[0]);
    receive_the_fresh_one(*transport, tag(i), all, i, kMessage);
    EXPECT_EQ(exchange(*transport, {send(peer, tag(901), token)}, soon()).message(), "ok");
  });
}

// Each of its receives asks for a message that waits, and is cancelled.
TEST_P(TransportLaws, AReceiveThatIsCancelledKeepsNothing) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    Bytes all = all_messages(*transport), got(kMessage), token(1);
    const PeakMemory memory;
    if (transport->rank() == 0) {
      const std::vector<Ticket> tickets = send_ahead(*transport, peer, all);
      EXPECT_EQ(exchange(*transport, {recv(peer, tag(900), token)}, soon()).message(), "ok");
      return cancel_all(*transport, tickets);
    }
    idle(*transport, kLate);
    for (std::uint64_t i = kMessages; i-- > 0;) {
      const Ticket ticket = post(*transport, {recv(peer, tag(i), got)});
      for (std::uint64_t turns = 0; turns < 2 + i % 8; ++turns) (void)transport->progress();
      transport->cancel(ticket);
      const Status status = settle(*transport, ticket, soon());
      ASSERT_TRUE(status.ok() || status.code() == Code::kCancelled) << status.message();
    }
    idle(*transport, kLate);
    EXPECT_LT(memory.growth(), kMostGrowth);
    EXPECT_EQ(exchange(*transport, {send(peer, tag(900), token)}, soon()).message(), "ok");
  });
}

// Whether a message is sent before its receive is posted, as far as the transport sends any so.
bool goes_ahead(Transport& transport, int peer, Tag name, Bytes& all) {
  if (transport.rank() == 1) {
    idle(transport, kLate);
    const Transfer late = part(Transfer::Kind::kRecv, peer, name, all, 0, kMiB);
    EXPECT_EQ(exchange(transport, {late}, deadline_in(20)).message(), "ok");
    return true;
  }
  const Ticket ticket = post(transport, {part(Transfer::Kind::kSend, peer, name, all, 0, kMiB)});
  idle(transport, kLate / 2);
  const std::optional<Status> before = transport.poll(ticket);
  const Status status = before ? *before : settle(transport, ticket, deadline_in(20));
  EXPECT_EQ(status.message(), "ok");
  return before.has_value();
}

// Both cancel, at some moment, while messages of theirs are in every stage.
TEST_P(TransportLaws, CancelledMessagesGiveTheirRoomBack) {
  constexpr int kRounds = 5;
  // With checksums a message is two of a tag, of which one alone may be cancelled: what follows
  // under that tag is none any more.
  const bool alone = GetParam().name != "checked";
  on_ranks(2, [alone](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    const bool sends = transport->rank() == 0;
    Bytes all = all_messages(*transport), token(1);
    const bool before = goes_ahead(*transport, peer, tag(800), all);
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Ticket> tickets;
      std::vector<Bytes> got(kMessages / 4, Bytes(sends ? 0 : kMiB));
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        const Tag name = tag(alone ? i : 2000 + static_cast<std::uint64_t>(round) * kMessages + i);
        if (sends) {
          tickets.push_back(
              post(*transport, {part(Transfer::Kind::kSend, peer, name, all, i, kMiB)}));
        } else if (i % 4 == 0) {
          tickets.push_back(post(*transport, {recv(peer, name, got[i / 4])}));
        }
      }
      for (int turn = 0; turn < 20 * round; ++turn) (void)transport->progress();
      ASSERT_NO_FATAL_FAILURE(cancel_all(*transport, tickets));
      const Transfer over = sends ? recv(peer, tag(900), token) : send(peer, tag(900), token);
      ASSERT_EQ(exchange(*transport, {over}, soon()).message(), "ok");
      tickets.clear();
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        const Tag name = tag(alone ? i : 1000 + i);
        if (sends) {
          tickets.push_back(
              post(*transport, {part(Transfer::Kind::kSend, peer, name, all, kMessages, kMiB)}));
        } else {
          ASSERT_NO_FATAL_FAILURE(receive_the_fresh_one(*transport, name, all, i, kMiB));
        }
      }
      for (const Ticket ticket : tickets) {
        ASSERT_EQ(settle(*transport, ticket, deadline_in(20)).message(), "ok");
      }
    }
    const bool after = goes_ahead(*transport, peer, tag(801), all);
    EXPECT_TRUE(after == before || !alone);
  });
}

// Rank 1 of 3 ends while messages to it wait: they end, and rank 2 gets its own.
void waiting_messages_end(const TransportBackend& backend, Fate fate) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    Bytes token(1);
    if (transport->rank() > 0) {
      ASSERT_EQ(exchange(*transport, {recv(0, tag(901), token)}, deadline_in(20)).message(), "ok");
    }
    // Rank 1 must not end while rank 2 is still connecting to it.
    if (transport->rank() > 0) {
      const Transfer step =
          transport->rank() == 1 ? recv(2, tag(902), token) : send(1, tag(902), token);
      ASSERT_EQ(exchange(*transport, {step}, deadline_in(20)).message(), "ok");
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
