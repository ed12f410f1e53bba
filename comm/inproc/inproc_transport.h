// Ranks as threads of one process: tests, examples and a laptop's `--inproc N`.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/exact_time.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

// Says how long the messages of ranks take, where that is modelled. Any thread calls.
class MessageClock {
 public:
  virtual ~MessageClock() = default;
  virtual ExactTime now(int rank) const = 0;
  // A message whose ends were posted at these times; returns its end.
  virtual ExactTime carry(int from, int to, std::size_t bytes, ExactTime sent,
                          ExactTime received) = 0;
  // The rank has learnt of something that ended then.
  virtual void reach(int rank, ExactTime time) = 0;
};

struct InprocOptions {
  // A rank that stop_rank() stopped counts as lost after this silence; real threads never do.
  double silence_seconds = 0.5;
  // Of as many ranks; null: none.
  std::shared_ptr<MessageClock> clock = nullptr;
};

// Element r belongs to the thread that plays rank r and may be destroyed before or after the
// others. Message bodies are copied once, by the receiver's thread, from the sender's memory into
// the receiver's; so a send settles when its receiver has called progress() or wait().
// kInvalidArgument unless 1 <= size <= 65536.
Result<std::vector<std::unique_ptr<Transport>>> make_inproc_transports(
    int size, const InprocOptions& options = {});

// How tests take a rank out of service. Both may be called from any thread, and do nothing to a
// transport that is not in-process.
// As SIGKILL: the rank says no goodbye, and its peers notice at once. Its own tickets settle with
// kPeerLost, so that the thread that plays it can leave.
void kill_rank(Transport& transport);

// As SIGSTOP: the rank takes and gives nothing any more; its peers notice by silence alone. Once
// they have, its own tickets settle as above.
void stop_rank(Transport& transport);

}  // namespace gradwire
