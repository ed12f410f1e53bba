// How messages get from rank to rank, as the executor sees it.
#pragma once

#include <cstddef>
#include <span>

#include "gradwire/status.h"
#include "trainer/pipeline/op.h"

namespace gradwire {

// A transfer that has been started is known by its number: below the number of all transfers of a
// rank's list, free again when wait() has returned or done() was true. Memory is lent until then.
// Where computations are enqueued on a device's stream a transfer may be, too: it has ended for
// whatever is enqueued behind it, and the host knows how it went when finish() returns.
// The operation names the message: a send has one receive, on the other rank, with the same
// micro-batch and pipe. From the thread that executes.
class PipelineTransfers {
 public:
  virtual ~PipelineTransfers() = default;

  // Transfers have numbers below `count`. Before the first of them.
  virtual Status prepare(std::size_t count) = 0;

  // Both start the transfer and return. `peer`: the rank at the other end.
  virtual Status send(std::size_t number, const PipelineOp& op, int peer,
                      std::span<const std::byte> bytes) = 0;
  virtual Status receive(std::size_t number, const PipelineOp& op, int peer,
                         std::span<std::byte> bytes) = 0;
  // Whether it has ended; never waits.
  virtual Result<bool> done(std::size_t number) = 0;
  // Until it has ended, or its deadline: kTimedOut.
  virtual Status wait(std::size_t number) = 0;
  // In which wait() has waited, since this object's birth; 0 where nobody counts.
  virtual double waited_seconds() const { return 0; }
  // Behind a list's last wait(): until what streams alone have waited for has ended. Its first
  // error is returned.
  virtual Status finish() { return {}; }
  // After an error: ends what is under way; on return nothing touches what was lent.
  virtual void stop() = 0;
};

}  // namespace gradwire
