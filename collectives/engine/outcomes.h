// Why operations end early, and what each rank says about it.
#pragma once

#include <optional>
#include <vector>

#include "collectives/engine/operation.h"
#include "collectives/failure/roll_call.h"
#include "collectives/failure/survivor_vote.h"
#include "gradwire/status.h"
#include "gradwire/transport.h"

namespace gradwire {

// Why the operations of an engine end early.
struct Failure {
  Status cause;                      // of the operation that failed first, or of the transport
  std::optional<LostPeer> reported;  // the transport's first loss, if it has one
  std::vector<LostPeer> lost = {};   // all that are gone, but for those that left in good order
  RollCall call = {};
  bool isolated = false;  // others may go on beyond a network that fails, and this rank may not
  int rank = 0;           // of this rank in the job
};

// Which ranks are why. Asks the other ranks (roll_call.h), so it takes up to 0.4 s.
// `failed_first`: the operation, null if it was none. `rule`: of the shrink() that may follow.
Failure investigate(Transport& transport, const Operation* failed_first, Status cause,
                    const FlightRecorder& recorder, const SideRule& rule);

// The outcome of `operation`, with its name and times:
//   rank 2 lost in all_reduce (operation 41) after 3.2 s: no heartbeat for 5.0 s (deadline 15.0 s)
//   ranks 2, 3 lost in all_reduce (operation 41) after 3.2 s: rank 2: killed; rank 3: ...
//   rank 2 lost in all_reduce (operation 41) after 15.0 s: took no part (deadline 15.0 s)
//   rank 1 timed out in recv (operation 41) after 15.0 s: waiting for rank 2 (deadline 15.0 s)
//   rank 1 gave up in all_reduce (operation 41) after 0.1 s: reported by rank 1: out of disk (...)
//   ranks disagree in all_reduce (operation 41) after 0.1 s: rank 1 runs barrier, rank 0 runs ...
//   rank 3 isolated in all_reduce (operation 41) after 5.1 s: rank 0: no heartbeat for 5.0 s; ...
Status outcome_of(const Operation& operation, const Failure& failure, const Transport& transport,
                  Deadline now);

// What an engine that fails with no operation open answers to the next. Where another rank gave up,
// in that rank's words, whatever of it came first:
//   rank 1 gave up: reported by rank 1: out of disk
Status outcome_between_operations(const Failure& failure);
// The same of a group whose ranks are lost while others go on: "rank 2 lost: killed".
Status outcome_of_loss(const Failure& failure);

// The ranks that a failure is about, all of which are gone, ascending; none where some rank that
// runs, or nobody, is why.
std::vector<int> lost_by(const Failure& failure);

// What to announce, so that the others name the same ranks; nothing that they know.
std::vector<LostPeer> reports_of(const Operation* operation, const Failure& failure,
                                 const Transport& transport);

}  // namespace gradwire
