#include "tests/laws/transport/transport_laws.h"

#include <atomic>
#include <thread>

#include "tests/laws/transport/transport_steps.h"
#include "tests/support/process_ranks.h"

namespace gradwire::laws {
namespace {

constexpr std::size_t kMiB = 1 << 20;

TEST_P(TransportLaws, EverySizeArrivesBothWays) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int peer = 1 - transport->rank();
    std::uint64_t operation = 0;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{7},
                                   std::size_t{65537}, 64 * kMiB, std::size_t{0}}) {
      Bytes mine =
          pattern(size, 10 + static_cast<std::uint64_t>(transport->rank()), transport.get());
      Bytes theirs(size);
      const Tag name = tag(++operation);
      const Ticket ticket = post(*transport, {send(peer, name, mine), recv(peer, name, theirs)});
      ASSERT_EQ(settle(*transport, ticket, soon()).message(), "ok") << size << " bytes";
      const auto seed = 10 + static_cast<std::uint64_t>(peer);
      EXPECT_TRUE(theirs == pattern(size, seed, transport.get())) << size;
    }
  });
}

TEST_P(TransportLaws, ManyInFlight) {
  constexpr int kCount = 1000;
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const auto me = static_cast<std::uint64_t>(transport->rank());
    const int peer = 1 - transport->rank();
    std::vector<Bytes> out(kCount), in(kCount);
    std::vector<Ticket> tickets;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      out[i] = pattern(64 + i % 50, me * kCount + i);
      tickets.push_back(post(*transport, {send(peer, tag(i), out[i])}));
    }
    for (std::uint64_t i = kCount; i-- > 0;) {  // the other way round: tags decide, not time
      in[i].resize(64 + i % 50);
      tickets.push_back(post(*transport, {recv(peer, tag(i), in[i])}));
    }
    for (const Ticket ticket : tickets) {
      ASSERT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    }
    for (std::uint64_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(in[i] == pattern(64 + i % 50, (1 - me) * kCount + i)) << i;
    }
  });
}

TEST_P(TransportLaws, EqualTagsKeepTheirOrder) {
  constexpr std::uint64_t kCount = 200;
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    std::vector<Bytes> data(kCount);
    std::vector<Ticket> tickets;
    for (std::uint64_t i = 0; i < kCount; ++i) {
      // Small and large in turn: a protocol for large messages must not overtake or fall behind.
      const std::size_t size = i % 5 == 0 ? 100'000 : 8 + i;
      data[i] = transport->rank() == 0 ? pattern(size, i) : Bytes(size);
      const Transfer transfer =
          transport->rank() == 0 ? send(1, tag(3), data[i]) : recv(0, tag(3), data[i]);
      tickets.push_back(post(*transport, {transfer}));
    }
    for (const Ticket ticket : tickets) {
      ASSERT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    }
    for (std::uint64_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(data[i] == pattern(data[i].size(), i)) << i;
    }
  });
}

// Gathered or not, messages arrive whole and in order, to each of several ranks.
TEST_P(TransportLaws, WhatIsGatheredArrives) {
  constexpr std::uint64_t kCount = 100;
  on_ranks(3, [](std::unique_ptr<Transport> transport) {
    const int me = transport->rank();
    std::vector<Bytes> out(kCount), in(2 * kCount);
    std::vector<Ticket> tickets;
    for (std::uint64_t i = 0; i < 2 * kCount; ++i) {
      in[i].resize(i % 10 < 2 ? 100'000 : 8 + i / 2);
      tickets.push_back(
          post(*transport, {recv((me + 1 + static_cast<int>(i % 2)) % 3, tag(3), in[i])}));
    }
    for (std::uint64_t i = 0; i < kCount; ++i) {
      if (i % 30 == 0) transport->gather(true);
      out[i] = pattern(i % 5 == 0 ? 100'000 : 8 + i, i, transport.get());
      for (const int step : {1, 2}) {
        tickets.push_back(post(*transport, {send((me + step) % 3, tag(3), out[i])}));
      }
      if (i % 30 == 20) transport->gather(false);
    }
    transport->gather(false);
    for (const Ticket ticket : tickets) {
      ASSERT_EQ(settle(*transport, ticket, soon()).message(), "ok");
    }
    for (std::uint64_t i = 0; i < 2 * kCount; ++i) {
      ASSERT_TRUE(in[i] == pattern(in[i].size(), i / 2)) << i;
    }
  });
}

TEST_P(TransportLaws, RingsOfAnySize) {
  for (const int size : {1, 2, 3, 5}) {
    on_ranks(size, [](std::unique_ptr<Transport> transport) {
      const int rank = transport->rank();
      const int count = transport->size();
      const int next = (rank + 1) % count;
      const int previous = (rank + count - 1) % count;
      for (std::uint64_t step = 0; step < 20; ++step) {
        Bytes out = pattern(3000, static_cast<std::uint64_t>(rank) << 8 | step);
        Bytes in(3000);
        ASSERT_EQ(exchange(*transport, {send(next, tag(step), out), recv(previous, tag(step), in)},
                           soon())
                      .message(),
                  "ok");
        ASSERT_TRUE(in == pattern(3000, static_cast<std::uint64_t>(previous) << 8 | step));
      }
      EXPECT_FALSE(transport->lost().has_value());
    });
  }
}

TEST_P(TransportLaws, MessagesToOneself) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const int self = transport->rank();
    for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{300'000}}) {
      Bytes first = pattern(size, 1), second = pattern(size, 2), a(size), b(size);
      const Ticket early =
          post(*transport, {send(self, tag(1), first), send(self, tag(1), second)});
      const Ticket late = post(*transport, {recv(self, tag(1), a), recv(self, tag(1), b)});
      ASSERT_EQ(settle(*transport, late, soon()).message(), "ok");
      ASSERT_EQ(settle(*transport, early, soon()).message(), "ok");
      EXPECT_TRUE(a == first && b == second) << size;
    }
  });
}

TEST_P(TransportLaws, MemoryIsFreeOnceSettled) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const bool sender = transport->rank() == 0;
    for (const std::size_t size : {std::size_t{40}, std::size_t{9000}, 2 * kMiB}) {
      Bytes data(size);
      for (std::uint64_t i = 0; i < 10; ++i) {
        if (sender) {
          data = pattern(size, i);
          ASSERT_EQ(exchange(*transport, {send(1, tag(i), data)}, soon()).message(), "ok");
          std::fill(data.begin(), data.end(), std::byte{0xee});  // must not reach the peer
        } else {
          ASSERT_EQ(exchange(*transport, {recv(0, tag(i), data)}, soon()).message(), "ok");
          ASSERT_TRUE(data == pattern(size, i)) << size << " " << i;
        }
      }
    }
  });
}

TEST_P(TransportLaws, ShortMessagesReportTheirLength) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    std::uint64_t operation = 0;
    for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{99'999}}) {
      Bytes data = pattern(size, 5);
      Bytes room(100'000, std::byte{0x11});
      const Tag name = tag(++operation);
      if (transport->rank() == 0) {
        ASSERT_EQ(exchange(*transport, {send(1, name, data)}, soon()).message(), "ok");
        continue;
      }
      const Ticket ticket = post(*transport, {recv(0, name, room)});
      const Deadline until = soon();
      while (transport->received(ticket, 0) != size && std::chrono::steady_clock::now() < until) {
        ASSERT_TRUE(transport->progress().has_value());
        ASSERT_TRUE(transport->wait(deadline_in(0.01)).ok());
      }
      EXPECT_EQ(transport->received(ticket, 0), size);
      ASSERT_EQ(settle(*transport, ticket, soon()).message(), "ok");
      EXPECT_TRUE(std::equal(data.begin(), data.end(), room.begin()));
      EXPECT_EQ(room[size], std::byte{0x11});  // nothing behind the message
    }
  });
}

TEST_P(TransportLaws, TooLongAMessageIsAMismatch) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    for (const std::size_t size : {std::size_t{9}, std::size_t{70'000}, 3 * kMiB}) {
      Bytes data = pattern(size, 1);
      Bytes room(size - 1);
      if (transport->rank() == 0) {
        ASSERT_EQ(exchange(*transport, {send(1, tag(1), data)}, soon()).message(), "ok");
        ASSERT_EQ(exchange(*transport, {send(1, tag(2), data)}, soon()).message(), "ok");
      } else {
        EXPECT_EQ(exchange(*transport, {recv(0, tag(1), room)}, soon()).code(),
                  Code::kRankMismatch);
        room.resize(size);  // the next message is none the worse for it
        EXPECT_EQ(exchange(*transport, {recv(0, tag(2), room)}, soon()).message(), "ok");
        EXPECT_TRUE(room == data);
      }
    }
  });
}

TEST_P(TransportLaws, ACancelledReceiveSwallowsNothing) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    Bytes data = pattern(500, 1), wrong(500), right(500), token(1);
    if (transport->rank() == 0) {
      ASSERT_EQ(exchange(*transport, {recv(1, tag(9), token)}, soon()).message(), "ok");
      ASSERT_EQ(exchange(*transport, {send(1, tag(1), data)}, soon()).message(), "ok");
      return;
    }
    const Ticket ticket = post(*transport, {recv(0, tag(1), wrong)});
    EXPECT_FALSE(transport->poll(ticket).has_value());
    transport->cancel(ticket);
    EXPECT_EQ(settle(*transport, ticket, soon()).code(), Code::kCancelled);
    ASSERT_EQ(exchange(*transport, {send(0, tag(9), token)}, soon()).message(), "ok");
    ASSERT_EQ(exchange(*transport, {recv(0, tag(1), right)}, soon()).message(), "ok");
    EXPECT_TRUE(right == data);
    EXPECT_TRUE(wrong == Bytes(500));
  });
}

TEST_P(TransportLaws, NonsenseIsRefused) {
  on_ranks(1, [](std::unique_ptr<Transport> transport) {
    Bytes data(4);
    for (const int peer : {-1, 1}) {
      const Transfer transfer = send(peer, tag(1), data);
      EXPECT_EQ(transport->post({&transfer, 1}).error().code(), Code::kInvalidArgument);
    }
    Transfer on_gpu = send(0, tag(1), data);
    on_gpu.device.space = MemorySpace::kCuda;
    if (!transport->caps().cuda_memory) {
      EXPECT_EQ(transport->post({&on_gpu, 1}).error().code(), Code::kInvalidArgument);
    }
    EXPECT_EQ(transport->poll(Ticket{12345})->code(), Code::kInvalidArgument);
  });
}

TEST_P(TransportLaws, AnEmptyBatchSettles) {
  on_ranks(1, [](std::unique_ptr<Transport> transport) {
    EXPECT_EQ(exchange(*transport, {}, soon()).message(), "ok");
  });
}

TEST_P(TransportLaws, AnotherThreadEndsAWait) {
  on_ranks(1, [](std::unique_ptr<Transport> transport) {
    std::atomic<bool> told = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      told = true;
      transport->wake();
    });
    const Deadline until = soon();
    while (!told && std::chrono::steady_clock::now() < until) {
      ASSERT_TRUE(transport->wait(until).ok());
    }
    EXPECT_LT(std::chrono::steady_clock::now(), until);
    other.join();
  });
}

// An engine without operations looks ten times a second, and answers what others ask meanwhile.
TEST_P(TransportLaws, ARankThatIsDrivenSeldomHearsNotesAtOnce) {
  constexpr int kNotes = 5;
  constexpr int kTurns = 4;
  const ProcessCount told, heard;
  on_ranks(2, [&](std::unique_ptr<Transport> transport) {
    const Bytes note(1);
    for (int i = 1; i <= kNotes; ++i) {
      if (transport->rank() == 0) {
        transport->tell(1, note);
        idle(*transport, 0.05);
        told.come();
        ASSERT_TRUE(heard.await(i, 20)) << i;
        continue;
      }
      ASSERT_TRUE(told.await(i, 20)) << i;
      bool came = false;
      for (int turn = 0; turn < kTurns && !came; ++turn) {
        ASSERT_TRUE(transport->progress().has_value());
        came = !transport->take_notes().empty();
        if (!came) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      EXPECT_TRUE(came) << "note " << i;
      heard.come();
    }
  });
}

TEST_P(TransportLaws, BytesAndMessagesAreCounted) {
  on_ranks(2, [](std::unique_ptr<Transport> transport) {
    const TransportStats before = transport->stats();
    Bytes out(1000), in(1000);
    const int peer = 1 - transport->rank();
    ASSERT_EQ(
        exchange(*transport, {send(peer, tag(1), out), recv(peer, tag(1), in)}, soon()).message(),
        "ok");
    const TransportStats after = transport->stats();
    // A heartbeat may have come in between; it is small.
    EXPECT_GE(after.bytes_sent - before.bytes_sent, 1000u);
    EXPECT_LT(after.bytes_sent - before.bytes_sent, 2000u);
    EXPECT_GE(after.bytes_received - before.bytes_received, 1000u);
    EXPECT_LT(after.bytes_received - before.bytes_received, 2000u);
    EXPECT_GE(after.messages_sent - before.messages_sent, 1u);
    EXPECT_GE(after.messages_received - before.messages_received, 1u);
  });
}

}  // namespace
}  // namespace gradwire::laws
