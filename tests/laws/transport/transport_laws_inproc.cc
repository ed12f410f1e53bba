#include <atomic>
#include <thread>
#include <vector>

#include "comm/inproc/inproc_transport.h"
#include "tests/laws/transport/transport_laws.h"
#include "tests/laws/transport/transport_steps.h"

namespace gradwire::laws {
namespace {

// Ranks as threads. They cannot be ended from outside: the bodies' own deadlines bound them.
void run_threads(int size, const RankBody& body, const std::map<int, Fate>&, double) {
  auto transports = make_inproc_transports(size);
  ASSERT_TRUE(transports.has_value()) << transports.error().message();
  std::vector<std::thread> threads;
  for (auto& transport : transports.value()) {
    threads.emplace_back([&body, &transport] { body(std::move(transport)); });
  }
  for (std::thread& thread : threads) thread.join();
}

void end(Transport& transport, Fate fate) {
  if (fate == Fate::kKilled) kill_rank(transport);
  if (fate != Fate::kStopped) return;
  stop_rank(transport);
  const Deadline until = deadline_in(10);  // leaving at once would be noticed at once
  while (!transport.lost() && std::chrono::steady_clock::now() < until) {
    if (!transport.wait(until).ok()) return;
  }
}

// They had met two messages, of which nothing was copied yet.
TEST(InprocTransport, CancelledReceivesLeaveTheirMessagesInOrder) {
  auto made = make_inproc_transports(2);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  Transport& sender = *made.value()[0];
  Transport& receiver = *made.value()[1];
  Bytes first(1, std::byte{1}), second(1, std::byte{2}), got(1);
  const std::vector<Ticket> cancelled = {post(receiver, {recv(0, tag(3), got)}),
                                         post(receiver, {recv(0, tag(3), got)})};
  post(sender, {send(1, tag(3), first)});
  post(sender, {send(1, tag(3), second)});
  for (const Ticket ticket : cancelled) receiver.cancel(ticket);
  for (const Bytes& wanted : {first, second}) {
    EXPECT_EQ(exchange(receiver, {recv(0, tag(3), got)}, deadline_in(20)).message(), "ok");
    EXPECT_EQ(got, wanted);
  }
}

TEST(InprocTransport, AMessageOfACancelledReceiveMeetsTheNextThatWaits) {
  auto made = make_inproc_transports(2);
  ASSERT_TRUE(made.has_value()) << made.error().message();
  Transport& sender = *made.value()[0];
  Transport& receiver = *made.value()[1];
  Bytes data(1, std::byte{1}), got(1), kept(1);
  const Ticket cancelled = post(receiver, {recv(0, tag(3), got)});
  const Ticket next = post(receiver, {recv(0, tag(3), kept)});
  post(sender, {send(1, tag(3), data)});
  receiver.cancel(cancelled);
  EXPECT_EQ(settle(receiver, next, deadline_in(20)).message(), "ok");
  EXPECT_EQ(kept, data);
}

INSTANTIATE_TEST_SUITE_P(Inproc, TransportLaws,
                         testing::Values(TransportBackend{"inproc", run_threads, end, 5}),
                         backend_name);

}  // namespace
}  // namespace gradwire::laws
