// What connections ranks have over TCP, and what they hear of ranks with which they have none.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "comm/tcp/tcp_transport.h"
#include "tests/laws/transport/process_backend.h"
#include "tests/laws/transport/transport_steps.h"
#include "tests/support/fails.h"

namespace gradwire::laws {
namespace {

constexpr int kMany = 12;

TransportBackend backend_of_many() {
  return process_backend("loopback", [](const Rendezvous& rendezvous) {
    return make_tcp_transport(rendezvous, {.heartbeat_seconds = 0.25, .liveness_seconds = 2});
  });
}

// Of this process.
int open_sockets() {
  int count = 0;
  std::error_code gone;  // one that is closed while it is looked at
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += std::filesystem::read_symlink(entry.path(), gone).string().starts_with("socket:");
  }
  return count;
}

// Twice around from neighbour to neighbour: all have come when it returns.
void come_together(Transport& transport, std::uint64_t operation) {
  const int next = (transport.rank() + 1) % kMany;
  const int previous = (transport.rank() + kMany - 1) % kMany;
  Bytes token(1);
  for (std::uint64_t lap = 0; lap < 2; ++lap) {
    const Tag here = tag(operation + lap);
    const auto go = [&] {
      return exchange(transport, {send(next, here, token)}, deadline_in(20)).message();
    };
    if (transport.rank() == 0) {
      EXPECT_EQ(go(), "ok");
    }
    EXPECT_EQ(exchange(transport, {recv(previous, here, token)}, deadline_in(20)).message(), "ok");
    if (transport.rank() != 0) {
      EXPECT_EQ(go(), "ok");
    }
  }
}

TEST(TcpConnectionLaws, APairThatNeverTalksHasNoConnection) {
  const auto body = [](std::unique_ptr<Transport> transport) {
    come_together(*transport, 10);
    const int before = open_sockets();
    EXPECT_LT(before, 2 * (kMany - 1));
    come_together(*transport, 20);  // nobody talks while others count
    const int rank = transport->rank();
    if (rank % 6 == 0) {  // both call, at once
      Bytes in(100'000), out = pattern(100'000, 3);
      const auto outcome = exchange(
          *transport, {send(6 - rank, tag(1), out), recv(6 - rank, tag(1), in)}, deadline_in(20));
      EXPECT_EQ(outcome.message(), "ok");
      EXPECT_EQ(in, out);
    }
    come_together(*transport, 30);
    const int after = open_sockets();
    come_together(*transport, 40);  // nor leaves
    EXPECT_EQ(after - before, rank % 6 == 0 ? 2 : 0) << rank;
  };
  backend_of_many().run(kMany, body, {}, 60);
}

// The limit is lowered to what is open when another connection is wanted.
TEST(TcpConnectionLaws, DescriptorsThatRunOutAreNamed) {
  const auto body = [](std::unique_ptr<Transport> transport) {
    come_together(*transport, 10);
    if (transport->rank() == 0) {
      const int lowest = dup(0);  // the next to be had
      ASSERT_GE(lowest, 0);
      close(lowest);
      const rlimit limit{static_cast<rlim_t>(lowest), static_cast<rlim_t>(lowest)};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
      Bytes data(10);
      EXPECT_THAT(exchange(*transport, {send(6, tag(1), data)}, deadline_in(20)),
                  fails(Code::kUnsupported, "RLIMIT_NOFILE", std::to_string(lowest)));
    }
    idle(*transport, 0.5);
  };
  backend_of_many().run(kMany, body, {}, 60);
}

// Rank 9 has no connection with any but its neighbours; rank 3 waits for it.
TEST(TcpConnectionLaws, AllHearOfARankThatEndsOrStops) {
  const TransportBackend backend = backend_of_many();
  for (const Fate fate : {Fate::kKilled, Fate::kStopped}) {
    const auto body = [&](std::unique_ptr<Transport> transport) {
      come_together(*transport, 10);
      if (transport->rank() == 9) return backend.end(*transport, fate);
      if (transport->rank() == 3) {
        Bytes in(10);
        EXPECT_EQ(
            exchange(*transport, {recv(9, tag(1), in)}, deadline_in(backend.notice_seconds)).code(),
            Code::kPeerLost);
      }
      EXPECT_EQ(first_lost(*transport, deadline_in(backend.notice_seconds)), 9);
      const int other = 11 - transport->rank();
      Bytes in(10), out(10);
      if (other == 9) return idle(*transport, 0.5);
      EXPECT_EQ(
          exchange(*transport, {send(other, tag(2), out), recv(other, tag(2), in)}, deadline_in(20))
              .message(),
          "ok");
      idle(*transport, 0.5);  // who leaves at once ends what others have not received
    };
    backend.run(kMany, body, {{9, fate}}, 100);
  }
}

TEST(TcpConnectionLaws, ARankThatClosedUnheardIsLostToThoseThatNeedIt) {
  const auto body = [](std::unique_ptr<Transport> transport) {
    come_together(*transport, 10);
    if (transport->rank() == 9) return;
    Bytes data(10);
    if (transport->rank() == 3) {
      EXPECT_EQ(exchange(*transport, {recv(9, tag(1), data)}, deadline_in(20)).code(),
                Code::kPeerLost);
      EXPECT_EQ(exchange(*transport, {send(9, tag(1), data)}, deadline_in(20)).code(),
                Code::kPeerLost);
      EXPECT_EQ(exchange(*transport, {send(0, tag(2), data)}, deadline_in(20)).message(), "ok");
    } else if (transport->rank() == 0) {
      EXPECT_EQ(exchange(*transport, {recv(3, tag(2), data)}, deadline_in(20)).message(), "ok");
    } else {
      EXPECT_EQ(first_lost(*transport, deadline_in(20)), 9);
    }
  };
  backend_of_many().run(kMany, body, {}, 60);
}

}  // namespace
}  // namespace gradwire::laws
