// An operation between its call and its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/work_state.h"
#include "collectives/failure/flight_recorder.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"

namespace gradwire {

inline constexpr std::size_t kQueues = 3;  // but kAuto

struct Operation {
  Signature signature = {};
  std::uint64_t number = 0;         // within its communicator
  int peer = -1;                    // job rank, of a send or recv without a deadline of its own
  std::string_view algorithm = {};  // a literal
  bool collective = true;           // false: send and recv
  bool brief = false;               // a short message, or a receive: may wait for company
  Queue queue = Queue::kBulk;       // not kAuto
  Deadline started = {};
  Deadline deadline = {};
  std::unique_ptr<Runnable> execution = {};
  std::shared_ptr<WorkState> work;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent;  // of its communicator
  // Run by the thread that drives when all messages are done, before the Work is; may be empty.
  std::function<Status()> after = {};

  // Memory of the communicator's own that the execution reads; may be null.
  std::shared_ptr<std::byte> own = {};

  // Adds what the execution has sent since the last call to the communicator's count.
  void count_bytes() {
    const std::uint64_t now = execution->bytes_sent();
    bytes_sent->fetch_add(now - counted, std::memory_order_relaxed);
    counted = now;
  }
  std::uint64_t counted = 0;
  std::optional<bool> single = {};   // its execution is, once that has had a turn
  int open_before = 0;               // of those with the peer, when its deadline was set last
  std::vector<int> waited_for = {};  // job ranks, when it failed
  // Its sequence number in the flight recorder; submit() begins what has none.
  std::optional<std::uint64_t> flight = {};
};

}  // namespace gradwire
