// The same for ranks of one host that share memory.
#include <utility>

#include "gradwire/communicator.h"
#include "tests/laws/transport/shrink_laws.h"

namespace gradwire::laws {
namespace {

Result<std::unique_ptr<Communicator>> sharing(std::unique_ptr<Transport> transport) {
  return make_sharing_communicator(std::move(transport),
                                   {.deadline_seconds = 20, .node_of = {0, 0, 0, 0}});
}

TEST_P(TransportLaws, OneThatSharesMemoryIsKilledWhileTheyRebuild) {
  shrink_past(GetParam(), Point::kRebuilding, Fate::kKilled, sharing);
}
TEST_P(TransportLaws, OneThatSharesMemoryIsStoppedWhileTheyRebuild) {
  shrink_past(GetParam(), Point::kRebuilding, Fate::kStopped, sharing);
}
TEST_P(TransportLaws, OneThatSharesMemoryIsKilledWhenItHasRebuilt) {
  shrink_past(GetParam(), Point::kRebuilt, Fate::kKilled, sharing);
}

}  // namespace
}  // namespace gradwire::laws
