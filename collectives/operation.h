// An operation between its call and its end, and what is said when it fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/executor.h"
#include "collectives/work_state.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"

namespace gradwire {

struct Operation {
  std::string_view name;        // "all_reduce"; a literal
  std::uint64_t number = 0;     // within its communicator
  std::string_view dtype = {};  // for descriptions; a literal
  std::int64_t elems = -1;      // where all ranks must agree on them
  bool collective = true;       // false: send and recv
  Deadline started;
  Deadline deadline;
  std::unique_ptr<Runnable> execution;
  std::shared_ptr<WorkState> work;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent;  // of its communicator
  // Run by whoever drives when all messages are done, before the Work is; may be empty.
  std::function<Status()> after = {};

  // Adds what the execution has sent since the last call to the communicator's count.
  void count_bytes() {
    const std::uint64_t now = execution->bytes_sent();
    bytes_sent->fetch_add(now - counted, std::memory_order_relaxed);
    counted = now;
  }
  std::uint64_t counted = 0;
};

// Why the operations of an engine end early.
struct Failure {
  Status cause;                  // of the operation that failed first, or of the transport
  std::optional<LostPeer> lost;  // the transport's verdict, if it has one
  std::vector<int> missing;      // job ranks that the roll call after a time-out did not find
  int rank = 0;                  // of this rank in the job
};

// "all_reduce of 1000 f32": what all ranks must agree on.
std::string description_of(const Operation& operation);

// The outcome of `operation`, with its name and times:
//   rank 2 lost in all_reduce (operation 41) after 3.2 s: no heartbeat for 5.0 s (deadline 15.0 s)
//   rank 2 lost in all_reduce (operation 41) after 15.0 s: took no part (deadline 15.0 s)
//   rank 1 timed out in recv (operation 41) after 15.0 s: waiting for rank 2 (deadline 15.0 s)
Status outcome_of(const Operation& operation, const Failure& failure, const Transport& transport,
                  Deadline now);

// What to announce, so that the others name the same rank; nullopt when there is nothing that they
// do not know.
std::optional<LostPeer> verdict_of(const Operation* operation, const Failure& failure,
                                   const Transport& transport);

// "rank 2" or "ranks 2, 3".
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace gradwire
