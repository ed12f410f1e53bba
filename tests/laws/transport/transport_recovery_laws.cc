// The laws of Transport about going on after a loss: notes, sever() and rebuild().
#include <sched.h>

#include <algorithm>
#include <string>

#include "tests/laws/transport/transport_laws.h"
#include "tests/laws/transport/transport_steps.h"
#include "tests/support/fails.h"

namespace gradwire::laws {
namespace {

Bytes bytes_of(const std::string& text) {
  Bytes bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

// Drives the transport until a note comes; one of rank -1 at the deadline.
Note next_note(Transport& transport, std::vector<Note>& kept, Deadline until) {
  while (kept.empty() && std::chrono::steady_clock::now() < until) {
    if (!transport.progress().has_value()) break;
    for (Note& note : transport.take_notes()) kept.push_back(std::move(note));
    if (kept.empty() && !transport.wait(until).ok()) break;
  }
  if (kept.empty()) return {};
  Note first = kept.front();
  kept.erase(kept.begin());
  return first;
}

// All tell each other that they are there, by notes.
void meet_by_notes(Transport& transport, const std::vector<int>& ranks, std::vector<Note>& kept,
                   Deadline until) {
  for (const int peer : ranks) {
    if (peer != transport.rank()) transport.tell(peer, bytes_of("here"));
  }
  for (std::size_t met = 1; met < ranks.size(); ++met) {
    const Note note = next_note(transport, kept, until);
    EXPECT_EQ(note.bytes, bytes_of("here"));
  }
}

TEST_P(TransportLaws, NotesPassBesideTheDataInOrder) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    const int other = 1 - transport->rank();
    Bytes in(100), out = pattern(1 << 20, 1), large(Transport::kMostNoteBytes);
    const Ticket stuck = post(*transport, {recv(other, tag(1), in)});  // that nothing answers yet
    for (int i = 0; i < 10; ++i) transport->tell(other, bytes_of("note " + std::to_string(i)));
    transport->tell(other, large);
    std::vector<Note> kept;
    for (int i = 0; i < 10; ++i) {
      const Note note = next_note(*transport, kept, soon());
      EXPECT_EQ(note.from, other);
      EXPECT_EQ(note.bytes, bytes_of("note " + std::to_string(i)));
    }
    EXPECT_EQ(next_note(*transport, kept, soon()).bytes.size(), Transport::kMostNoteBytes);
    Bytes end(100);
    EXPECT_EQ(exchange(*transport, {send(other, tag(1), end)}, soon()).message(), "ok");
    EXPECT_EQ(settle(*transport, stuck, soon()).message(), "ok");
  });
}

TEST_P(TransportLaws, SeverEndsWhatIsOpenAtOnce) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    const int other = 1 - transport->rank();
    Bytes in(1 << 20), out(1 << 20);
    const Ticket receive = post(*transport, {recv(other, tag(1), in)});
    const Ticket sending = post(*transport, {send(other, tag(2), out)});
    ASSERT_TRUE(transport->sever());
    EXPECT_TRUE(transport->poll(receive).has_value());
    EXPECT_TRUE(transport->poll(sending).has_value());
    const Status later = exchange(*transport, {send(other, tag(3), out)}, soon());
    EXPECT_FALSE(later.ok());
    // Notes still pass, and nobody is lost.
    std::vector<Note> kept;
    meet_by_notes(*transport, {0, 1}, kept, soon());
    ASSERT_EQ(transport->rebuild(std::vector{0, 1}, 1, soon()).message(), "ok");
    EXPECT_FALSE(transport->lost().has_value());
    Bytes fresh = pattern(300'000, 7), back(300'000);
    EXPECT_EQ(exchange(*transport, {send(other, tag(1), fresh), recv(other, tag(1), back)}, soon())
                  .message(),
              "ok");
    EXPECT_EQ(back, fresh);
  });
}

// Rank 2 of 4 ends; the others go on, and meet nothing of what was sent before.
void survivors_rebuild(const TransportBackend& backend, Fate fate) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    std::vector<Note> kept;
    meet_by_notes(*transport, {0, 1, 2, 3}, kept, deadline_in(20));
    if (transport->rank() == 2) return backend.end(*transport, fate);
    const std::vector<int> survivors{0, 1, 3};
    const int rank = transport->rank();
    Bytes stale = pattern(5000, 1), left = pattern(5000, 2), in(5000);
    const int next = rank == 0 ? 1 : rank == 1 ? 3 : 0;
    const int before = rank == 0 ? 3 : rank == 1 ? 0 : 1;
    const Ticket never_taken = post(*transport, {send(next, tag(5), stale)});
    EXPECT_EQ(first_lost(*transport, deadline_in(backend.notice_seconds)), 2);
    const auto lost = transport->all_lost();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].rank, 2);
    EXPECT_TRUE(lost[0].certain) << lost[0].reason;  // killed or stopped: it lives on nowhere
    transport->cancel(never_taken);
    (void)settle(*transport, never_taken, deadline_in(2));
    meet_by_notes(*transport, survivors, kept, deadline_in(20));
    ASSERT_EQ(transport->rebuild(survivors, 5, deadline_in(20)).message(), "ok");
    EXPECT_FALSE(transport->lost().has_value());
    for (const LostPeer& peer : transport->all_lost()) {  // one may have done all and closed
      EXPECT_NE(peer.rank, 2) << peer.reason;
    }
    EXPECT_EQ(
        exchange(*transport, {send(next, tag(5), left), recv(before, tag(5), in)}, deadline_in(20))
            .message(),
        "ok");
    EXPECT_EQ(in, left);
    EXPECT_EQ(exchange(*transport, {send(2, tag(6), left)}, deadline_in(5)).code(),
              Code::kPeerLost);
  };
  backend.run(4, body, {{2, fate}}, 100);
}

TEST_P(TransportLaws, SurvivorsOfAKilledRankRebuild) {
  survivors_rebuild(GetParam(), Fate::kKilled);
}
TEST_P(TransportLaws, SurvivorsOfAStoppedRankRebuild) {
  survivors_rebuild(GetParam(), Fate::kStopped);
}

// Of nine ranks most have had no connection with each other.
TEST_P(TransportLaws, SurvivorsThatNeverMetReachEachOther) {
  constexpr int kRanks = 9, kLostRank = 4;
  const TransportBackend& backend = GetParam();
  const auto body = [&](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    if (rank == kLostRank) return backend.end(*transport, Fate::kKilled);
    EXPECT_EQ(first_lost(*transport, deadline_in(backend.notice_seconds)), kLostRank);
    const std::vector<int> survivors{0, 1, 2, 3, 5, 6, 7, 8};
    ASSERT_EQ(transport->rebuild(survivors, 5, soon()).message(), "ok");
    Bytes out = pattern(5000, static_cast<std::uint64_t>(rank));
    std::vector<Bytes> in(kRanks, Bytes(5000));
    std::vector<Ticket> tickets;
    for (const int peer : survivors) {
      if (peer == rank) continue;
      Bytes& room = in[static_cast<std::size_t>(peer)];
      tickets.push_back(post(*transport, {send(peer, tag(1), out), recv(peer, tag(1), room)}));
    }
    for (const Ticket ticket : tickets) {
      EXPECT_EQ(settle(*transport, ticket, deadline_in(30)).message(), "ok");
    }
    for (const int peer : survivors) {
      if (peer == rank) continue;
      EXPECT_EQ(in[static_cast<std::size_t>(peer)], pattern(5000, static_cast<std::uint64_t>(peer)))
          << peer;
    }
  };
  backend.run(kRanks, body, {{kLostRank, Fate::kKilled}}, 100);
}

// Of what is tried and does not come about nothing is left: ranks 0 and 1 begin a generation that
// rank 2 does not come to, then all three begin the next.
TEST_P(TransportLaws, ARebuildThatFailedIsTriedAgainByTheSame) {
  on_ranks(3, [](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    const std::vector<int> all{0, 1, 2};
    const int rank = transport->rank();
    std::vector<Note> kept;
    meet_by_notes(*transport, all, kept, soon());
    ASSERT_TRUE(transport->sever());
    if (rank != 2) {
      const Status first = transport->rebuild(all, 1, deadline_in(0.5));
      EXPECT_TRUE(first.ok() || first.code() == Code::kTimedOut) << first.message();
      Bytes stale = pattern(5000, 77);
      if (first.ok()) {
        const Ticket ticket = post(*transport, {send(1 - rank, tag(5), stale)});
        transport->cancel(ticket);
        (void)settle(*transport, ticket, soon());
      }
    }
    meet_by_notes(*transport, all, kept, soon());
    ASSERT_EQ(transport->rebuild(all, 2, soon()).message(), "ok");
    EXPECT_TRUE(transport->all_lost().empty());
    for (const int step : {1, 2}) {
      const int to = (rank + step) % 3, from = (rank + 3 - step) % 3;
      Bytes out = pattern(5000, static_cast<std::uint64_t>(rank)), in(5000);
      EXPECT_EQ(
          exchange(*transport, {send(to, tag(5), out), recv(from, tag(5), in)}, soon()).message(),
          "ok");
      EXPECT_EQ(in, pattern(5000, static_cast<std::uint64_t>(from))) << "from rank " << from;
    }
    EXPECT_FALSE(transport->lost().has_value());
    meet_by_notes(*transport, all, kept, soon());  // nobody leaves while another one works
  });
}

// Rank 3 of 4 ends while the others rebuild with it; then they do without it.
void fewer_rebuild(const TransportBackend& backend, Fate fate) {
  const auto body = [&](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    std::vector<Note> kept;
    meet_by_notes(*transport, {0, 1, 2, 3}, kept, deadline_in(20));
    if (transport->rank() == 3) return backend.end(*transport, fate);
    ASSERT_TRUE(transport->sever());
    const Status first = transport->rebuild(std::vector{0, 1, 2, 3}, 1, deadline_in(30));
    EXPECT_TRUE(first.ok() || first.code() == Code::kPeerLost) << first.message();
    const Deadline until = deadline_in(backend.notice_seconds);
    while (transport->all_lost().empty() && std::chrono::steady_clock::now() < until) {
      ASSERT_TRUE(transport->progress().has_value());
      ASSERT_TRUE(transport->wait(deadline_in(0.05)).ok());
    }
    const auto lost = transport->all_lost();
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].rank, 3) << lost[0].reason;
    const std::vector<int> left{0, 1, 2};
    meet_by_notes(*transport, left, kept, deadline_in(20));
    ASSERT_EQ(transport->rebuild(left, 2, deadline_in(20)).message(), "ok");
    const int rank = transport->rank(), next = (rank + 1) % 3, before = (rank + 2) % 3;
    Bytes out = pattern(300'000, static_cast<std::uint64_t>(rank)), in(300'000);
    EXPECT_EQ(
        exchange(*transport, {send(next, tag(6), out), recv(before, tag(6), in)}, deadline_in(20))
            .message(),
        "ok");
    EXPECT_EQ(in, pattern(300'000, static_cast<std::uint64_t>(before)));
    EXPECT_FALSE(transport->lost().has_value());
  };
  backend.run(4, body, {{3, fate}}, 100);
}

TEST_P(TransportLaws, ARebuildThatAKilledRankEndsIsTriedAgainByFewer) {
  fewer_rebuild(GetParam(), Fate::kKilled);
}
TEST_P(TransportLaws, ARebuildThatAStoppedRankEndsIsTriedAgainByFewer) {
  fewer_rebuild(GetParam(), Fate::kStopped);
}

// What waits for its receives when ranks rebuild is never taken, and does not count any more.
TEST_P(TransportLaws, ARebuildForgetsWhatWaited) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    constexpr std::uint64_t kMessages = 40;
    const int peer = 1 - transport->rank();
    Bytes stale = pattern(1 << 20, 1), fresh = pattern(1 << 20, 2), got(1 << 20);
    std::vector<Note> kept;
    for (std::uint32_t generation = 1; generation <= 2; ++generation) {
      std::vector<Ticket> sent;
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        sent.push_back(post(*transport, {send(peer, tag(i), stale)}));
      }
      meet_by_notes(*transport, {0, 1}, kept, soon());  // all announcements are there, or nearly
      for (const Ticket ticket : sent) transport->cancel(ticket);
      for (const Ticket ticket : sent) (void)settle(*transport, ticket, soon());
      meet_by_notes(*transport, {0, 1}, kept, soon());
      ASSERT_EQ(transport->rebuild(std::vector{0, 1}, generation, soon()).message(), "ok");
      for (std::uint64_t i = 0; i < kMessages; ++i) {
        const Status both =
            exchange(*transport, {send(peer, tag(i), fresh), recv(peer, tag(i), got)}, soon());
        ASSERT_EQ(both.message(), "ok") << i;
        ASSERT_TRUE(got == fresh) << i;
      }
    }
  });
}

// As many versions of the members as it takes for what tells them apart to come round; the one rank
// has often begun the next version, and sends, while the other has not left the last.
TEST_P(TransportLaws, RebuildsGoOnWithoutEnd) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    const int peer = 1 - transport->rank();
    for (std::uint32_t generation = 1; generation <= 140; ++generation) {
      if (static_cast<int>(generation % 2) == transport->rank()) {
        const Deadline late = deadline_in(0.001);
        while (std::chrono::steady_clock::now() < late) ASSERT_TRUE(transport->wait(late).ok());
      }
      ASSERT_EQ(transport->rebuild(std::vector{0, 1}, generation, soon()).message(), "ok");
      Bytes out = pattern(5000, generation), in(5000);
      const Status both =
          exchange(*transport, {send(peer, tag(1), out), recv(peer, tag(1), in)}, soon());
      ASSERT_EQ(both.message(), "ok") << generation;
      ASSERT_TRUE(in == out) << generation;
    }
  });
}

// Ranks that are made while this lives may run on one processor, the same for all.
class OneProcessor {
 public:
  OneProcessor() {
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
      if (CPU_ISSET(i, &before_)) CPU_SET(i, &one);
    }
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneProcessor() { (void)sched_setaffinity(0, sizeof before_, &before_); }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_;
};

// More ranks than processors wait otherwise (docs/internals/threads.md), until so few are left that
// each has one.
TEST_P(TransportLaws, TwoRanksOnOneProcessorAreCrowdedAndTheLastIsNot) {
  const OneProcessor alone;
  const auto body = [&](std::unique_ptr<Transport> transport) {
    EXPECT_TRUE(transport->is_crowded());
    std::vector<Note> kept;
    meet_by_notes(*transport, {0, 1}, kept, soon());
    if (transport->rank() == 1) return GetParam().end(*transport, Fate::kKilled);
    EXPECT_EQ(first_lost(*transport, deadline_in(GetParam().notice_seconds)), 1);
    ASSERT_EQ(transport->rebuild(std::vector{0}, 1, soon()).message(), "ok");
    EXPECT_FALSE(transport->is_crowded());
  };
  on_ranks(2, body, {{1, Fate::kKilled}});
}

// A reason that is no loss ends with the rebuild.
TEST_P(TransportLaws, ARankThatGivesUpIsStillThere) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    ASSERT_TRUE(transport->caps().notes);
    if (transport->rank() == 0) {
      transport->announce({.rank = 0, .reason = "does not want to", .gone = false});
    }
    EXPECT_EQ(first_lost(*transport, soon()), 0);
    EXPECT_FALSE(transport->lost()->gone);
    EXPECT_NE(transport->lost()->reason.find("does not want to"), std::string::npos);
    EXPECT_TRUE(transport->all_lost().empty());
    std::vector<Note> kept;
    meet_by_notes(*transport, {0, 1}, kept, soon());
    ASSERT_EQ(transport->rebuild(std::vector{0, 1}, 1, soon()).message(), "ok");
    EXPECT_FALSE(transport->lost().has_value());
    const int other = 1 - transport->rank();
    Bytes out(10), in(10);
    EXPECT_EQ(
        exchange(*transport, {send(other, tag(1), out), recv(other, tag(1), in)}, soon()).message(),
        "ok");
  });
}

}  // namespace
}  // namespace gradwire::laws
