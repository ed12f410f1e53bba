#include "collectives/nccl_execution.h"

namespace gradwire {

Result<bool> NcclExecution::advance(Transport&, ScratchPool&) {
  GW_TRY(trouble_);
  GW_ASSIGN(done_, flight_->passed());
  return done_;
}

// NCCL's own finding, which is dearer to ask for than whether the point is passed.
bool NcclExecution::tend(Transport&, Deadline) {
  if (trouble_.ok()) trouble_ = comm_->state();
  return !trouble_.ok();
}

}  // namespace gradwire
