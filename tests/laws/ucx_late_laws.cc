// UCX's connections between ranks that are no neighbours: made when they are needed.
#include <algorithm>
#include <vector>

#include "comm/ucx/ucx_transport.h"
#include "tests/laws/process_backend.h"
#include "tests/laws/transport_steps.h"

namespace gradwire::laws {
namespace {

// With connections that are made when they are needed, whichever the library is: UCX 1.13 may abort
// ranks that end meanwhile, which none does here.
TransportBackend late() {
  return process_backend("late", [](const Rendezvous& rendezvous) {
    return make_ucx_transport(
        rendezvous,
        {.heartbeat_seconds = 0.25, .liveness_seconds = 2, .connects_late = true, .log = {}});
  });
}

// Each with each other.
void exchange_with_all(Transport& transport, std::uint64_t number) {
  const int rank = transport.rank();
  Bytes out = pattern(5000, static_cast<std::uint64_t>(rank));
  std::vector<Bytes> in(static_cast<std::size_t>(transport.size()), Bytes(5000));
  std::vector<Ticket> tickets;
  for (int peer = 0; peer < transport.size(); ++peer) {
    Bytes& room = in[static_cast<std::size_t>(peer)];
    tickets.push_back(
        post(transport, {send(peer, tag(number), out), recv(peer, tag(number), room)}));
  }
  for (const Ticket ticket : tickets) {
    EXPECT_EQ(settle(transport, ticket, deadline_in(30)).message(), "ok");
  }
  for (int peer = 0; peer < transport.size(); ++peer) {
    EXPECT_EQ(in[static_cast<std::size_t>(peer)], pattern(5000, static_cast<std::uint64_t>(peer)))
        << peer;
  }
}

TEST(UcxLateConnections, AreMadeInEveryVersionOfTheTable) {
  const auto body = [](std::unique_ptr<Transport> transport) {
    // At first with its neighbours alone: two to each side.
    EXPECT_EQ(std::ranges::count(transport->describe(), ','), 3) << transport->describe();
    exchange_with_all(*transport, 1);
    ASSERT_TRUE(transport->sever());
    ASSERT_EQ(
        transport->rebuild(std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8}, 3, deadline_in(20)).message(),
        "ok");
    exchange_with_all(*transport, 2);
    EXPECT_FALSE(transport->lost().has_value());
  };
  late().run(9, body, {}, 100);
}

}  // namespace
}  // namespace gradwire::laws
