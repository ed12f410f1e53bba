// Where the thread that drives an engine sleeps: one wait for messages, for memory that other ranks
// of the host write, and for devices.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "collectives/engine/runnable.h"
#include "comm/shm/bell.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

class Waiter {
 public:
  Waiter();
  ~Waiter();
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // What ranks ring that have written to memory. Before the first operation that waits for memory.
  void listen_to(std::shared_ptr<shm::Bell> bell) { bell_ = std::move(bell); }

  // Sleeps until there may be news of what is awaited, wake(), or `until`; may return early. Not at
  // all if `has_news` says true when all who bring news know of the sleeper. One thread at a time.
  // Errors: the transport's.
  Status sleep(Transport& transport, const Awaited& awaited, Deadline until,
               const std::function<bool()>& has_news);
  // Ends a sleep(). Any thread, while `transport` is there.
  void wake(Transport& transport);

 private:
  class Relay;
  enum class Place : std::uint8_t { kAwake, kAtTransport, kAtBell };

  std::shared_ptr<shm::Bell> bell_;
  std::atomic<Place> place_{Place::kAwake};
  std::unique_ptr<Relay> relay_;  // made when memory and messages are first waited for together
};

}  // namespace gradwire
