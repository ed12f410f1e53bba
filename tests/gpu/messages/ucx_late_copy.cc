// A receive over UCX that takes a device's memory, given up while the device has still to copy what
// it needs: the description of what a rank of the same host lends. Of device_laws_ucx_direct.cc's
// program, where UCX is told that it has CUDA.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "comm/ucx/ucx_transport.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/laws/transport/process_backend.h"
#include "tests/laws/transport/transport_steps.h"

namespace gradwire::laws {
namespace {

constexpr std::size_t kLent = 400000;  // bytes: more than what is sent as it is
constexpr double kSeconds = 20;

// Drives the transport until `condition` holds; false at the deadline.
template <typename Condition>
bool drive(Transport& transport, const Condition& condition) {
  const Deadline until = deadline_in(kSeconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until || !transport.progress().has_value()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Rank 0, whose memory is the device's: gives the receive up while the copy is held, after which
// the copy is run or not; then receives again in the same place.
void give_up(Transport& transport) {
  const auto memory = Buffer::allocate(kLent, {MemorySpace::kCuda, 0});
  ASSERT_TRUE(memory.has_value());
  const ByteSpan there = memory.value().bytes();
  const auto receive = [&](std::uint64_t operation) {
    return Transfer{Transfer::Kind::kRecv, 1, tag(operation), there, {MemorySpace::kCuda, 0}};
  };
  emulation::hold_apart(true);
  const Ticket late = post(transport, {receive(1)});
  ASSERT_TRUE(drive(transport, [] { return emulation::pending_apart() > 0; }));
  transport.cancel(late);
  // UCX is through with it, but the device may still read it: it is not the caller's yet.
  idle(transport, 0.1);
  EXPECT_FALSE(transport.poll(late).has_value());
  emulation::hold_apart(false);
  EXPECT_EQ(settle(transport, late, deadline_in(kSeconds)).code(), Code::kCancelled);
  // Nothing of what was lent has come, and nothing comes any more.
  const Status next = exchange(transport, {receive(2)}, deadline_in(kSeconds));
  EXPECT_TRUE(next.ok()) << next.message();
  const Bytes want = pattern(kLent, 2);
  EXPECT_TRUE(Bytes(there.begin(), there.end()) == want);
}

// Rank 1, on the host, has its memory back once rank 0 says that it takes it no more.
void lend(Transport& transport) {
  Bytes first = pattern(kLent, 1);
  const Status taken = exchange(transport, {send(0, tag(1), first)}, deadline_in(kSeconds));
  EXPECT_TRUE(taken.ok()) << taken.message();
  std::ranges::fill(first, std::byte{0xff});
  Bytes second = pattern(kLent, 2);
  const Status sent = exchange(transport, {send(0, tag(2), second)}, deadline_in(kSeconds));
  EXPECT_TRUE(sent.ok()) << sent.message();
}

TransportBackend patient_ucx() {
  return process_backend("ucx", [](const Rendezvous& rendezvous) {
    return make_ucx_transport(rendezvous,
                              {.heartbeat_seconds = 0.25, .liveness_seconds = 10, .log = {}});
  });
}

// Rank 0 ends its transport while the copy is held: the pinned memory that this has stays until the
// device is through.
void end_before_the_copy(std::unique_ptr<Transport> transport) {
  const std::size_t careless = emulation::frees_before_their_time();
  const auto memory = Buffer::allocate(kLent, {MemorySpace::kCuda, 0});
  ASSERT_TRUE(memory.has_value());
  emulation::hold_apart(true);
  post(*transport,
       {{Transfer::Kind::kRecv, 1, tag(1), memory.value().bytes(), {MemorySpace::kCuda, 0}}});
  ASSERT_TRUE(drive(*transport, [] { return emulation::pending_apart() > 0; }));
  transport.reset();
  // Frees what may be freed.
  ASSERT_TRUE(Buffer::allocate(64, {MemorySpace::kPinnedHost, 0}).has_value());
  EXPECT_EQ(emulation::frees_before_their_time(), careless);
  emulation::hold_apart(false);
}

TEST(UcxLateCopy, MemoryOfWhatIsHeldAtTheTransportsEndIsKept) {
  patient_ucx().run(
      2,
      [](std::unique_ptr<Transport> transport) {
        if (transport->rank() == 0) {
          end_before_the_copy(std::move(transport));
          return;
        }
        // Whatever becomes of it: rank 0 has gone.
        Bytes lent = pattern(kLent, 1);
        static_cast<void>(exchange(*transport, {send(0, tag(1), lent)}, deadline_in(kSeconds)));
      },
      {}, 90);
}

TEST(UcxLateCopy, AReceiveThatIsGivenUpMeanwhileSettlesWhenTheDeviceIsThrough) {
  patient_ucx().run(
      2,
      [](std::unique_ptr<Transport> transport) {
        transport->rank() == 0 ? give_up(*transport) : lend(*transport);
        // Nobody leaves before the other is through.
        Bytes word(1);
        const int peer = 1 - transport->rank();
        const Transfer to = send(peer, tag(3), word);
        Bytes from(1);
        EXPECT_TRUE(
            exchange(*transport, {to, recv(peer, tag(3), from)}, deadline_in(kSeconds)).ok());
      },
      {}, 90);
}

}  // namespace
}  // namespace gradwire::laws
