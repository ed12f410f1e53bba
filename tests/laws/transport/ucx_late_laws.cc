// UCX's connections between ranks that are no neighbours: made when they are needed.
//
// This program's ucp_worker_create() and ucp_worker_progress() stand before UCX's: so the wire of
// control messages may be slower than that of data for as long as a test wants.
#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "comm/ucx/peers.h"
#include "comm/ucx/ucx_transport.h"
#include "comm/ucx/worker.h"
#include "tests/laws/transport/process_backend.h"
#include "tests/laws/transport/transport_steps.h"

namespace {

// Of this process, which makes one worker for data and one for control messages.
std::vector<ucp_worker_h> workers;
ucp_worker_h held = nullptr;  // takes nothing in

template <typename Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params,
                                          ucp_worker_h* worker) {
  static const auto next = real("ucp_worker_create", &ucp_worker_create);
  const ucs_status_t status = next(context, params, worker);
  if (status == UCS_OK) workers.push_back(*worker);
  return status;
}

extern "C" unsigned ucp_worker_progress(ucp_worker_h worker) {
  static const auto next = real("ucp_worker_progress", &ucp_worker_progress);
  return worker == held ? 0 : next(worker);
}

namespace gradwire::laws {
namespace {

// With connections that are made when they are needed, whichever the library is: UCX 1.13 may abort
// ranks that end meanwhile, which none does here.
TransportBackend late(double liveness_seconds = 2, bool connects_late = true) {
  return process_backend("late", [=](const Rendezvous& rendezvous) {
    return make_ucx_transport(rendezvous, {.heartbeat_seconds = 0.25,
                                           .liveness_seconds = liveness_seconds,
                                           .connects_late = connects_late,
                                           .log = {}});
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

// Rank 4 has received what rank 0 has lent it, sends something by a connection that it makes for
// that, where it connects late, and goes. Of what it says by the slow wire rank 0 hears nothing
// meanwhile.
TEST(UcxLateConnections, AMessageThatWasTakenEndsWellThoughItsReceiverGoesAtOnce) {
  constexpr int kFrom = 0;
  constexpr int kTo = 4;  // no neighbour
  const auto body = [](std::unique_ptr<Transport> transport) {
    const int rank = transport->rank();
    if (rank != kFrom && rank != kTo) return;
    const int other = rank == kFrom ? kTo : kFrom;
    Bytes first = pattern(10, 1), large = pattern(4 << 20, 2), last = pattern(10, 3);
    const Bytes want = large, want_last = last;
    if (rank == kTo) {
      std::ranges::fill(large, std::byte{0});
      EXPECT_EQ(exchange(*transport, {recv(other, tag(1), first)}, deadline_in(20)).message(),
                "ok");
      EXPECT_EQ(exchange(*transport, {recv(other, tag(2), large)}, deadline_in(20)).message(),
                "ok");
      EXPECT_TRUE(large == want);
      EXPECT_EQ(exchange(*transport, {send(other, tag(3), last)}, deadline_in(20)).message(), "ok");
      return;
    }
    std::ranges::fill(last, std::byte{0});
    EXPECT_EQ(exchange(*transport, {send(other, tag(1), first)}, deadline_in(20)).message(), "ok");
    idle(*transport, 0.5);  // by now it has been told whether the other can read its memory
    const Ticket lent = post(*transport, {send(other, tag(2), large)});
    ASSERT_EQ(workers.size(), 2u);
    held = workers.back();
    const Status took = exchange(*transport, {recv(other, tag(3), last)}, deadline_in(20));
    EXPECT_EQ(took.message(), "ok");
    EXPECT_TRUE(last == want_last);
    EXPECT_EQ(settle(*transport, lent, deadline_in(20)).message(), "ok");
    held = nullptr;
  };
  late(60, !ucx::breaks_on_late_connections()).run(9, body, {}, 100);
}

}  // namespace
}  // namespace gradwire::laws
