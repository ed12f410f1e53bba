// The laws of Transport about ranks that go: killed, stopped, or after a goodbye.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>

#include "tests/laws/transport/transport_laws.h"
#include "tests/laws/transport/transport_steps.h"
#include "tests/support/fails.h"

namespace gradwire::laws {
namespace {

// All ranks have met: connections exist and nobody is early.
void meet(Transport& transport) {
  Bytes token(1), echo(1);
  for (int peer = 0; peer < transport.size(); ++peer) {
    if (peer == transport.rank()) continue;
    const Status met = exchange(
        transport, {send(peer, tag(900), token), recv(peer, tag(900), echo)}, deadline_in(20));
    ASSERT_EQ(met.message(), "ok");
  }
}

// Rank 1 of 3 ends as `fate` says while the others receive from it, one of them halfway into a
// large message; they must learn who it was, and still reach each other.
void survivors_name_the_lost_rank(const TransportBackend& backend, Fate fate) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    meet(*transport);
    if (transport->rank() == 1) return backend.end(*transport, fate);
    Bytes in(100'000), out(100'000);
    const Ticket receive = post(*transport, {recv(1, tag(1), in)});
    const Status outcome = settle(*transport, receive, deadline_in(backend.notice_seconds));
    EXPECT_EQ(outcome.code(), Code::kPeerLost) << outcome.message();
    ASSERT_TRUE(transport->lost().has_value());
    EXPECT_EQ(transport->lost()->rank, 1) << transport->lost()->reason;
    for (const Transfer& later : {recv(1, tag(2), in), send(1, tag(2), out)}) {
      EXPECT_EQ(exchange(*transport, {later}, deadline_in(1)).code(), Code::kPeerLost);
    }
    const int other = 2 - transport->rank();
    EXPECT_EQ(
        exchange(*transport, {send(other, tag(3), out), recv(other, tag(3), in)}, deadline_in(20))
            .message(),
        "ok");
    EXPECT_EQ(transport->lost()->rank, 1);
  };
  backend.run(3, body, {{1, fate}}, 100);
}

TEST_P(TransportLaws, AKilledRankIsNamed) {
  survivors_name_the_lost_rank(GetParam(), Fate::kKilled);
}
TEST_P(TransportLaws, AStoppedRankIsNamed) {
  survivors_name_the_lost_rank(GetParam(), Fate::kStopped);
}

// What ranks set and see, be they threads or processes.
class Flags {
 public:
  enum Which { kClosed, kOver };
  Flags()
      : page_(::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0)),
        state_(new (page_) State{}) {}
  ~Flags() { ::munmap(page_, sizeof(State)); }
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;
  void set(Which which) { (*state_)[which] = true; }
  // Drives the transport until then.
  bool await(Which which, Transport& transport) const {
    for (const Deadline until = deadline_in(60); std::chrono::steady_clock::now() < until;) {
      if ((*state_)[which]) return true;
      if (!transport.progress().has_value()) return false;
      if (!transport.wait(deadline_in(0.01)).ok()) return false;
    }
    return false;
  }

 private:
  using State = std::array<std::atomic<bool>, 2>;
  void* page_;
  State* state_;
};

// Rank 4 of 9 ends before rank 0 has anything to say to it; those next to rank 4 know.
TEST_P(TransportLaws, ARankThatClosedBeforeTheyMetIsCalledClosed) {
  Flags flags;
  const auto body = [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    if (rank == 4) {
      transport.reset();
      flags.set(Flags::kClosed);
    } else if (rank == 0) {
      ASSERT_TRUE(flags.await(Flags::kClosed, *transport));
      Bytes in(10);
      const Status outcome = exchange(*transport, {recv(4, tag(1), in)}, deadline_in(20));
      EXPECT_THAT(outcome, fails(Code::kPeerLost, "rank 4", "closed"));
      flags.set(Flags::kOver);
    } else {
      EXPECT_TRUE(flags.await(Flags::kOver, *transport));
    }
  };
  GetParam().run(9, body, {}, 100);
}

// A batch that names a lost rank settles as a whole, its part with a living rank included.
TEST_P(TransportLaws, ABatchWithALostRankSettles) {
  const TransportBackend& backend = GetParam();
  const auto body = [&](std::unique_ptr<Transport> transport) {
    meet(*transport);
    if (transport->rank() == 1) return backend.end(*transport, Fate::kKilled);
    Bytes from_lost(10), from_living(10), token(1);
    if (transport->rank() == 0) {
      const Ticket ticket =
          post(*transport, {recv(1, tag(1), from_lost), recv(2, tag(1), from_living)});
      EXPECT_EQ(settle(*transport, ticket, deadline_in(backend.notice_seconds)).code(),
                Code::kPeerLost);
      EXPECT_EQ(exchange(*transport, {send(2, tag(5), token)}, deadline_in(20)).message(), "ok");
    } else {
      EXPECT_EQ(exchange(*transport, {recv(0, tag(5), token)}, deadline_in(20)).message(), "ok");
    }
  };
  backend.run(3, body, {{1, Fate::kKilled}}, 100);
}

// Sends that nobody takes end too, when their peer is lost.
TEST_P(TransportLaws, SendsToAStoppedRankSettle) {
  const TransportBackend& backend = GetParam();
  const auto body = [&](std::unique_ptr<Transport> transport) {
    meet(*transport);
    if (transport->rank() == 1) return backend.end(*transport, Fate::kStopped);
    Bytes large(8 << 20);
    const Status outcome =
        exchange(*transport, {send(1, tag(1), large)}, deadline_in(backend.notice_seconds));
    EXPECT_EQ(outcome.code(), Code::kPeerLost) << outcome.message();
    EXPECT_EQ(first_lost(*transport, deadline_in(1)), 1);
  };
  backend.run(2, body, {{1, Fate::kStopped}}, 100);
}

// The first to notice tells the others and goes. They must blame the stopped rank, not the one that
// left because of it, though they wait for the latter only.
void leavers_are_not_blamed(const TransportBackend& backend, Fate fate) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    meet(*transport);
    if (transport->rank() == 1) return backend.end(*transport, fate);
    if (transport->rank() == 0) {
      EXPECT_EQ(first_lost(*transport, deadline_in(backend.notice_seconds)), 1);
      if (const auto loss = transport->lost()) transport->announce(*loss);
      return;
    }
    Bytes in(100);
    const Ticket from_leaver = post(*transport, {recv(0, tag(1), in)});
    const Status outcome = settle(*transport, from_leaver, deadline_in(backend.notice_seconds + 2));
    EXPECT_EQ(outcome.code(), Code::kPeerLost) << outcome.message();
    ASSERT_TRUE(transport->lost().has_value());
    EXPECT_EQ(transport->lost()->rank, 1) << transport->lost()->reason;
  };
  backend.run(4, body, {{1, fate}}, 100);
}

TEST_P(TransportLaws, WhoLeavesBecauseOfAKilledRankIsNotBlamed) {
  leavers_are_not_blamed(GetParam(), Fate::kKilled);
}
TEST_P(TransportLaws, WhoLeavesBecauseOfAStoppedRankIsNotBlamed) {
  leavers_are_not_blamed(GetParam(), Fate::kStopped);
}

// A rank announces a loss that only it can know of (an operation's deadline passed).
TEST_P(TransportLaws, AnAnnouncementReachesAll) {
  on_ranks(3, [](std::unique_ptr<Transport> transport) {
    meet(*transport);
    Bytes token(1);
    if (transport->rank() == 0) {
      for (const int peer : {1, 2}) {  // both have met each other too
        EXPECT_EQ(exchange(*transport, {recv(peer, tag(901), token)}, soon()).message(), "ok");
      }
      transport->announce({2, "did not join all_reduce"});
      EXPECT_EQ(first_lost(*transport, soon()), 2);
    } else {
      EXPECT_EQ(exchange(*transport, {send(0, tag(901), token)}, soon()).message(), "ok");
      EXPECT_EQ(first_lost(*transport, soon()), 2);
      ASSERT_TRUE(transport->lost().has_value());
      EXPECT_NE(transport->lost()->reason.find("did not join all_reduce"), std::string::npos)
          << transport->lost()->reason;
    }
  });
}

// Rank 0 goes on without all others, which were stopped, and are continued. Each of them finds
// itself among the lost, so that they do not go on without it, together.
TEST_P(TransportLaws, EachThatCountsForNoSideLearnsIt) {
  on_ranks(4, [](std::unique_ptr<Transport> transport) {
    meet(*transport);
    Bytes token(1);
    if (transport->rank() == 0) {
      for (const int peer : {1, 2, 3}) {
        EXPECT_EQ(exchange(*transport, {recv(peer, tag(901), token)}, soon()).message(), "ok");
      }
      for (const int peer : {1, 2, 3}) {
        transport->announce({.rank = peer,
                             .reason = "no heartbeat for 5.0 s",
                             .certain = true,
                             .cause = LossCause::kSilence});
      }
      return idle(*transport, 0.7);
    }
    EXPECT_EQ(exchange(*transport, {send(0, tag(901), token)}, soon()).message(), "ok");
    const auto knows = [&] {
      const auto lost = transport->all_lost();
      return std::ranges::find(lost, transport->rank(), &LostPeer::rank) != lost.end();
    };
    for (const Deadline until = soon(); !knows() && std::chrono::steady_clock::now() < until;) {
      ASSERT_TRUE(transport->progress().has_value());
      ASSERT_TRUE(transport->wait(deadline_in(0.05)).ok());
    }
    EXPECT_TRUE(knows()) << "rank " << transport->rank();
    idle(*transport, 2.5);  // longer than its patience with the others
  });
}

TEST_P(TransportLaws, AGoodbyeIsNoLoss) {
  on_ranks(3, [](std::unique_ptr<Transport> transport) {
    meet(*transport);
    Bytes large = pattern(300'000, 1), small = pattern(10, 2);
    if (transport->rank() == 1) {  // sends its last messages and goes
      EXPECT_EQ(
          exchange(*transport, {send(0, tag(1), large), send(2, tag(1), small)}, soon()).message(),
          "ok");
      return;
    }
    const bool first = transport->rank() == 0;
    Bytes in(first ? large.size() : small.size());
    if (!first) {  // by now rank 1 has gone (except where a send waits for its receiver)
      const Ticket receive = post(*transport, {recv(1, tag(1), in)});
      EXPECT_EQ(settle(*transport, receive, soon()).message(), "ok");
      idle(*transport, 0.7);
    } else {
      EXPECT_EQ(exchange(*transport, {recv(1, tag(1), in)}, soon()).message(), "ok");
      idle(*transport, 0.7);
    }
    EXPECT_TRUE(in == (first ? large : small));
    EXPECT_FALSE(transport->lost().has_value()) << transport->lost()->reason;
    // The survivors do not need it, and work on.
    const int other = 2 - transport->rank();
    Bytes out(100), back(100);
    EXPECT_EQ(exchange(*transport, {send(other, tag(3), out), recv(other, tag(3), back)}, soon())
                  .message(),
              "ok");
    EXPECT_FALSE(transport->lost().has_value());
    Bytes token(1);
    const Transfer done = first ? recv(2, tag(5), token) : send(0, tag(5), token);
    EXPECT_EQ(exchange(*transport, {done}, soon()).message(), "ok");
    if (!first) return;
    // Whoever needs it now learns that it is gone.
    const Status outcome = exchange(*transport, {recv(1, tag(4), in)}, soon());
    EXPECT_THAT(outcome, fails(Code::kPeerLost, "rank 1", "closed"));
    ASSERT_TRUE(transport->lost().has_value());
    EXPECT_EQ(transport->lost()->rank, 1);
  });
}

// What was sent before the goodbye arrives after it, however late the receiver asks.
TEST_P(TransportLaws, AGoodbyeSettlesOpenReceives) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    meet(*transport);
    if (transport->rank() == 1) return;
    Bytes in(100);
    const Status outcome = exchange(*transport, {recv(1, tag(4), in)}, soon());
    EXPECT_THAT(outcome, fails(Code::kPeerLost, "rank 1", "closed"));
  });
}

}  // namespace
}  // namespace gradwire::laws
