#include <atomic>
#include <thread>
#include <vector>

#include "comm/inproc/inproc_faults.h"
#include "comm/inproc/inproc_transport.h"
#include "tests/laws/transport_laws.h"

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

INSTANTIATE_TEST_SUITE_P(Inproc, TransportLaws,
                         testing::Values(TransportBackend{"inproc", run_threads, end, 5}),
                         backend_name);

}  // namespace
}  // namespace gradwire::laws
